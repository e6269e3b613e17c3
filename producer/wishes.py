"""What callers want of a schedule, one class each; change.py grants them all in the same way.

A wish looks at the current row and says what should become of it, refuses, or recognises the row as its own result:
that is what makes repeating a call with an unknown outcome safe. None of them touches a store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tocsin.producer.change import Draft
from tocsin.producer.definition import NewSchedule, check_occurs, encoded, redefined
from tocsin.schema.errors import InvalidSchedule, ScheduleExists, ScheduleNotFound, VersionConflict
from tocsin.schema.recurrence import Cron, Once
from tocsin.schema.schedules import ScheduleRow, State, decode_spec


@dataclass(frozen=True)
class Create:
    """A schedule that is not there yet."""

    schedule: NewSchedule
    grace_ms: int

    def draft(self, current: ScheduleRow | None, now: int) -> Draft | None:
        """Equal content, whoever wrote it: the result is in place."""
        if current is not None:
            if current.state is State.CANCELLED:
                raise ScheduleExists(current.schedule_id, current, cancelled=True)
            if not _has_content(current, self.schedule, current.created_at):
                raise ScheduleExists(current.schedule_id, current)
            return None
        spec = self.schedule.spec(now)
        since = min(now, spec.recurrence.at_ms) if isinstance(spec.recurrence, Once) else now
        check_occurs(spec, since, now, self.grace_ms)
        state = State.PAUSED if self.schedule.paused else State.ACTIVE
        return _draft(self.schedule, encoded(spec), state, since=since, keeps_before=0)


class Update:
    """A patch: what is not named stays. The new version owns nominal times from now on.

    Args:
        schedule_id: whose.
        changes: the fields of NewSchedule to change.
        grace_ms: how far in the past a single instant may lie.
        expected_version: refuse on any other; None: the version first read.
    """

    def __init__(
        self, schedule_id: str, changes: Mapping[str, Any], *, grace_ms: int, expected_version: int | None = None
    ) -> None:
        self._schedule_id = schedule_id
        self._changes = changes
        self._grace_ms = grace_ms
        self._expected_version = expected_version

    def draft(self, current: ScheduleRow | None, now: int) -> Draft | None:
        """A row that has the wanted content already is the result: saving without a change changes nothing."""
        current = _living(current, self._schedule_id, "updated")
        wanted = redefined(current, self._changes)
        if _has_content(current, wanted, current.updated_at):
            return None
        if self._expected_version is None:
            self._expected_version = current.version
        if current.version != self._expected_version:
            raise VersionConflict(self._schedule_id, self._expected_version, current.version)
        spec = wanted.spec(now)
        if spec.recurrence != decode_spec(current.spec).recurrence:
            check_occurs(spec, now, now, self._grace_ms)
        return _draft(wanted, encoded(spec), current.state, since=now, keeps_before=now)


class Declare:
    """A schedule as its owner declares it, whatever is there: created, updated, or brought back after a cancel.

    What a declaration leaves open stays as it was settled: an `Every` without anchor keeps the one it has, and whether
    the schedule is paused is its operators' affair once it exists.
    """

    def __init__(self, declared: NewSchedule, found: ScheduleRow | None, *, grace_ms: int) -> None:
        self._declared = declared
        self._found = found
        self._grace_ms = grace_ms

    def draft(self, current: ScheduleRow | None, now: int) -> Draft | None:
        """Nothing where the row says so already. Raises VersionConflict where it is not the row found before."""
        found = self._found
        if found is None:
            return Create(self._declared, self._grace_ms).draft(current, now)
        schedule_id = found.schedule_id
        if current is None:
            raise ScheduleNotFound(schedule_id)
        settled = as_settled(self._declared, current)
        cancelled = current.state is State.CANCELLED
        if not cancelled and _has_content(current, settled, current.updated_at):
            return None
        if current.version != found.version:
            raise VersionConflict(schedule_id, found.version, current.version)
        spec = settled.spec(now)
        if cancelled or spec.recurrence != decode_spec(current.spec).recurrence:
            check_occurs(spec, now, now, self._grace_ms)
        state = current.state
        if cancelled:
            state = State.PAUSED if settled.paused else State.ACTIVE
        return _draft(settled, encoded(spec), state, since=now, keeps_before=0 if cancelled else now)


@dataclass(frozen=True)
class Pause:
    """No occurrence until resumed; everything pending is dropped."""

    schedule_id: str
    note: str

    def draft(self, current: ScheduleRow | None, now: int) -> Draft | None:
        """A paused schedule is the result."""
        row = _living(current, self.schedule_id, "paused")
        return None if row.state is State.PAUSED else _same(row, State.PAUSED, now, note=self.note or row.note)


@dataclass(frozen=True)
class Resume:
    """Goes on, with nominal times from `resume_from` (ms UTC; None: now) on; earlier ones were never owed."""

    schedule_id: str
    resume_from: int | None
    grace_ms: int

    def draft(self, current: ScheduleRow | None, now: int) -> Draft | None:
        """An active schedule is the result."""
        row = _living(current, self.schedule_id, "resumed")
        if row.state is State.ACTIVE:
            return None
        since = now if self.resume_from is None else self.resume_from
        if since > now:
            raise InvalidSchedule("resume_from", since, "lies in the future; resume then, or update start")
        check_occurs(decode_spec(row.spec), since, now, self.grace_ms)
        return _same(row, State.ACTIVE, since, note=row.note)


@dataclass(frozen=True)
class Cancel:
    """No occurrence any more; the row stays for audit."""

    schedule_id: str

    def draft(self, current: ScheduleRow | None, now: int) -> Draft | None:
        """A cancelled schedule is the result."""
        if current is None:
            raise ScheduleNotFound(self.schedule_id)
        return None if current.state is State.CANCELLED else _same(current, State.CANCELLED, now, note=current.note)


@dataclass(frozen=True)
class Renew:
    """The same schedule in a new version: what waits by the rules of before no longer counts.

    For new zone rules: the occurrence that waits stands where the old ones put it, and nobody knows the old ones.
    """

    schedule_id: str
    #: ms UTC; a version made since is the result.
    asked_at: int

    def draft(self, current: ScheduleRow | None, now: int) -> Draft | None:
        """The new version owns nominal times from now on, like an update that changes nothing."""
        if current is None:
            raise ScheduleNotFound(self.schedule_id)
        if current.state is not State.ACTIVE or current.updated_at >= self.asked_at:
            return None
        return _same(current, current.state, now, note=current.note)._replace(keeps_before=now)


def as_settled(declared: NewSchedule, row: ScheduleRow) -> NewSchedule:
    """The declaration with what it leaves open, an anchor, taken from the row where that differs in nothing else."""
    existing, recurrence = decode_spec(row.spec).recurrence, declared.recurrence
    if isinstance(recurrence, Once | Cron) or isinstance(existing, Once | Cron) or declared.start is not None:
        return declared
    if recurrence.anchor is None and msgspec.structs.replace(existing, anchor=None) == recurrence:
        return dataclasses.replace(declared, recurrence=existing)
    return declared


def _has_content(row: ScheduleRow, wanted: NewSchedule, resolved_at: int) -> bool:
    """Whether the row is what this definition gives when it is resolved at that instant."""
    return (
        encoded(wanted.spec(resolved_at)) == row.spec
        and wanted.payload == row.payload
        and frozenset(wanted.tags) == row.tags
        and wanted.note == row.note
    )


def _draft(wanted: NewSchedule, spec: bytes, state: State, *, since: int, keeps_before: int) -> Draft:
    return Draft(
        state=state,
        spec=spec,
        payload=wanted.payload,
        tenant=wanted.tenant,
        topic=wanted.topic,
        tags=frozenset(wanted.tags),
        note=wanted.note,
        since=since,
        keeps_before=keeps_before,
    )


def _living(row: ScheduleRow | None, schedule_id: str, verb: str) -> ScheduleRow:
    if row is None:
        raise ScheduleNotFound(schedule_id)
    if row.state is State.CANCELLED:
        raise InvalidSchedule("schedule_id", schedule_id, f"is cancelled and cannot be {verb}; create another schedule")
    return row


def _same(row: ScheduleRow, state: State, since: int, *, note: str) -> Draft:
    return Draft(
        state=state,
        spec=row.spec,
        payload=row.payload,
        tenant=row.tenant,
        topic=row.topic,
        tags=row.tags,
        note=note,
        since=since,
        keeps_before=0,
    )
