"""The traces that a schedule's occurrences have left on the levels.

Nothing on a level is updated or deleted before its time to live is over, so an entry can be read long after its due.
Copies of one entry are one trace here, with everything that any of them says. Partitions are read many at a time, each
read repeated until it is answered; rows of other schedules that share a partition are passed over as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from tocsin.producer.persistence import Persistence
from tocsin.schema.entries import Entry, Kind, Undecodable, decode_pack
from tocsin.schema.levels import Bucket, Level, Levels
from tocsin.schema.store import Frontier, PackRow, Store

#: Partitions read at once.
READ_AT_ONCE = 32

Identity = tuple[int, int, str]


@dataclass
class Trace:
    """One occurrence of one version, as its copies tell of it."""

    #: The copy that says most; its payload is left out.
    entry: Entry
    #: The highest position of a copy on near or minute, ms UTC; 0: there is none.
    highest: int = 0
    #: The latest end of a far day that holds a copy, ms UTC; 0: there is none.
    far_end: int = 0

    def waits(self, frontier: Frontier) -> bool:
        """Whether a copy of it has not had its turn yet."""
        return self.highest > frontier.committed or self.far_end > frontier.committed_far

    def add(self, copy: Entry) -> None:
        """Take in another copy: what is unmarked counts for certain, and who tells of what came before is believed."""
        told = max(self.entry, copy, key=_says)
        spec = self.entry.spec or copy.spec
        self.entry = msgspec.structs.replace(told, verify=self.entry.verify and copy.verify, spec=spec)


def _says(entry: Entry) -> tuple[bool, bool, int]:
    """Of two owners who saw the occurrence before differently, the one who dispatched it, or more, is right."""
    return entry.previous > 0, not entry.skipped, -entry.chosen


class Traces:
    """Reads the traces of one schedule.

    Args:
        store: holds the levels.
        levels: its geometry.
        persistence: repeats reads.
        schedule_id: whose.
        deadline: gives the instant, on the monotonic clock, until which the next reads may be repeated.
    """

    def __init__(
        self,
        store: Store,
        levels: Levels,
        persistence: Persistence,
        schedule_id: str,
        deadline: Callable[[], Awaitable[int]],
    ) -> None:
        self._store = store
        self._levels = levels
        self._persistence = persistence
        self._schedule_id = schedule_id
        self._deadline = deadline
        self.found: dict[Identity, Trace] = {}

    async def read(self, level: Level, after: int, through: int) -> None:
        """Read every partition of a level that may hold positions in (after, through], ms UTC."""
        buckets = self._levels.buckets_with(level, self._schedule_id, after, through)
        while part := list(islice(buckets, READ_AT_ONCE)):
            deadline = await self._deadline()
            await asyncio.gather(*(self._read_bucket(bucket, deadline) for bucket in part))

    def chains(self) -> dict[int, list[Trace]]:
        """The traces of occurrences by the rule, by version, each chain in order."""
        chains: dict[int, list[Trace]] = {}
        for trace in self._of_kind({Kind.ARM}):
            chains.setdefault(trace.entry.version, []).append(trace)
        for chain in chains.values():
            chain.sort(key=lambda trace: trace.entry.scheduled_for)
        return chains

    def triggered(self) -> Iterable[Trace]:
        """The traces of triggers."""
        return self._of_kind({Kind.TRIGGER})

    def _of_kind(self, kinds: set[Kind]) -> Iterator[Trace]:
        return (trace for trace in self.found.values() if trace.entry.kind in kinds)

    async def _read_bucket(self, bucket: Bucket, deadline: int) -> None:
        async def read() -> list[tuple[int, Entry]]:
            pages = self._store.read_packs(bucket)
            return [found async for page in pages for row in page for found in self._mine(row)]

        for position, entry in await self._persistence.until_answered(read, deadline):
            self._take(bucket, position, entry)

    def _mine(self, row: PackRow) -> list[tuple[int, Entry]]:
        try:
            entries = decode_pack(row.body)
        except Undecodable:
            return []  # Its owner keeps it as a dead letter; whose entries it held, nobody can say.
        mine = (entry for entry in entries if entry.schedule_id == self._schedule_id and entry.has_schedule)
        return [(row.position, msgspec.structs.replace(entry, payload=b"")) for entry in mine]

    def _take(self, bucket: Bucket, position: int, entry: Entry) -> None:
        identity = entry.version, entry.scheduled_for, entry.request
        trace = self.found.get(identity)
        if trace is None:
            trace = self.found[identity] = Trace(entry)
        else:
            trace.add(entry)
        if bucket.level is Level.FAR:
            trace.far_end = max(trace.far_end, self._levels.end(Level.FAR, bucket.start))
        else:
            # On minute a pack lies at its lowest due, an entry at its own.
            trace.highest = max(trace.highest, entry.due if bucket.level is Level.MINUTE else position)
