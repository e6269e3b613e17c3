"""Declared sets: what an owner wants to be there, made so.

    not there                   created
    there, other content        updated: the new version owns nominal times from now on
    there, same content         unchanged; nothing is written
    cancelled                   created again, as a new version of the same id: it occurs from now on
    there, of somebody else     the whole set is refused: taking over is a decision, by an update of the tags
    not declared any more       cancelled, where pruning was asked for

The tag `owner:<name>` marks what an owner's sets have made; schedules that lack it are none of its business. Everything
is checked before anything is written. Applying the same set again changes nothing, and is how a half-done one goes on.
Unlike apply, `create` refuses the id of a cancelled schedule: who creates one by one means a new thing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from tocsin.producer.change import Wish
from tocsin.producer.definition import NewSchedule, check_name
from tocsin.producer.many import in_order
from tocsin.producer.persistence import Persistence
from tocsin.producer.wishes import Cancel, Declare
from tocsin.schema.errors import InvalidSchedule, TocsinError
from tocsin.schema.pages import next_page
from tocsin.schema.schedules import ScheduleFilter, ScheduleRow, State
from tocsin.schema.store import Store

#: What a tag of an owner begins with.
OWNER_TAG = "owner:"
#: Schedules read serially in one go.
READ_MAX = 200


@dataclass(frozen=True, kw_only=True)
class ApplyResult:
    """What became of a declared set, by id; of a dry run: what would."""

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    #: Why a change was not made; apply the same set again.
    failed: Mapping[str, TocsinError] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One change on the way to the declared set."""

    #: The field of ApplyResult that it belongs to.
    kind: str
    schedule_id: str
    wish: Wish
    #: None: the id has no row.
    row: ScheduleRow | None


def declared_set(schedules: Iterable[NewSchedule], owner: str) -> dict[str, NewSchedule]:
    """The set by id, each marked with its owner.

    Raises:
        InvalidSchedule: an id is missing or declared twice, a schedule names another owner or a number of runs, or the
            owner's name is refused.
    """
    check_name("owner", owner)
    mark = OWNER_TAG + owner
    check_name("owner", mark)
    declared: dict[str, NewSchedule] = {}
    for schedule in schedules:
        if schedule.schedule_id is None:
            raise InvalidSchedule("schedule_id", None, "is missing; what is declared needs an id of its own")
        if schedule.schedule_id in declared:
            raise InvalidSchedule("schedule_id", schedule.schedule_id, f"{schedule.schedule_id!r} is declared twice")
        if schedule.max_runs is not None:
            reason = "counts from whenever it is applied; declare `until` instead"
            raise InvalidSchedule("max_runs", schedule.max_runs, reason)
        foreign = [tag for tag in schedule.tags if tag.startswith(OWNER_TAG) and tag != mark]
        if foreign:
            raise InvalidSchedule("tags", foreign[0], f"names another owner than {owner!r}")
        declared[schedule.schedule_id] = dataclasses.replace(schedule, tags={*schedule.tags, mark})
    return declared


async def owned_rows(store: Store, persistence: Persistence, owner: str, *, deadline: int) -> dict[str, ScheduleRow]:
    """What carries the owner's tag."""
    pages = store.list_schedules(ScheduleFilter(tag=OWNER_TAG + owner))
    rows: dict[str, ScheduleRow] = {}
    while True:
        page = await persistence.until_answered(partial(next_page, pages), deadline)
        if not page:
            return rows
        rows |= {row.schedule_id: row for row in page}


async def rows_of(
    store: Store, persistence: Persistence, schedule_ids: Iterable[str], *, deadline: int
) -> dict[str, ScheduleRow]:
    """The rows of these ids, read serially."""
    remaining = iter(schedule_ids)
    rows: dict[str, ScheduleRow] = {}
    while part := list(islice(remaining, READ_MAX)):
        rows |= await persistence.until_answered(partial(store.read_schedules, part), deadline)
    return rows


def steps_to(
    declared: Mapping[str, NewSchedule],
    rows: Mapping[str, ScheduleRow],
    owner: str,
    *,
    prune: bool,
    now: int,
    grace_ms: int,
) -> list[Step]:
    """What has to be done, with every declaration checked; an unchanged one is a step with nothing to do.

    Raises:
        InvalidSchedule: a schedule is refused, or its id is somebody else's.
    """
    mark = OWNER_TAG + owner
    steps = []
    for schedule_id, schedule in declared.items():
        row = rows.get(schedule_id)
        if row is not None and mark not in row.tags:
            reason = (
                f"{schedule_id!r} exists and is not of owner {owner!r}; add the tag {mark!r} to it, or rename yours"
            )
            raise InvalidSchedule("schedule_id", schedule_id, reason)
        wish = Declare(schedule, row, grace_ms=grace_ms)
        kind = "created" if row is None or row.state is State.CANCELLED else "updated"
        if wish.draft(row, now) is None:
            kind = "unchanged"
        steps.append(Step(kind, schedule_id, wish, row))
    if prune:
        steps += [
            Step("cancelled", row.schedule_id, Cancel(row.schedule_id), row)
            for row in rows.values()
            if mark in row.tags and row.schedule_id not in declared and row.state is not State.CANCELLED
        ]
    return steps


async def take_steps(steps: Sequence[Step], make: Callable[[str, Wish], Awaitable[object]]) -> dict[str, TocsinError]:
    """Take every step that has something to do, many at once; the errors by id."""
    errors: dict[str, TocsinError] = {}

    async def take(step: Step) -> None:
        try:
            await make(step.schedule_id, step.wish)
        except TocsinError as error:
            errors[step.schedule_id] = error

    async for _ in in_order((step for step in steps if step.kind != "unchanged"), take):
        pass
    return errors


def result_of_steps(steps: Sequence[Step], errors: Mapping[str, TocsinError]) -> ApplyResult:
    """The result of steps, of which some failed."""
    done = {
        kind: tuple(step.schedule_id for step in steps if step.kind == kind and step.schedule_id not in errors)
        for kind in ("created", "updated", "cancelled", "unchanged")
    }
    return ApplyResult(**done, failed=dict(errors))
