"""Which entry a schedule should have waiting, and how to arm it again without harm.

Arming again is what a repeated create and the audit do. The source is the due itself: where committed has reached it,
the occurrence was dispatched and its successor armed, and nothing is left to do. A chain that meets an entry waiting
already ends there, so a second copy never becomes a second chain.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.producer.insert import Inserter, Placement
from tocsin.schema.entries import Entry
from tocsin.schema.instants import SECOND_MS
from tocsin.schema.schedules import ScheduleRow, Spec, State, decode_spec


def entry_for(row: ScheduleRow, spec: Spec, nominal: int, *, previous: int = 0) -> Entry:
    """The entry of one occurrence of a schedule."""
    return Entry(
        schedule_id=row.schedule_id,
        scheduled_for=nominal,
        due=spec.due_of(row.schedule_id, nominal),
        version=row.version,
        previous=previous,
        spec=row.spec,
        payload=row.payload,
    )


def entry_from(row: ScheduleRow, instant: int) -> Entry | None:
    """The schedule's first occurrence at or after the instant; None where it is not active or has none left."""
    if row.state is not State.ACTIVE:
        return None
    spec = decode_spec(row.spec)
    nominal = spec.first_from(max(row.since, instant))
    return None if nominal is None else entry_for(row, spec, nominal)


def entry_due_from(row: ScheduleRow, instant: int) -> Entry | None:
    """The schedule's first occurrence *due* at or after the instant: what jitter holds back is still to come."""
    if row.state is not State.ACTIVE:
        return None
    spec = decode_spec(row.spec)
    nominal = spec.first_from(max(row.since, _held_back_from(spec, instant)))
    while nominal is not None and spec.due_of(row.schedule_id, nominal) < instant:
        nominal = spec.next_after(nominal)
    return None if nominal is None else entry_for(row, spec, nominal)


def _held_back_from(spec: Spec, instant: int) -> int:
    """Where to begin so as to meet whatever jitter holds back: close by, where occurrences are dense.

    An occurrence is due before the next one is nominal, so only the last one before the instant can be held back.
    """
    back_ms = SECOND_MS
    while back_ms < spec.jitter_ms:
        nominal = spec.first_from(instant - back_ms)
        if nominal is not None and nominal < instant:
            return nominal
        back_ms *= 2
    return instant - spec.jitter_ms


async def arm_again(
    inserter: Inserter, rows: Sequence[ScheduleRow], now: int, *, source: int = 0, deadline: int | None = None
) -> int:
    """Arm the first occurrence of each schedule that is due from `now` on; how many were inserted, needed or not.

    `source`, ms UTC, is named where it is above the due: what was due before committed may not have been done by it.
    """
    entries = [entry for row in rows if (entry := entry_due_from(row, now)) is not None]
    if not entries:
        return 0
    placements = [Placement(entry, source=max(entry.due, source)) for entry in entries]
    places = await inserter.insert(placements, deadline=deadline)
    return sum(place is not None for place in places)
