"""Which Cassandra rows are which records.

The order of a tuple is that of the columns in its statement (`cassandra_statements`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from tocsin.schema.schedules import Calendar, Marker, ScheduleRow, State
from tocsin.schema.store import DeadLetter, Lease, PlacedMarker


def schedule_values(row: ScheduleRow) -> tuple[Any, ...]:
    """What the statements bind for every column but the id, in the order of the record."""
    columns = msgspec.structs.asdict(row) | {
        "state": row.state.value,
        "replaced": list(row.replaced),
        "spec": row.spec.decode(),
    }
    del columns["schedule_id"]
    return tuple(columns.values())


def schedule_of(row: Sequence[Any]) -> ScheduleRow:
    """The record of a row of `schedules`."""
    columns = dict(zip(ScheduleRow.__struct_fields__, row, strict=True))
    columns |= {
        "state": State(columns["state"]),
        "replaced": tuple(tuple(pair) for pair in columns["replaced"] or ()),
        "spec": columns["spec"].encode(),
        "tags": frozenset(columns["tags"] or ()),
    }
    return ScheduleRow(**columns)


def lease_of(row: Sequence[Any]) -> Lease:
    """The record of a row of `leases`; no text is no owner, since no null is ever bound."""
    shard_range, owner, epoch, token = row
    return Lease(shard_range=shard_range, owner=owner or None, epoch=epoch, token=token)


def marker_of(row: Sequence[Any]) -> PlacedMarker:
    """The record of a row of `changes`."""
    position, schedule_id, version, from_ms, until_ms, verify = row
    marker = Marker(schedule_id=schedule_id, version=version, from_ms=from_ms, until_ms=until_ms, verify=verify)
    return PlacedMarker(position, marker)


def dead_letter_of(row: Sequence[Any]) -> DeadLetter:
    """The record of a row of `dead_letters`."""
    return DeadLetter(**dict(zip(DeadLetter.__struct_fields__, row, strict=True)))


def calendar_values(calendar: Calendar) -> tuple[Any, ...]:
    """What the statements bind for every column but the name."""
    return {day.isoformat() for day in calendar.dates}, calendar.version, calendar.token


def calendar_of(row: Sequence[Any]) -> Calendar:
    """The record of a row of `calendars`."""
    name, dates, version, token = row
    days = frozenset(date.fromisoformat(day) for day in dates or ())
    return Calendar(name=name, dates=days, version=version, token=token)
