"""Writing packs of many callers together.

A write of 500 bytes costs a client and a coordinator more in handling the request than in keeping the bytes. So packs
that are written in the same turn of the event loop go out as one unlogged batch. It is no transaction: each partition
is a mutation of its own with a majority of its own, and the request is acknowledged when all of them are. A failure
fails all of it, and writing a pack again is harmless.

Cassandra warns of batches beyond 10 partitions or 5 KiB, because their coordinator has to hold them (cassandra.yaml,
`unlogged_batch_across_partitions_warn_threshold` and `batch_size_warn_threshold`); these stay below both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tocsin.schema.cassandra_driver import Call

#: Packs of one request at most.
TOGETHER_MAX = 10
#: Bytes of their bodies at most; a larger pack goes alone.
TOGETHER_BYTES_MAX = 4 * 1024


class _Request:
    """Writes that go out together."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._size_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        return len(self.calls) < TOGETHER_MAX and self._size_bytes + size_bytes <= TOGETHER_BYTES_MAX

    def add(self, call: Call, size_bytes: int) -> None:
        self.calls.append(call)
        self._size_bytes += size_bytes


class PackWriter:
    """Writes packs, those of one turn of the event loop together.

    `run_together` sends some and returns once they are acknowledged.
    """

    def __init__(self, run_together: Callable[[Sequence[Call]], Awaitable[None]]) -> None:
        self._run_together = run_together
        self._open: _Request | None = None
        self._sending: asyncio.Task[None] | None = None

    async def write(self, call: Call, size_bytes: int) -> None:
        """Write one pack; returns once it is acknowledged."""
        if self._open is None or self._sending is None or not self._open.has_room(size_bytes):
            self._open = _Request()
            self._sending = asyncio.get_running_loop().create_task(self._send(self._open))
            self._sending.add_done_callback(_look_at)
        self._open.add(call, size_bytes)
        await asyncio.shield(self._sending)

    async def _send(self, request: _Request) -> None:
        if self._open is request:
            self._open = None
        await self._run_together(request.calls)


def _look_at(sent: asyncio.Task[None]) -> None:
    """Whoever waits is told of a failure; where all were cancelled, nobody needs to be."""
    if not sent.cancelled():
        sent.exception()
