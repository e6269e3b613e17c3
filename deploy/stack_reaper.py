"""Stop a short-lived stack when its starter is gone, however it went.

The starter holds the other end of this process's standard input. When the starter ends, killed or not, the system
closes that end, the read below returns, and the stack is stopped. Works for threads, for containers and on every
system, which a signal at the parent's death does not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def start_reaper(directory: Path) -> subprocess.Popen[bytes]:
    """Begin to watch this process on behalf of the stack in the directory; close its stdin to end the stack."""
    return subprocess.Popen(  # noqa: S603 - this very module
        [sys.executable, "-m", "tocsin.deploy.stack_reaper", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main() -> None:
    """Wait for the end of standard input, then stop what is left of the stack."""
    from tocsin.deploy.stack import LocalStack

    sys.stdin.buffer.read()
    LocalStack(Path(sys.argv[1])).stop()


if __name__ == "__main__":
    main()
