"""Sinks without Kafka: lines for the eye on standard output, and JSON lines for programs in a file.

Both write a batch by one call, in a thread, so that a slow terminal or disk never holds up the event loop; one thread
keeps the order. Only what is written, and for a file also on disk, is acknowledged. A full disk or a closed pipe is
BROKER_AWAY: the dispatcher backs off and writes again later.

Standard output shows payloads that strangers wrote. Everything but printable characters is escaped, so that none of
them can move the cursor, recolour the terminal or turn the direction of text.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from tocsin.dispatcher.publisher import Outcome
from tocsin.schema.entries import format_instant
from tocsin.schema.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tocsin.dispatcher.publisher import Record
    from tocsin.schema.clock import Clock

#: Characters of a value that a line shows.
VALUE_SHOWN_MAX = 60

_log = structlog.get_logger(__name__)


class LinesPublisher:
    """Writes one line per record to a file descriptor; subclasses say which, and when it counts as written."""

    def __init__(self, clock: Clock, line_of: Callable[[Record, int], bytes]) -> None:
        self._clock = clock
        self._line_of = line_of
        self._descriptor = -1
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tocsin-lines")
        #: A line was cut off by a failed write; the next one must not continue it.
        self._torn = False

    async def start(self) -> None:
        """Open what is written to. Raises SettingsError where that cannot be done."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Write one line per record, in order; see Publisher.publish."""
        outcome = await asyncio.get_running_loop().run_in_executor(self._thread, self._write, records)
        return [outcome] * len(records)

    async def close(self, timeout_ms: int) -> None:  # noqa: ARG002 - a write cannot be given up half-way
        """Wait for the writes under way and close."""
        await asyncio.to_thread(self._thread.shutdown)
        self._close()

    def _write(self, records: Sequence[Record]) -> Outcome:
        now_ms = self._clock.wall_ms()
        text = b"".join(self._line_of(record, now_ms) for record in records)
        if self._torn:
            text = b"\n" + text
        written = 0
        try:
            while written < len(text):
                written += os.write(self._descriptor, memoryview(text)[written:])
            self._make_durable()
        except OSError as error:
            self._torn = self._torn if not written else text[written - 1 : written] != b"\n"
            _log.warning(
                "The sink cannot be written; the records are published again.", action="sink", error=str(error)
            )
            return Outcome.BROKER_AWAY
        self._torn = False
        return Outcome.ACKED

    def _open(self) -> None:
        raise NotImplementedError

    def _make_durable(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class StdoutPublisher(LinesPublisher):
    """A readable line per record on standard output: time, topic, key, the start of the value."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, readable_line)

    def _open(self) -> None:
        sys.stdout.flush()
        self._descriptor = sys.stdout.fileno()

    def _make_durable(self) -> None:
        pass

    def _close(self) -> None:
        pass


class JsonLinesPublisher(LinesPublisher):
    """A JSON object per record, appended to a file; acknowledged once it is on disk."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(clock, json_line)
        self._path = path

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._torn = self._ends_within_line()
            directory = os.open(self._path.parent, os.O_RDONLY)
        except OSError as error:
            raise SettingsError(
                f"the sink {self._path} cannot be opened ({error.strerror}); correct its path or its permissions."
            ) from error
        try:
            # A new file's name is durable only once its directory is.
            os.fsync(directory)
        finally:
            os.close(directory)

    def _ends_within_line(self) -> bool:
        """Whether a process was killed within a line here."""
        size_bytes = os.fstat(self._descriptor).st_size
        return size_bytes > 0 and os.pread(self._descriptor, 1, size_bytes - 1) != b"\n"

    def _make_durable(self) -> None:
        os.fdatasync(self._descriptor)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def readable_line(record: Record, now_ms: int) -> bytes:
    """The line standard output shows."""
    shown = record.value[: 4 * VALUE_SHOWN_MAX].decode("utf-8", "backslashreplace")
    if len(shown) > VALUE_SHOWN_MAX or len(record.value) > 4 * VALUE_SHOWN_MAX:
        shown = shown[:VALUE_SHOWN_MAX] + "…"
    key = record.key.decode("utf-8", "backslashreplace")
    line = f"{format_instant(now_ms)}  {printable(record.topic)}  {printable(key)}  {printable(shown)}"
    return f"{line}\n".encode()


def printable(text: str) -> str:
    """The text with everything escaped that a terminal could take for a command."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def json_line(record: Record, now_ms: int) -> bytes:
    """The object a JSON-lines sink holds: `value` where it is UTF-8, else `value_base64`."""
    line: dict[str, Any] = {
        "time": format_instant(now_ms),
        "topic": record.topic,
        "key": record.key.decode("utf-8", "backslashreplace"),
        "headers": [(name, value.decode("utf-8", "backslashreplace")) for name, value in record.headers],
    }
    try:
        line["value"] = record.value.decode("utf-8")
    except UnicodeDecodeError:
        line["value_base64"] = base64.b64encode(record.value).decode("ascii")
    return msgspec.json.encode(line) + b"\n"
