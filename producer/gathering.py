"""Inserts of many callers, made together.

A caller that creates thousands of schedules has hundreds of write-aheads and confirmations under way at any moment.
Each is one entry, and each alone would be a pack, a write and a wait. So inserts into one range that come while another
insert into it is under way wait for it and are then made as one: entries of one bucket share packs, and all of them
share the reading of the frontier. It is SQLite's group commit again: the busier, the larger the groups, and whoever is
alone waits for nobody.

The rule itself is untouched. An insert that fails, fails for everybody who shared it; what each of them then does,
repeat or report an unknown outcome, was safe before and is now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tocsin.producer.insert import Inserter, Place, Placement

#: How long a group of a busy range stays open, in ms; next to a conditional write nobody feels it.
LINGER_MS = 10


class _Group:
    """Placements that will be inserted together."""

    def __init__(self) -> None:
        self.placements: list[Placement] = []
        self.callers = 0
        #: The latest of those who share it; None: one of them never gives up.
        self.deadline: int | None = 0

    def join(self, placements: Sequence[Placement], deadline: int | None) -> slice:
        """Add placements; where their places will be found."""
        start = len(self.placements)
        self.callers += 1
        self.placements += placements
        never_ends = deadline is None or self.deadline is None
        self.deadline = None if never_ends else max(deadline or 0, self.deadline or 0)
        return slice(start, len(self.placements))


class GatheringInserter(Inserter):
    """An Inserter for many callers at once; those who share an insert share the latest of their deadlines."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: By range: the group that can still be joined, and the task of the newest one.
        self._open: dict[int, _Group] = {}
        self._newest: dict[int, asyncio.Task[list[Place | None]]] = {}

    async def _insert_in_range(
        self, shard_range: int, placements: Sequence[Placement], deadline: int | None, *, cascade: bool
    ) -> list[Place | None]:
        if cascade:
            return await super()._insert_in_range(shard_range, placements, deadline, cascade=True)
        if shard_range not in self._open:
            group = self._open[shard_range] = _Group()
            work = self._insert_group(shard_range, group, after=self._newest.get(shard_range))
            self._newest[shard_range] = asyncio.get_running_loop().create_task(work)
            self._newest[shard_range].add_done_callback(_look_at)
        mine = self._open[shard_range].join(placements, deadline)
        return (await asyncio.shield(self._newest[shard_range]))[mine]

    async def _insert_group(
        self, shard_range: int, group: _Group, *, after: asyncio.Task[list[Place | None]] | None
    ) -> list[Place | None]:
        if after is not None:
            await asyncio.wait([after])
            if group.callers > 1:  # More are on their way: one reading of the frontier serves them too.
                await self._clock.sleep_ms(LINGER_MS)
        del self._open[shard_range]
        return await super()._insert_in_range(shard_range, group.placements, group.deadline, cascade=False)


def _look_at(group: asyncio.Task[list[Place | None]]) -> None:
    """Whoever waits is told of a failure; where all were cancelled, nobody needs to be."""
    if not group.cancelled():
        group.exception()
