"""Turn into a service: detach, write down who this process is, then become the program.

`down` has to find every process that was begun, even where the starter was killed between making a process and noting
its id. So the process notes its own id, before it becomes Java, in `<name>.process.json`:

    starter -- runs --> this file -- forks --> child: own session; writes its identity; exec
                             |                                                     |
                             +--- waits on a pipe that a successful exec closes ---+

One race is left: `down` may look for such files just before the child writes its own. Therefore `down` first leaves a
mark, `stopping`, and the child looks for the mark after it has written: whichever comes second sees the other.

An identity is the process id and the process's birth (boot and start time), so an id that the system has given to
another process meanwhile is never signalled. A zombie has no birth here: nothing is left to stop.

Run as a file, outside the package and with the standard library only: five processes start this way, at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

STOPPING = "stopping"


def process_birth(pid: int) -> str | None:
    """Tell processes with the same id apart: boot and start time; None where no such process lives."""
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        return _birth_by_ps(pid)
    try:
        # The command in parentheses may hold any character, so fields are counted from the last closing one.
        state, *fields = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None if state in "ZX" else f"{boot}/{fields[18]}"


def _birth_by_ps(pid: int) -> str | None:
    found = subprocess.run(  # noqa: S603 - an absolute path and a number
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, birth = found.stdout.strip().partition(" ")
    return birth.strip() or None if not state.startswith("Z") else None


def write_whole(path: Path, text: str) -> None:
    """Replace the file at once, so that no reader ever meets half of it."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.replace(path)


def become(identity_file: Path, command: list[str]) -> NoReturn:
    """Note the identity of this process in the file and turn into the command; never returns.

    Raises:
        OSError: the file cannot be written, the program cannot be run, or `down` was faster.
    """
    pid = os.getpid()
    write_whole(identity_file, json.dumps({"pid": pid, "birth": process_birth(pid)}))
    if identity_file.with_name(STOPPING).exists():
        raise OSError("the stack is being stopped")
    os.execv(command[0], command)  # noqa: S606 - the very purpose; the command comes from our own starter


def main() -> None:
    """Usage: stack_child.py IDENTITY_FILE PROGRAM ARGUMENT…; standard output and error become the log."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        sys.exit(os.read(reader, 1000).decode() or None)
    try:
        os.setsid()
        become(Path(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        os.write(writer, str(error).encode())
    os._exit(1)


if __name__ == "__main__":
    main()
