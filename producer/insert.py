"""The insert rule: how every writer, the dispatcher's re-arm included, puts an occurrence where its owner will see it.

    1. Write the pack. Timed out: the same pack again, until it is acknowledged.
    2. After the acknowledgement read the frontier of the range.
       Whoever repeats history names its *source*, the highest position at which it read a copy. Where committed has
       reached the source, someone else has done it: stop.
    3. sealed(level) < end of the place: finished.
    4. Else the place may have been read before our pack was there. Demote: the same entries, marked verify, one level
       down (near: further on), and again from 1.

Why nothing is lost: an owner reads a place only after its write of `sealed` was acknowledged by a majority. If its
read missed our pack, our acknowledgement came after the read began, hence after `sealed` was acknowledged; our read of
the frontier, begun later still, then meets that value in at least one replica of its majority, and we demote. Nobody's
clock is part of this argument. What a clock does decide is only the first guess of the level.

Order matters: reading the frontier before the acknowledgement, taking a timeout for success, or reading fewer than a
majority each breaks it.

Near positions come from the range's position clock (see frontiers.py) plus a margin that doubles with each try, so a
slow writer ends on a position far enough ahead. Entries of one near tick share a pack, at the lowest of their
positions: a position says when an entry is read, its due when it is dispatched.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tocsin.producer.frontiers import Frontiers
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import Clock, StoreClock
from tocsin.schema.entries import Entry, Kind, encode_pack, pack
from tocsin.schema.errors import StoreTimeout
from tocsin.schema.levels import Bucket, Level, Levels
from tocsin.schema.schedules import Marker
from tocsin.schema.store import Frontier, PackRow, Store
from tocsin.schema.timing import Timing


class Placement(NamedTuple):
    """An entry on its way to a level."""

    entry: Entry
    #: The highest position at which a copy was read; None where nobody can have done this before.
    source: int | None = None
    #: Not nearer than this, beyond the position clock and margin; only on near.
    delay_ms: int = 0
    #: Where to try first; None: by its due.
    level: Level | None = None


class Place(NamedTuple):
    """Where an entry waits, and the frontier that was seen after it was written there."""

    level: Level
    position: int
    frontier: Frontier


class _Try(NamedTuple):
    """One entry in one round: which placement it belongs to, and where it goes this time."""

    which: int
    entry: Entry
    level: Level
    position: int = 0


class WriteLatency:
    """The 99th percentile of recent writes, in ms: what a near margin has to outlast."""

    #: Older writes say nothing: one stall would else keep a quiet process' margins wide for hours.
    RECENT_MS = 30_000

    def __init__(self) -> None:
        self._recent: deque[tuple[int, int]] = deque(maxlen=128)

    def took(self, duration_ms: int, now: int) -> None:
        """Remember one write."""
        self._recent.append((now, duration_ms))

    def p99_ms(self, now: int) -> int:
        """0 before the first write."""
        durations = sorted(duration_ms for at, duration_ms in self._recent if now - at <= self.RECENT_MS)
        return durations[len(durations) * 99 // 100] if durations else 0


class Inserter:
    """Writes entries and change markers by the insert rule.

    Args:
        store: where they go.
        levels: the store's geometry.
        store_clock: chooses the first level; no correctness rests on it.
        clock: measures writes and deadlines.
        frontiers: shared reads of the frontier.
        new_id: a fresh pack id each call, 16 bytes.
        marks_late: whatever is placed later than its due is marked verify, demoted or not: the rule of dispatchers,
            whose copies may be old by then.
        demoted: hears from which level how many entries were demoted.
    """

    def __init__(
        self,
        store: Store,
        levels: Levels,
        *,
        store_clock: StoreClock,
        clock: Clock,
        frontiers: Frontiers,
        new_id: Callable[[], bytes],
        marks_late: bool,
        demoted: Callable[[Level, int], None] = lambda _level, _count: None,
    ) -> None:
        self._demoted = demoted
        self._store = store
        self._levels = levels
        self._timing: Timing = levels.timing
        self._store_clock = store_clock
        self._clock = clock
        self._frontiers = frontiers
        self._new_id = new_id
        self._marks_late = marks_late
        self._persistence = Persistence(clock, levels.timing)
        self._latency = WriteLatency()

    async def insert(
        self, placements: Sequence[Placement], *, deadline: int | None = None, cascade: bool = False
    ) -> list[Place | None]:
        """Put each entry on a level, in the order given; None: its source is committed, someone else has done it.

        Args:
            placements: what to insert, of any ranges.
            deadline: on the monotonic clock, in ms; None: never give up.
            cascade: the sources are days, compared with committed_far.

        Raises:
            StoreUnavailable, StoreTimeout: the deadline passed; whether the entries hold is not known.
        """
        ranges: defaultdict[int, list[int]] = defaultdict(list)
        for index, placement in enumerate(placements):
            ranges[self._levels.shard_range(placement.entry.schedule_id)].append(index)
        places: list[Place | None] = [None] * len(placements)

        async def insert_in(shard_range: int, indexes: list[int]) -> None:
            mine = [placements[index] for index in indexes]
            found = await self._insert_in_range(shard_range, mine, deadline, cascade=cascade)
            for index, place in zip(indexes, found, strict=True):
                places[index] = place

        await asyncio.gather(*(insert_in(shard_range, indexes) for shard_range, indexes in ranges.items()))
        return places

    async def insert_marker(
        self, shard_range: int, marker_at: Callable[[int], Marker], *, deadline: int | None = None
    ) -> tuple[Place, Marker]:
        """Put a change marker on near by the same rule; a demotion moves it further on and marks nothing.

        Args:
            shard_range: the range of the schedule.
            marker_at: makes the marker for a position; how long it must live depends on where it lies.
            deadline: on the monotonic clock, in ms; None: never give up.
        """
        margin_ms = self._first_margin_ms()
        while True:
            base = await self._position_clock(shard_range, deadline)
            position = base + margin_ms
            marker = marker_at(position)
            write = partial(self._store.write_marker, position, shard_range, marker)
            await self._persistence.until_answered(write, deadline)
            frontier = await self.read_frontier(shard_range, deadline=deadline)
            if frontier.sealed_near < position:
                return Place(Level.NEAR, position, frontier), marker
            self._require_time(deadline)
            margin_ms = min(2 * margin_ms, self._timing.margin_ms_max)

    async def read_frontier(self, shard_range: int, *, deadline: int | None = None) -> Frontier:
        """The registers of a range, by a read that begins after this call and is repeated until it is answered."""
        return await self._persistence.until_answered(partial(self._frontiers.read, shard_range), deadline)

    async def _insert_in_range(
        self, shard_range: int, placements: Sequence[Placement], deadline: int | None, *, cascade: bool
    ) -> list[Place | None]:
        places: list[Place | None] = [None] * len(placements)
        now = self._store_clock.now_ms()
        margin_ms = self._first_margin_ms()
        tries = [
            _Try(index, entry, level or self._levels.choose(entry.due, now))
            for index, (entry, _, _, level) in enumerate(placements)
        ]
        while tries:
            written = await self._write(shard_range, tries, placements, margin_ms, deadline)
            frontier = await self.read_frontier(shard_range, deadline=deadline)
            committed = frontier.committed_far if cascade else frontier.committed
            if any(level is Level.NEAR for _, _, level, _ in written):
                margin_ms = min(2 * margin_ms, self._timing.margin_ms_max)
            tries = []
            sealed: Counter[Level] = Counter()
            for index, entry, level, position in written:
                source = placements[index].source
                if source is not None and committed >= source:
                    continue
                if frontier.sealed(level) < self._levels.end(level, position):
                    places[index] = Place(level, position, frontier)
                else:
                    tries.append(_Try(index, entry.marked(), level.below))
                    sealed[level] += 1
            for level, count in sealed.items():
                self._demoted(level, count)
            if tries:
                self._require_time(deadline)
        return places

    async def _write(
        self,
        shard_range: int,
        tries: Sequence[_Try],
        placements: Sequence[Placement],
        margin_ms: int,
        deadline: int | None,
    ) -> list[_Try]:
        """Write every entry, grouped into packs; returns only after each pack is acknowledged."""
        near = None
        if any(attempt.level is Level.NEAR for attempt in tries):
            near = await self._position_clock(shard_range, deadline) + margin_ms
        farthest = self._store_clock.now_ms() + self._timing.far_limit_ms
        groups: defaultdict[tuple[Bucket, int], list[_Try]] = defaultdict(list)
        for index, entry, level, _ in tries:
            if level is Level.NEAR:
                assert near is not None  # noqa: S101 — set above where any entry is near
                position = max(entry.due, near + placements[index].delay_ms)
                late = self._marks_late and position > entry.due
                tick = position // self._timing.tick_ms
                attempt = _Try(index, entry.marked() if late else entry, level, position)
            else:
                position = min(entry.due, farthest)
                tick = 0
                if entry.kind == Kind.RECALL:
                    # First in its bucket: however many pages that has, it is read before the timer it takes back.
                    position = self._levels.bucket(level, position, entry.schedule_id).start
                attempt = _Try(index, entry, level, position)
            groups[self._levels.bucket(level, position, entry.schedule_id), tick].append(attempt)
        written: list[_Try] = []
        packs: list[tuple[Bucket, PackRow]] = []
        for (bucket, _), group in groups.items():
            group.sort(key=_by_due)
            remaining = iter(group)
            for entries in pack(attempt.entry.as_stored(bucket.level) for attempt in group):
                members = list(itertools.islice(remaining, len(entries)))
                lowest = min(attempt.position for attempt in members)
                packs.append((bucket, PackRow(lowest, self._new_id(), encode_pack(entries))))
                shared = lowest if bucket.level is Level.NEAR else None
                written += members if shared is None else [attempt._replace(position=shared) for attempt in members]
        await asyncio.gather(*(self._write_pack(bucket, row, deadline) for bucket, row in packs))
        return written

    async def _write_pack(self, bucket: Bucket, row: PackRow, deadline: int | None) -> None:
        began = self._clock.monotonic_ms()
        await self._persistence.until_answered(partial(self._store.write_pack, bucket, row), deadline)
        now = self._clock.monotonic_ms()
        self._latency.took(now - began, now)

    async def _position_clock(self, shard_range: int, deadline: int | None) -> int:
        return await self._persistence.until_answered(partial(self._frontiers.position_clock, shard_range), deadline)

    def _require_time(self, deadline: int | None) -> None:
        """A client stops at its deadline even where every call was answered, and every place sealed before."""
        if deadline is not None and self._clock.monotonic_ms() > deadline:
            raise StoreTimeout("every place was sealed before the write to it was acknowledged; repeat the call.")

    def _first_margin_ms(self) -> int:
        margin_ms = max(self._timing.margin_ms, 4 * self._latency.p99_ms(self._clock.monotonic_ms()))
        return min(margin_ms, self._timing.margin_ms_max)


def _by_due(attempt: _Try) -> int:
    return attempt.entry.due
