"""Declared sets through the client: what is created, updated, left alone, brought back and cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import time, timedelta
from typing import Any

import pytest
from unit.manual_clock import START_MS, ManualClock
from unit.scripted_store import ScriptedStore

from tocsin import ApplyResult, AsyncScheduler, Cron, Daily, Every, InvalidSchedule, NewSchedule, Once, State
from tocsin.producer.apply import OWNER_TAG
from tocsin.schema.errors import ScheduleExists, VersionConflict
from tocsin.schema.instants import to_datetime
from tocsin.schema.open_store import open_store

HOURLY = Every(timedelta(hours=1))
NINE = time(9)
WRITES = {"write_pack", "write_marker", "insert_schedule", "replace_schedule"}


@pytest.fixture
async def store() -> AsyncIterator[ScriptedStore]:
    clock = ManualClock()
    store = ScriptedStore(open_store("sqlite:///:memory:", clock=clock, create=True))
    store.clock = clock
    yield store
    await store.close()


@pytest.fixture
async def scheduler(store: ScriptedStore) -> AsyncIterator[AsyncScheduler]:
    async with AsyncScheduler(store, clock=store.clock) as scheduler:
        yield scheduler


def new(schedule_id: str | None, **fields: Any) -> NewSchedule:
    return NewSchedule(schedule_id=schedule_id, **{"recurrence": HOURLY, "topic": "t"} | fields)


async def apply(scheduler: AsyncScheduler, *schedules: NewSchedule, **options: Any) -> ApplyResult:
    return await scheduler.apply(schedules, **{"owner": "billing"} | options)


def writes(store: ScriptedStore) -> int:
    return sum(name in WRITES for name in store.made)


async def test_a_set_is_created_and_marked_and_applying_it_again_changes_nothing(
    store: ScriptedStore, scheduler: AsyncScheduler
) -> None:
    declared = [
        new("every"),
        new("cron", recurrence=Cron("H 9 * * *")),
        new("days", recurrence=Daily(NINE, tz="Europe/Berlin", every=3)),
        new("tagged", tags=["red"], payload=b"p", headers={"k": "v"}, start=to_datetime(START_MS + 3_600_000)),
    ]
    first = await apply(scheduler, *declared)
    assert first == ApplyResult(created=("every", "cron", "days", "tagged"))
    assert (await scheduler.get("tagged")).tags == {"red", "owner:billing"}
    begun = writes(store)
    store.clock.turn(12_345_678)
    assert await apply(scheduler, *declared) == ApplyResult(unchanged=("every", "cron", "days", "tagged"))
    assert writes(store) == begun


async def test_what_differs_is_updated_and_keeps_the_rhythm_it_had(scheduler: AsyncScheduler) -> None:
    await apply(scheduler, new("a"), new("b"))
    before = await scheduler.get("a")
    assert await apply(scheduler, new("a", payload=b"new"), new("b")) == ApplyResult(updated=("a",), unchanged=("b",))
    after = await scheduler.get("a")
    assert (after.payload, after.recurrence) == (b"new", before.recurrence)
    assert await apply(scheduler, new("a", payload=b"new"), new("b")) == ApplyResult(unchanged=("a", "b"))


async def test_a_field_that_is_declared_no_more_goes_back_to_its_default(scheduler: AsyncScheduler) -> None:
    await apply(scheduler, new("a", note="why", tags=["red"], jitter=timedelta(seconds=5)))
    await apply(scheduler, new("a"))
    schedule = await scheduler.get("a")
    assert (schedule.note, schedule.tags, schedule.jitter) == ("", {"owner:billing"}, timedelta(0))


async def test_what_operators_paused_stays_paused_whether_it_differs_or_not(scheduler: AsyncScheduler) -> None:
    await apply(scheduler, new("a"))
    await scheduler.pause("a")
    assert await apply(scheduler, new("a")) == ApplyResult(unchanged=("a",))
    assert await apply(scheduler, new("a", payload=b"new")) == ApplyResult(updated=("a",))
    assert (await scheduler.get("a")).state is State.PAUSED


async def test_pruning_cancels_what_is_declared_no_more_and_nothing_of_others(scheduler: AsyncScheduler) -> None:
    await scheduler.create("mine", HOURLY, topic="t")
    await apply(scheduler, new("theirs"), owner="sales")
    await apply(scheduler, new("a"), new("b"))
    assert await apply(scheduler, new("a")) == ApplyResult(unchanged=("a",))
    assert await apply(scheduler, new("a"), prune=True) == ApplyResult(cancelled=("b",), unchanged=("a",))
    assert await apply(scheduler, new("a"), prune=True) == ApplyResult(unchanged=("a",))
    states = {schedule.schedule_id: schedule.state.value async for schedule in scheduler.list()}
    assert states == {"a": "active", "b": "cancelled", "mine": "active", "theirs": "active"}


async def test_an_id_that_was_cancelled_and_comes_back_is_a_new_version_and_occurs_from_now_on(
    scheduler: AsyncScheduler, store: ScriptedStore
) -> None:
    await apply(scheduler, new("a"))
    first = await scheduler.get("a")
    await apply(scheduler, prune=True)
    store.clock.turn(5 * 3_600_000)
    with pytest.raises(ScheduleExists):
        await scheduler.create("a", HOURLY, topic="t")
    assert await apply(scheduler, new("a")) == ApplyResult(created=("a",))
    again = await scheduler.get("a")
    assert again.state is State.ACTIVE
    assert again.version > first.version
    assert again.next_at is not None
    assert again.next_at > to_datetime(store.clock.wall_ms() - 1_000)


async def test_a_dry_run_says_what_would_be_done_and_writes_nothing(
    store: ScriptedStore, scheduler: AsyncScheduler
) -> None:
    await apply(scheduler, new("a"), new("b"))
    begun = writes(store)
    told = await apply(scheduler, new("a", note="new"), new("c"), prune=True, dry_run=True)
    assert told == ApplyResult(created=("c",), updated=("a",), cancelled=("b",))
    assert writes(store) == begun


PAST = Once(to_datetime(START_MS - 86_400_000))


@pytest.mark.parametrize(
    ("declared", "options", "field"),
    [
        ([new("a"), new("b"), new("a", payload=b"other")], {}, "schedule_id"),
        ([new("a"), new(None)], {}, "schedule_id"),
        ([new("a"), new("b", max_runs=3)], {}, "max_runs"),
        ([new("a"), new("b", tags=["owner:sales"])], {}, "tags"),
        ([new("a"), new("b", tags=[f"t{number}" for number in range(64)])], {}, "tags"),
        ([new("a"), new("b", recurrence=PAST)], {}, "recurrence"),
        ([new("a"), new("b", exclude=["no such calendar"])], {}, "exclude"),
        ([new("a"), new("foreign")], {}, "schedule_id"),
        ([new("a")], {"owner": ""}, "owner"),
        ([new("a")], {"owner": "x" * 128}, "owner"),
        ([new("a")], {"owner": None}, "owner"),
        ([new("a")], {"owner": "a\nb"}, "owner"),
    ],
)
async def test_a_set_with_anything_wrong_in_it_is_refused_whole_and_nothing_is_written(
    store: ScriptedStore, scheduler: AsyncScheduler, declared: list[NewSchedule], options: dict[str, Any], field: str
) -> None:
    await scheduler.create("foreign", HOURLY, topic="t")
    begun = writes(store)
    with pytest.raises(InvalidSchedule) as refused:
        await apply(scheduler, *declared, **options)
    assert refused.value.field == field
    assert refused.value.reason
    assert writes(store) == begun


async def test_a_schedule_changed_behind_its_back_is_reported_and_the_rest_is_applied(
    store: ScriptedStore, scheduler: AsyncScheduler
) -> None:
    await apply(scheduler, new("a"), new("b"))

    async def overtake() -> None:
        async with AsyncScheduler(store.inner, clock=store.clock) as other:
            await other.update("a", note="overtaken")

    store.meanwhile("write_pack", overtake, nth=sum(name == "write_pack" for name in store.made))
    result = await apply(scheduler, new("a", payload=b"new"), new("b", payload=b"new"))
    assert result.updated == ("b",)
    assert isinstance(result.failed["a"], VersionConflict)
    assert (await apply(scheduler, new("a", payload=b"new"), new("b", payload=b"new"))).updated == ("a",)
    assert OWNER_TAG + "billing" in (await scheduler.get("a")).tags
