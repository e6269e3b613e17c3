"""The client on every kind of store: races for one schedule, many at once, declared sets, generated ids, calendars."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta

import pytest

from tocsin import (
    ApplyResult,
    AsyncScheduler,
    Cron,
    Every,
    InvalidSchedule,
    NewSchedule,
    ScheduleExists,
    State,
    VersionConflict,
)
from tocsin.schema.store import Store

from .conftest import TIMING, Fresh

HOURLY = Every(timedelta(hours=1), anchor=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
async def scheduler(store: Store) -> AsyncIterator[AsyncScheduler]:
    async with AsyncScheduler(store, timing=TIMING, timeout=timedelta(seconds=60)) as scheduler:
        yield scheduler


@pytest.fixture
async def rival(second_store: Store) -> AsyncIterator[AsyncScheduler]:
    async with AsyncScheduler(second_store, timing=TIMING, timeout=timedelta(seconds=60)) as scheduler:
        yield scheduler


async def test_of_two_who_update_one_schedule_one_wins_and_the_other_is_told_both_versions(
    scheduler: AsyncScheduler, rival: AsyncScheduler, fresh: Fresh
) -> None:
    schedule_id = fresh.schedule_id()
    version = (await scheduler.create(schedule_id, HOURLY, topic="t")).version
    for number in range(5):
        answers = await asyncio.gather(
            scheduler.update(schedule_id, expected_version=version, note=f"mine {number}"),
            rival.update(schedule_id, expected_version=version, note=f"theirs {number}"),
            return_exceptions=True,
        )
        (lost,) = (answer for answer in answers if isinstance(answer, BaseException))
        (won,) = (answer for answer in answers if not isinstance(answer, BaseException))
        assert isinstance(lost, VersionConflict)
        assert (lost.expected, lost.actual) == (version, won.schedule.version)
        found = await rival.get(schedule_id)
        assert (found.version, found.note) == (won.schedule.version, won.schedule.note)
        version = found.version


async def test_of_two_who_create_one_id_both_succeed_with_one_content_and_one_with_two(
    scheduler: AsyncScheduler, rival: AsyncScheduler, fresh: Fresh
) -> None:
    schedule_id = fresh.schedule_id()
    made = await asyncio.gather(*(each.create(schedule_id, HOURLY, topic="t") for each in (scheduler, rival)))
    assert made[0] == made[1]
    other_id = fresh.schedule_id()
    answers = await asyncio.gather(
        scheduler.create(other_id, HOURLY, topic="one"),
        rival.create(other_id, HOURLY, topic="two"),
        return_exceptions=True,
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["Schedule", ScheduleExists.__name__]


async def test_many_are_created_listed_changed_and_found_as_they_are_now(
    scheduler: AsyncScheduler, rival: AsyncScheduler, fresh: Fresh
) -> None:
    tag, topic = fresh.schedule_id(), f"topic-{fresh.schedule_id()}"
    items = [
        NewSchedule(
            schedule_id=None if number % 3 == 0 else fresh.schedule_id(),
            recurrence=Cron("H H * * *"),
            topic=topic,
            tags=[tag],
        )
        for number in range(240)
    ]
    results = [result async for result in scheduler.create_many(items)]
    assert {result.error for result in results} == {None}
    named = [item for item in items if item.schedule_id is not None]
    repeated = [result.schedule async for result in rival.create_many(named)]
    assert repeated == [result.schedule for result, item in zip(results, items, strict=True) if item in named]
    made = {result.schedule_id: result.schedule for result in results}
    listed = {schedule.schedule_id: schedule async for schedule in rival.list(topic=topic, tag=tag)}
    assert made == listed
    generated = results[0].schedule_id
    await rival.pause(generated)
    await rival.update(results[1].schedule_id, topic="elsewhere")
    assert [each.schedule_id async for each in scheduler.list(tag=tag, state=State.PAUSED)] == [generated]
    assert results[1].schedule_id not in {each.schedule_id async for each in scheduler.list(topic=topic)}


async def test_a_declared_set_is_applied_pruned_and_brought_back(scheduler: AsyncScheduler, fresh: Fresh) -> None:
    owner, kept, dropped = (fresh.schedule_id() for _ in range(3))
    declared = [
        NewSchedule(schedule_id=each, recurrence=Every(timedelta(hours=1)), topic="t") for each in (kept, dropped)
    ]
    assert await scheduler.apply(declared, owner=owner) == ApplyResult(created=(kept, dropped))
    assert await scheduler.apply(declared, owner=owner) == ApplyResult(unchanged=(kept, dropped))
    told = await scheduler.apply(declared[:1], owner=owner, prune=True)
    assert told == ApplyResult(cancelled=(dropped,), unchanged=(kept,))
    assert (await scheduler.get(dropped)).state is State.CANCELLED
    assert (await scheduler.apply(declared, owner=owner)).created == (dropped,)
    assert (await scheduler.get(dropped)).state is State.ACTIVE


async def test_a_calendar_is_shared_by_all_clients(
    scheduler: AsyncScheduler, rival: AsyncScheduler, fresh: Fresh
) -> None:
    name, schedule_id = fresh.schedule_id(), fresh.schedule_id()
    with pytest.raises(InvalidSchedule, match="exclude"):
        await scheduler.create(schedule_id, HOURLY, topic="t", exclude=[name])
    today = datetime.now(UTC).date()
    made = await rival.set_calendar(name, [today, today + timedelta(days=1)])
    assert await scheduler.get_calendar(name) == made
    schedule = await scheduler.create(schedule_id, HOURLY, topic="t", exclude=[name])
    assert schedule.next_at is not None
    assert schedule.next_at.date() == today + timedelta(days=2)
    (first,) = await rival.upcoming(schedule_id, 1)
    assert first == schedule.next_at
    assert isinstance(first.date(), date)
