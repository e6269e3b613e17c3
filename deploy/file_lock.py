"""One command at a time: a lock that the system releases when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this file, made with its folder where missing; whoever holds it may delete the file."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # The holder we waited for may have deleted the file; others would then lock a new one beside us.
            if not path.exists() or not os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                continue
            yield
            return
