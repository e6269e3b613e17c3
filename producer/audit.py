"""The audit: a paced walk over `schedules` that makes the levels agree with it.

For each schedule it arms what should be armed, by the rule of arming.py, harmless where it is armed already; and it
repeats the change marker of a change whose replaced chain may still be about, so that what should have ended ends. It
is what heals a store after an outage longer than retention, a restore, a replaced node, or new zone rules. And it takes
leave of schedules that ended long ago: `ended_kept_ms` after the last occurrence or the cancel their rows are removed,
by a conditional write, so that one who changed them meanwhile wins. A time to live would not do: rows are inserted and
updated conditionally, an instant may lie beyond the longest time to live that Cassandra takes (20 years), and an update
that shortens it leaves the key behind. By then nothing of the schedule waits anywhere, and the id may be used again.

Three ways to walk:

    everything   from now on, `walk`: what is due is what is armed
    what is owed by ranges that have not been dispatched for about as long as rows are kept, `walk_owed`: the first
                 occurrence due after the range's `committed` is armed, although it is long past, and its schedule's
                 catch-up policy decides. It only counts while committed stands still
    one zone     after an upgrade of the zone data, `walk` with a zone: schedules on that zone's clock get a new
                 version, so that what waits by the old rules is dropped and what the new ones say is armed

Ids are walked in segments of the store's own key order; the rows are read again serially before anything is written,
so an old page never arms an old version.

Committed speaks of positions, and what was demoted or late lies at one beyond its due. So what is owed is looked for
from `misfire_grace_ms` before committed on: some of it was dispatched before, and is again. What a failing topic had
kept parked for longer than that is owed from there on only.

A schedule that was *updated* within such an outage is owed from the update on: of what it was before only the version
and its end are kept, not the rule.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from tocsin.producer.arming import arm_again, entry_due_from
from tocsin.producer.insert import Inserter
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import Clock, StoreClock
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.levels import Levels
from tocsin.schema.schedules import Marker, ScheduleRow, State, decode_spec
from tocsin.schema.store import Store

#: Schedules read and armed at once.
BATCH = 200

#: Gives a schedule a new version, by the procedure of every change.
Renewal = Callable[[ScheduleRow], Awaitable[None]]


@dataclass
class AuditReport:
    """What a walk has met so far."""

    #: By tenant and state.
    checked: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Occurrences inserted, by tenant; most of them waited already.
    armed: Counter[str] = field(default_factory=Counter)
    #: Change markers repeated, by tenant: the chain of a replaced version may stray.
    strays: Counter[str] = field(default_factory=Counter)
    #: Schedules of the zone that have a new version, by tenant.
    moved: Counter[str] = field(default_factory=Counter)
    #: Schedules removed, by tenant: they had ended long ago.
    removed: Counter[str] = field(default_factory=Counter)
    #: Schedules whose rule a newer release wrote and this one cannot read, by tenant; they are left alone.
    unreadable: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """Schedules checked."""
        return self.checked.total()


Told = Callable[[AuditReport], None]


class Audit:
    """Walks schedules and arms them again.

    Args:
        store: holds them.
        levels: the store's geometry.
        inserter: the insert rule.
        store_clock: says what is still to come.
        clock: paces the walk.
        per_second: schedules a second at most.
    """

    def __init__(
        self,
        store: Store,
        levels: Levels,
        inserter: Inserter,
        *,
        store_clock: StoreClock,
        clock: Clock,
        per_second: int,
    ) -> None:
        self._store = store
        self._levels = levels
        self._inserter = inserter
        self._store_clock = store_clock
        self._clock = clock
        self._per_second = per_second
        self._persistence = Persistence(clock, levels.timing)

    async def walk(
        self,
        segment: int,
        segments: int,
        report: AuditReport,
        *,
        zone: str | None = None,
        renew: Renewal | None = None,
        progress: Told | None = None,
    ) -> AuditReport:
        """Audit one of so many segments.

        Args:
            segment: which, from 0.
            segments: of how many.
            report: grows as it goes on.
            zone: only schedules on this zone's clock.
            renew: what moves a schedule of that zone; None: they are armed like any other.
            progress: told after each batch.
        """

        async def audit(ids: Sequence[str]) -> int:
            rows = [row for row in await self._rows(ids, report) if zone is None or _zone_of(row) == zone]
            moving = [row for row in rows if renew is not None and row.state is State.ACTIVE]
            if renew is not None:
                await asyncio.gather(*map(renew, moving))
            report.moved.update(row.tenant for row in moving)
            report.checked.update((row.tenant, row.state.value) for row in moving)
            await self._audit([row for row in rows if row not in moving], report)
            return len(ids)

        await self._in_batches(segment, segments, audit, lambda: progress(report) if progress is not None else None)
        return report

    async def walk_owed(
        self, segment: int, segments: int, report: AuditReport, *, committed: Mapping[int, int]
    ) -> AuditReport:
        """Arm what schedules of these ranges owe since their range's `committed` (ms UTC), in one segment."""

        async def audit(ids: Sequence[str]) -> int:
            theirs = [schedule_id for schedule_id in ids if self._levels.shard_range(schedule_id) in committed]
            rows = await self._rows(theirs, report)
            report.checked.update((row.tenant, row.state.value) for row in rows)
            for shard_range, (tenant, together) in _grouped(rows, self._levels):
                held = committed[shard_range]
                owed_from = held + 1 - self._levels.timing.misfire_grace_ms
                report.armed[tenant] += await arm_again(self._inserter, together, owed_from, source=held + 1)
            return len(theirs)

        await self._in_batches(segment, segments, audit, lambda: None)
        return report

    async def _in_batches(
        self, segment: int, segments: int, audit: Callable[[Sequence[str]], Awaitable[int]], told: Callable[[], None]
    ) -> None:
        """Audit a segment batch by batch, at the rate of the schedules that were looked at."""
        pages = self._store.walk_schedules(segment, segments)
        while (ids := await self._persistence.until_answered(lambda: anext(pages, None))) is not None:
            for start in range(0, len(ids), BATCH):
                began = self._clock.monotonic_ms()
                count = await audit(ids[start : start + BATCH])
                told()
                spent = self._clock.monotonic_ms() - began
                await self._clock.sleep_ms(max(0, count * 1000 // self._per_second - spent))

    async def _rows(self, ids: Sequence[str], report: AuditReport) -> Sequence[ScheduleRow]:
        rows = await self._persistence.until_answered(lambda: self._store.read_schedules(ids)) if ids else {}
        readable = [row for row in rows.values() if _is_readable(row)]
        report.unreadable.update(row.tenant for row in rows.values() if not _is_readable(row))
        return readable

    async def _audit(self, rows: Sequence[ScheduleRow], report: AuditReport) -> None:
        now = self._store_clock.now_ms()
        ended = [row for row in rows if has_ended(row, now - self._levels.timing.ended_kept_ms)]
        if ended:
            await asyncio.gather(*(self._remove(row) for row in ended))
            report.removed.update(row.tenant for row in ended)
            rows = [row for row in rows if row not in ended]
        report.checked.update((row.tenant, row.state.value) for row in rows)
        for row in rows:
            if row.replaced and row.until >= now:
                await self._end_replaced(row)
                report.strays[row.tenant] += 1
        for _, (tenant, together) in _grouped(rows, self._levels):
            report.armed[tenant] += await arm_again(self._inserter, together, now)

    async def _remove(self, row: ScheduleRow) -> None:
        """Remove the row as it was read; where somebody has changed it meanwhile it stays."""
        remove = partial(self._store.remove_schedule, row.schedule_id, row.version)
        await self._persistence.until_answered(remove)

    async def _end_replaced(self, row: ScheduleRow) -> None:
        def marker_at(position: int) -> Marker:
            return Marker(
                schedule_id=row.schedule_id,
                version=row.version,
                from_ms=row.replaced[0][1],
                until_ms=max(row.until, position + self._levels.timing.marker_slack_ms),
                verify=False,
            )

        await self._inserter.insert_marker(self._levels.shard_range(row.schedule_id), marker_at)


def has_ended(row: ScheduleRow, by: int) -> bool:
    """Whether a schedule ended before this instant (ms UTC): cancelled, or with no occurrence due from it on."""
    if row.updated_at >= by or row.until >= by:
        return False
    if row.state is State.CANCELLED:
        return True
    return row.state is State.ACTIVE and entry_due_from(row, by) is None


def _grouped(rows: Iterable[ScheduleRow], levels: Levels) -> Iterator[tuple[int, tuple[str, list[ScheduleRow]]]]:
    """Rows by shard range and tenant."""
    groups: dict[tuple[int, str], list[ScheduleRow]] = {}
    for row in rows:
        groups.setdefault((levels.shard_range(row.schedule_id), row.tenant), []).append(row)
    for (shard_range, tenant), together in groups.items():
        yield shard_range, (tenant, together)


def _is_readable(row: ScheduleRow) -> bool:
    try:
        decode_spec(row.spec)
    except (msgspec.DecodeError, InvalidSchedule):
        return False
    return True


def _zone_of(row: ScheduleRow) -> str:
    return decode_spec(row.spec).recurrence.zone_name
