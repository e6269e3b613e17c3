"""A service of the local stack as a process of its own, found again by its identity (see stack_child)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tocsin.deploy import stack_child
from tocsin.deploy.stack_errors import ServiceFailed

#: How long a process may take to end after SIGTERM before it is killed; Cassandra flushes meanwhile.
GENTLE_STOP_SECONDS = 30
POLL_SECONDS = 0.02


class ProcessService:
    """One program, started in its own session so that no signal to the terminal reaches it.

    `commands` is asked at each start for the command lines: the last one is the service, those before it run first and
    must succeed. `directory` belongs to the service alone; its identity is noted beside it.
    """

    def __init__(self, name: str, directory: Path, commands: Callable[[], list[list[str]]]) -> None:
        self.name = name
        self.directory = directory
        self._commands = commands
        self._identity = directory.with_name(f"{name}.process.json")
        self._log = directory / "output.log"

    def start(self) -> None:
        """Begin the program; returns once it runs, not once it serves.

        Raises:
            ServiceFailed: the program cannot be run.
        """
        *before, service = self._commands()
        for command in before:
            self._run(command)
        self._run([sys.executable, "-I", "-S", stack_child.__file__, str(self._identity), *service])

    def stop(self, *, gently: bool) -> None:
        """End the program, and return once it is gone; gently lets it flush and say goodbye."""
        if gently:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a paused process meets its SIGTERM only when it goes on
            self._await_end(GENTLE_STOP_SECONDS)
        self._signal(signal.SIGKILL)
        self._await_end(GENTLE_STOP_SECONDS)

    def pause(self) -> None:
        """Freeze the process where it is, as a long garbage collection or a stalled machine would."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Delete the service's data, log and identity."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self._identity.unlink(missing_ok=True)

    @property
    def pid(self) -> int | None:
        """The process, where it lives and is still the one that was started."""
        try:
            identity = json.loads(self._identity.read_text())
        except FileNotFoundError:
            return None
        pid = int(identity["pid"])
        return pid if stack_child.process_birth(pid) == identity["birth"] else None

    @property
    def running(self) -> bool:
        """Whether the process lives; a paused one does."""
        return self.pid is not None

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines the program wrote."""
        try:
            return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _run(self, command: list[str]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            ended = subprocess.run(  # noqa: S603 - the command is built by our own engine
                command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            )
        if ended.returncode != 0:
            raise ServiceFailed(
                self.name, f"{Path(command[0]).name} ended with code {ended.returncode}", self.log_tail()
            )

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return

    def _await_end(self, patience_seconds: float) -> None:
        give_up = time.monotonic() + patience_seconds
        while self.running and time.monotonic() < give_up:
            time.sleep(POLL_SECONDS)
