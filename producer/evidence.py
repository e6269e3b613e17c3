"""Reading what a schedule's occurrences have left behind, in an order in which nothing can hide.

Row, then frontier, then entries: entries are never deleted, so one that waited when the frontier was read is still
there, wherever the chain has gone meanwhile. What waits lies beyond committed: on near within the longest delay that
parking or verification gives, on minute at the due of the next occurrence, on far in its day.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date
from functools import partial

import msgspec

from tocsin.producer.arming import entry_due_from
from tocsin.producer.occurrences import Evidence
from tocsin.producer.persistence import Persistence
from tocsin.producer.traces import Traces
from tocsin.schema.levels import Level, Levels
from tocsin.schema.pages import next_page
from tocsin.schema.schedules import ScheduleRow, State
from tocsin.schema.store import PlacedMarker, Store
from tocsin.schema.timing import Timing


class EvidenceReader:
    """Reads about one schedule.

    Args:
        store: holds it.
        levels: the store's geometry.
        persistence: repeats reads.
        deadline: gives the instant, on the monotonic clock, until which the next reads may be repeated.
    """

    def __init__(
        self, store: Store, levels: Levels, persistence: Persistence, deadline: Callable[[], Awaitable[int]]
    ) -> None:
        self._store = store
        self._levels = levels
        self._timing = levels.timing
        self._persistence = persistence
        self._deadline = deadline

    async def read(self, row: ScheduleRow, dates: frozenset[date], start: int, now: int) -> Evidence:
        """All there is about occurrences nominal from `start` on, and about the one that waits.

        Args:
            row: read serially, before.
            dates: those of its calendars.
            start: ms UTC; nothing older than retention is looked for.
            now: by the store's clock, ms UTC.
        """
        shard_range = self._levels.shard_range(row.schedule_id)
        ask = partial(self._store.read_frontier, shard_range)
        frontier = await self._persistence.until_answered(ask, await self._deadline())
        traces = Traces(self._store, self._levels, self._persistence, row.schedule_id, self._deadline)
        first = max(min(start, frontier.committed), now - self._timing.retention_ms)
        through = now + _delay_ms_max(self._timing)
        await traces.read(Level.NEAR, first - self._timing.tick_ms, through)
        await traces.read(Level.MINUTE, first - 1, through)
        await traces.read(Level.FAR, first - 1, now)
        as_active = msgspec.structs.replace(row, state=State.ACTIVE)
        for instant in (frontier.committed + 1, now + 1):
            following = entry_due_from(as_active, instant)
            if following is not None and following.due > now:
                await self._read_ahead(traces, following.due, now)
        chains = traces.chains()
        changed = any(version != row.version for version in chains) or row.replaced
        return Evidence(
            row=row,
            frontier=frontier,
            chains=chains,
            triggered=tuple(traces.triggered()),
            letters=await self._letters(row.schedule_id, shard_range, first, now),
            markers=await self._markers(row, shard_range, through) if changed else (),
            dates=dates,
            commit_ms=self._timing.commit_limit_ms + self._timing.undecided_ms,
        )

    async def _read_ahead(self, traces: Traces, due: int, now: int) -> None:
        """Where something due then may wait."""
        await traces.read(Level.MINUTE, due - 1, due)
        if due < now + self._timing.far_limit_ms - self._timing.day_ms:
            await traces.read(Level.FAR, due - 1, due)
        else:
            # Too far for a place of its own: its pointer moves on as far as it may, from wherever it was put first.
            await traces.read(Level.FAR, now, now + self._timing.far_limit_ms + self._timing.day_ms)

    async def _letters(self, schedule_id: str, shard_range: int, after: int, through: int) -> dict[str, str]:
        """The reasons of its dead letters, by occurrence key."""
        pages = self._store.read_dead_letters(shard_range, after, through)
        reasons: dict[str, str] = {}
        while page := await self._persistence.until_answered(partial(next_page, pages), await self._deadline()):
            mine = (letter for letter in page if letter.occurrence_key.rpartition("@")[0] == schedule_id)
            reasons |= {letter.occurrence_key: letter.reason for letter in mine}
        return reasons

    async def _markers(self, row: ScheduleRow, shard_range: int, through: int) -> list[PlacedMarker]:
        """Its change markers, from a day before the oldest change that the row remembers.

        A marker lies where near was sealed, not at the instant of its change: earlier where no dispatcher ran.
        """
        oldest = min(row.version, *(version for version, _ in row.replaced)) // 1000 if row.replaced else row.created_at
        longest_ms = self._timing.marker_limit_ms + self._timing.retention_ms
        pages = self._store.read_markers(shard_range, max(oldest - self._timing.day_ms, through - longest_ms), through)
        found: list[PlacedMarker] = []
        while page := await self._persistence.until_answered(partial(next_page, pages), await self._deadline()):
            found += [placed for placed in page if placed.marker.schedule_id == row.schedule_id]
        return found


def _delay_ms_max(timing: Timing) -> int:
    """How far beyond now something that fell due can wait on near."""
    undecided_ms = timing.undecided_ms << (timing.undecided_tries_max - 1)
    return max(timing.park_ms_max, undecided_ms) + timing.margin_ms_max + timing.tick_ms
