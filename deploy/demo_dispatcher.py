"""The demo's dispatchers: programs of their own, which really die, and the file they write."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import msgspec

from tocsin.deploy.dispatch import STOP_SECONDS, dispatcher_command
from tocsin.deploy.metrics_server import OFF
from tocsin.dispatcher.publisher_lines import printable
from tocsin.loadtest.verdict import Seen
from tocsin.schema.entries import parse_instant
from tocsin.schema.errors import TocsinError

#: A third of the defaults, so that a takeover fits into the demo; anybody may set them so in tocsin.toml.
TIMING: Final = {"lease_ttl_ms": 2_000, "lease_margin_ms": 600, "heartbeat_ms": 500}


class DispatcherEnded(TocsinError):
    """The demo's dispatcher ended by itself; its last words say why."""


class Line(msgspec.Struct):
    """What the demo reads of a line of the sink."""

    key: str
    time: str


class Place:
    """A directory with the store, the settings, the sink and the dispatchers' log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store_url = f"sqlite:///{directory / 'tocsin.db'}"
        self.log_path = directory / "dispatcher.log"
        self._sink_path = directory / "dispatched.jsonl"
        self._read_bytes = 0
        settings = "\n".join(f"{name} = {value}" for name, value in TIMING.items())
        (directory / "tocsin.toml").write_text(f"[timing]\n{settings}\n")

    async def start_dispatcher(self) -> asyncio.subprocess.Process:
        """A dispatcher that reads this directory's settings and nobody else's."""
        command = dispatcher_command(self.store_url, f"jsonl://{self._sink_path}", metrics=OFF, log="json")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
        with self.log_path.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command,
                cwd=self.directory,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def new_records(self) -> list[Seen]:
        """What whole lines the sink got since the last call."""
        if not self._sink_path.exists():
            return []
        with self._sink_path.open("rb") as sink:
            sink.seek(self._read_bytes)
            whole, newline, _ = sink.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(newline)
        return [_seen(line) for line in whole.split(b"\n") if line]

    def require_running(self, dispatcher: asyncio.subprocess.Process) -> None:
        """Raise DispatcherEnded where the dispatcher has ended by itself."""
        if dispatcher.returncode is not None:
            words = self.log_path.read_text(errors="backslashreplace").strip().rpartition("\n")[2]
            code = dispatcher.returncode
            raise DispatcherEnded(f"the demo's dispatcher ended by itself with code {code}: {printable(words)}")


async def stop(dispatcher: asyncio.subprocess.Process) -> None:
    """A planned stop; by force where it takes too long."""
    if dispatcher.returncode is not None:
        return
    dispatcher.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await dispatcher.wait()
    except TimeoutError:
        await kill(dispatcher)


async def kill(dispatcher: asyncio.subprocess.Process) -> None:
    """SIGKILL: it can neither finish nor say goodbye."""
    if dispatcher.returncode is None:
        dispatcher.kill()
        await dispatcher.wait()


def _seen(line: bytes) -> Seen:
    read = msgspec.json.decode(line, type=Line)
    return Seen(read.key, parse_instant(read.time))
