"""What callers get back: schedules and changes, frozen, with timezone-aware times."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Protocol

from tocsin.producer.arming import entry_due_from
from tocsin.schema.entries import Kind
from tocsin.schema.instants import to_datetime
from tocsin.schema.recurrence import AnyRecurrence, excluded
from tocsin.schema.schedules import CatchUp, ScheduleRow, State, decode_spec


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule as it is stored now. All times are UTC."""

    schedule_id: str
    version: int
    state: State
    recurrence: AnyRecurrence
    topic: str
    payload: bytes
    content_type: str | None
    headers: dict[str, str]
    partition_key: str | None
    start: datetime | None
    until: datetime | None
    jitter: timedelta
    catch_up: CatchUp
    max_catch_up: int
    expires_after: timedelta | None
    exclude: tuple[str, ...]
    tenant: str
    tags: frozenset[str]
    definition: str | None
    note: str
    created_at: datetime
    updated_at: datetime
    #: When the next occurrence is due, jitter included; None where there is none. Derived, not stored.
    next_at: datetime | None


class ChangeOutcome(enum.Enum):
    """What an acknowledged change means for occurrences that were pending."""

    #: None of the replaced version's later occurrences will be dispatched, nor was one on its way.
    PREVENTED = "prevented"
    #: Some were due just now and may have been dispatched; `Change.uncertain` names them where they can be named.
    POSSIBLY_DISPATCHED = "possibly_dispatched"


@dataclass(frozen=True, kw_only=True)
class Change:
    """The answer to update, pause, resume and cancel."""

    schedule: Schedule
    outcome: ChangeOutcome
    #: Occurrence keys that may have been dispatched.
    uncertain: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Recall:
    """The answer to recall: a Change without a schedule, for a timer has none; so none need ever have been sent."""

    outcome: ChangeOutcome
    #: The timer's occurrence key, where it may have been dispatched.
    uncertain: tuple[str, ...]
    schedule: None = None


class OccurrenceVersion(Protocol):
    """Of which version of which schedule an occurrence is; what a consumer received is one."""

    @property
    def schedule_id(self) -> str:
        """Whose it is."""
        ...

    @property
    def version(self) -> int:
        """Which version armed it."""
        ...

    @property
    def kind(self) -> Kind:
        """A timer has no schedule."""
        ...


#: Occurrences on excluded dates that are passed over in search of one that is not; a year of minutes.
EXCLUDED_MAX = 527_040


def due_times(row: ScheduleRow, now: int, dates: Collection[date]) -> Iterator[int]:
    """When a schedule is due from `now` on, ms UTC, but for the dates excluded; nothing where it is not active."""
    following = entry_due_from(row, now)
    nominal = None if following is None else following.scheduled_for
    spec = decode_spec(row.spec)
    passed_over = 0
    while nominal is not None and passed_over < EXCLUDED_MAX:
        if dates and excluded(dates, nominal, spec.recurrence.zone_name):
            passed_over += 1
        else:
            passed_over = 0
            yield spec.due_of(row.schedule_id, nominal)
        nominal = spec.next_after(nominal)


def schedule_of(row: ScheduleRow, now: int, dates: Collection[date] = ()) -> Schedule:
    """The public form of a row, with the next due after `now` (ms UTC) that is on none of the dates excluded."""
    spec = decode_spec(row.spec)
    following = next(due_times(row, now, dates), None)
    return Schedule(
        schedule_id=row.schedule_id,
        version=row.version,
        state=row.state,
        recurrence=spec.recurrence,
        topic=spec.topic,
        payload=row.payload,
        content_type=spec.content_type,
        headers=dict(spec.headers),
        partition_key=spec.partition_key,
        start=None if spec.start is None else to_datetime(spec.start),
        until=None if spec.until is None else to_datetime(spec.until),
        jitter=timedelta(milliseconds=spec.jitter_ms),
        catch_up=spec.catch_up,
        max_catch_up=spec.max_catch_up,
        expires_after=None if spec.expires_after_ms is None else timedelta(milliseconds=spec.expires_after_ms),
        exclude=spec.exclude,
        tenant=row.tenant,
        tags=row.tags,
        definition=spec.definition,
        note=row.note,
        created_at=to_datetime(row.created_at),
        updated_at=to_datetime(row.updated_at),
        next_at=None if following is None else to_datetime(following),
    )
