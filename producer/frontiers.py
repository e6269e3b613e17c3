"""Reads of the frontier, shared by everybody who waits for one.

The insert rule asks for a read of the frontier *that begins after* its pack was acknowledged. One read serves every
pack of that range acknowledged before it began, so callers that arrive while a read is under way share the next one: a
thousand packs of a range cost two reads, not a thousand.

Each answer also sets the range's **position clock**: the last sealed_near seen, plus the time on our monotonic clock
since then, plus one tick. Near positions are chosen by it, so that no host's wall clock decides where an entry lies.
"""

from __future__ import annotations

import asyncio

from tocsin.schema.clock import Clock
from tocsin.schema.store import Frontier, Store
from tocsin.schema.timing import Timing


class Frontiers:
    """The frontier of every range, as last read by this process."""

    def __init__(self, store: Store, clock: Clock, timing: Timing) -> None:
        self._store = store
        self._clock = clock
        self._timing = timing
        self._under_way: dict[int, asyncio.Task[Frontier]] = {}
        self._next: dict[int, asyncio.Task[Frontier]] = {}
        self._seen: dict[int, tuple[int, int]] = {}

    async def read(self, shard_range: int) -> Frontier:
        """The registers of the range, by a read that begins after this call. Raises what the store raises."""
        if shard_range in self._next:
            task = self._next[shard_range]
        elif shard_range in self._under_way:
            task = asyncio.get_running_loop().create_task(self._read_after(self._under_way[shard_range], shard_range))
            self._next[shard_range] = task
        else:
            task = self._begin(shard_range)
        return await asyncio.shield(task)

    def saw(self, shard_range: int, sealed_near: int) -> None:
        """Tell the position clock what is sealed: the owner knows before any read does."""
        self._seen[shard_range] = (sealed_near, self._clock.monotonic_ms())

    async def position_clock(self, shard_range: int) -> int:
        """The earliest instant at which an unsealed near position can be expected, ms UTC."""
        if shard_range not in self._seen:
            await self.read(shard_range)
        sealed_near, seen_at = self._seen[shard_range]
        return sealed_near + self._clock.monotonic_ms() - seen_at + self._timing.tick_ms

    def _begin(self, shard_range: int) -> asyncio.Task[Frontier]:
        task = asyncio.get_running_loop().create_task(self._read_now(shard_range))
        self._under_way[shard_range] = task
        return task

    async def _read_now(self, shard_range: int) -> Frontier:
        try:
            frontier = await self._store.read_frontier(shard_range)
        finally:
            del self._under_way[shard_range]
        self.saw(shard_range, frontier.sealed_near)
        return frontier

    async def _read_after(self, before: asyncio.Task[Frontier], shard_range: int) -> Frontier:
        await asyncio.wait([before])
        self._under_way[shard_range] = self._next.pop(shard_range)
        return await self._read_now(shard_range)
