"""Processes of an acceptance test: heard line by line, signalled by their id, and reaped whatever happens.

Each output has a thread that listens, so a test waits for what a process says and never for time to pass, and no pipe
fills up. What dispatchers said is shown where a test fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from command_line import start_tocsin

Said = dict[str, Any]

#: How long a process may take to say what it is waited for.
PATIENCE_SECONDS = 60.0
#: Lines of each process that a failure shows, and what it leaves out: what a client was promised is judged elsewhere.
LINES_SHOWN = 60
NOT_SHOWN = ('{"action": "created"', '{"action": "acknowledged"', '{"action": "applied"')


class Running:
    """A process that speaks JSON lines, on either output."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.process = process
        self._lines: list[str] = []
        self._said: list[Said] = []
        self._heard = threading.Condition()
        self._listeners = [
            threading.Thread(target=self._listen, args=(output,), daemon=True)
            for output in (process.stdout, process.stderr)
        ]
        self._listening = len(self._listeners)
        for listener in self._listeners:
            listener.start()

    @property
    def said(self) -> list[Said]:
        """Everything it has said so far; lines that are no JSON are left out."""
        with self._heard:
            return list(self._said)

    @property
    def text(self) -> str:
        """Every line of both outputs, whatever it holds."""
        with self._heard:
            return "\n".join(self._lines)

    def until(self, holds: Callable[[list[Said]], bool], *, seconds: float = PATIENCE_SECONDS) -> list[Said]:
        """Everything said, once that is enough; fails when the process ends or the time is over before."""
        give_up = time.monotonic() + seconds
        with self._heard:
            while not holds(self._said):
                if not self._listening:
                    raise AssertionError(f"{self.name} ended, code {self.process.poll()}, without saying it")
                if not self._heard.wait(give_up - time.monotonic()):
                    raise AssertionError(f"{self.name} did not say it within {seconds} s")
            return list(self._said)

    def until_action(self, action: str, count: int = 1, *, seconds: float = PATIENCE_SECONDS) -> list[Said]:
        """Everything said, once it has said this action so often."""
        return self.until(lambda said: actions(said).count(action) >= count, seconds=seconds)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end_input(self) -> None:
        """Close its standard input: a client that goes on until then comes to its end."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def ended(self, *, seconds: float = PATIENCE_SECONDS) -> int:
        """The exit code, once it has ended and all it said is heard."""
        code = self.process.wait(seconds)
        for listener in self._listeners:
            listener.join(seconds)
        return code

    def reap(self) -> None:
        """End it, unless it has ended."""
        if self.process.poll() is None:
            # A paused process dies of it, too.
            self.process.kill()
        self.ended()
        self.end_input()

    def _listen(self, output: IO[str]) -> None:
        with output:
            for line in output:
                with self._heard:
                    self._lines.append(line.rstrip())
                    if line.startswith("{"):
                        self._said.append(json.loads(line))
                    self._heard.notify_all()
        with self._heard:
            self._listening -= 1
            self._heard.notify_all()

    def __str__(self) -> str:
        with self._heard:
            lines = [line for line in self._lines if not line.startswith(NOT_SHOWN)]
        return "\n".join([f"--- {self.name}", *lines[-LINES_SHOWN:]])


def actions(said: list[Said]) -> list[str]:
    """What a log tells, by its stable words."""
    return [line.get("action", "") for line in said]


class Processes:
    """Starts the processes of one test."""

    def __init__(self, folder: Path, store: str, sink: str) -> None:
        self.store = store
        self.sink = sink
        self._folder = folder
        self._all: list[Running] = []

    def dispatcher(self, *, environment: Mapping[str, str] | None = None) -> Running:
        """Start `tocsin dispatch`; it would stop by itself if this process died."""
        options = {"--store": self.store, "--sink": self.sink, "--metrics": "off", "--log": "json"}
        words = [word for option in options.items() for word in option]
        process = start_tocsin(
            "dispatch",
            *words,
            "--supervisor",
            str(os.getpid()),
            folder=self._folder,
            environment={"TOCSIN_TRACEBACK": "1", **(environment or {})},
        )
        return self._add("dispatcher", process)

    def command(self, name: str, *words: str) -> Running:
        """Start another command on the same store, which logs JSON lines."""
        process = start_tocsin(name, "--store", self.store, "--log", "json", *words, folder=self._folder)
        return self._add(name, process)

    def client(
        self, plan: Mapping[str, Any], *, program: str = "client.py", environment: Mapping[str, str] | None = None
    ) -> Running:
        """Start a program of users of Tocsin, which is told on the first line of its standard input what to do."""
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(program))],
            cwd=self._folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdin is not None
        print(json.dumps({"store": self.store, **plan}), file=process.stdin, flush=True)
        return self._add("client", process)

    def reap(self) -> None:
        """End whatever runs."""
        for running in self._all:
            running.reap()

    def __str__(self) -> str:
        return "\n".join(map(str, self._all))

    def _add(self, kind: str, process: subprocess.Popen[str]) -> Running:
        running = Running(f"{kind} {process.pid}", process)
        self._all.append(running)
        return running
