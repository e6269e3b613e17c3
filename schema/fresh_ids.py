"""Fresh ids of 16 random bytes, drawn from the system in large pieces.

Each draw from the system is a call that gives up the interpreter's lock; one a pack would cost more than the pack. An
object belongs to one process: after a fork both would hand out the same ids, so a fork draws anew.
"""

from __future__ import annotations

import os

ID_BYTES = 16
#: Ids of one draw.
DRAW = 256


class FreshIds:
    """Callable; each call returns an id that no other call returns."""

    def __init__(self) -> None:
        self._drawn = b""
        self._at = 0
        self._process = 0

    def __call__(self) -> bytes:
        """16 random bytes."""
        if self._at >= len(self._drawn) or self._process != os.getpid():
            self._drawn, self._at, self._process = os.urandom(DRAW * ID_BYTES), 0, os.getpid()
        self._at += ID_BYTES
        return self._drawn[self._at - ID_BYTES : self._at]
