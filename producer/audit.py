"""The audit: a paced walk over `schedules` that makes the levels agree with it.

For each schedule it arms what should be armed, by the rule of arming.py, harmless where it is armed already; and it
repeats the change marker of a change whose replaced chain may still be about, so that what should have ended ends. It
is what heals a store after an outage longer than retention, a restore, a replaced node, or new zone rules.

Ids are walked in segments of the store's own key order; the rows are read again serially before anything is written,
so an old page never arms an old version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tocsin.producer.arming import arm_again
from tocsin.producer.insert import Inserter
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import Clock, StoreClock
from tocsin.schema.levels import Levels
from tocsin.schema.schedules import Marker, ScheduleRow
from tocsin.schema.store import Store

#: Schedules read and armed at once.
BATCH = 200


@dataclass
class AuditReport:
    """What a walk has met so far."""

    #: By tenant and state.
    checked: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Occurrences inserted; most of them waited already.
    armed: int = 0
    #: Change markers repeated.
    ended: int = 0

    @property
    def count(self) -> int:
        """Schedules checked."""
        return self.checked.total()


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
        self, segment: int, segments: int, report: AuditReport, *, progress: Callable[[AuditReport], None] | None = None
    ) -> AuditReport:
        """Audit one of so many segments; the report grows as it goes on, and is told after each batch."""
        pages = self._store.walk_schedules(segment, segments)
        while (ids := await self._persistence.until_answered(lambda: anext(pages, None))) is not None:
            for start in range(0, len(ids), BATCH):
                await self._audit(ids[start : start + BATCH], report)
                if progress is not None:
                    progress(report)
        return report

    async def _audit(self, ids: Sequence[str], report: AuditReport) -> None:
        began = self._clock.monotonic_ms()
        rows = await self._persistence.until_answered(lambda: self._store.read_schedules(ids))
        now = self._store_clock.now_ms()
        for row in rows.values():
            report.checked[row.tenant, row.state.value] += 1
            if row.replaced and row.until >= now:
                await self._end_replaced(row)
                report.ended += 1
        report.armed += await arm_again(self._inserter, list(rows.values()), now)
        spent = self._clock.monotonic_ms() - began
        await self._clock.sleep_ms(max(0, len(ids) * 1000 // self._per_second - spent))

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
