"""Calendars through the client: made, replaced, refused, and what they take out of a forecast."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from unit.manual_clock import ManualClock
from unit.scripted_store import ScriptedStore

from tocsin import AsyncScheduler, Calendar, Daily, InvalidSchedule
from tocsin.schema.errors import OutcomeUnknown, ScheduleNotFound, StoreTimeout
from tocsin.schema.open_store import open_store

CHRISTMAS, BOXING_DAY = date(2026, 12, 25), date(2026, 12, 26)
#: 00:30 in Auckland, in summer, is 11:30 of the day before in UTC.
NIGHTLY = Daily(time(0, 30), tz="Pacific/Auckland")


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


async def test_a_calendar_is_made_replaced_and_read(scheduler: AsyncScheduler) -> None:
    made = await scheduler.set_calendar("holidays", [CHRISTMAS])
    assert made == Calendar(name="holidays", dates=frozenset({CHRISTMAS}), version=1)
    assert await scheduler.set_calendar("holidays", {CHRISTMAS}) == made
    replaced = await scheduler.set_calendar("holidays", [BOXING_DAY, CHRISTMAS])
    assert (replaced.version, await scheduler.get_calendar("holidays")) == (2, replaced)
    with pytest.raises(ScheduleNotFound, match="calendar"):
        await scheduler.get_calendar("nobody's")


async def test_excluded_dates_are_missing_in_forecasts_by_the_schedule_s_own_zone(
    store: ScriptedStore, scheduler: AsyncScheduler
) -> None:
    await scheduler.set_calendar("holidays", [CHRISTMAS])
    await scheduler.set_calendar("boxing", [BOXING_DAY])
    start = datetime(2026, 12, 23, 11, tzinfo=UTC)
    made = await scheduler.create("s", NIGHTLY, topic="t", start=start, exclude=["holidays", "boxing"])
    local = [at.astimezone(start.tzinfo) + timedelta(hours=13) for at in await scheduler.upcoming("s", 3)]
    assert [at.date() for at in local] == [date(2026, 12, 24), date(2026, 12, 27), date(2026, 12, 28)]
    await scheduler.set_calendar("holidays", [date(2026, 12, 24)])
    store.clock.turn(2_000)
    assert (await scheduler.get("s")).next_at == made.next_at + timedelta(days=1)


async def test_an_unknown_calendar_is_refused_by_create_update_and_create_many(scheduler: AsyncScheduler) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        await scheduler.create("s", NIGHTLY, topic="t", exclude=["nobody's"])
    assert (refused.value.field, refused.value.value) == ("exclude", "nobody's")
    with pytest.raises(ScheduleNotFound):
        await scheduler.get("s")
    await scheduler.create("s", NIGHTLY, topic="t")
    with pytest.raises(InvalidSchedule, match="exclude"):
        await scheduler.update("s", exclude=["nobody's"])
    await scheduler.set_calendar("nobody's", [])
    assert (await scheduler.update("s", exclude=["nobody's"])).schedule.exclude == ("nobody's",)


@pytest.mark.parametrize(
    ("name", "dates", "field"),
    [
        ("", [], "calendar"),
        ("a\0b", [], "calendar"),
        (None, [], "calendar"),
        ("x", "2026-12-25", "dates"),
        ("x", 3, "dates"),
        ("x", ["2026-12-25"], "dates"),
        ("x", [datetime(2026, 12, 25, tzinfo=UTC)], "dates"),
        ("x", [CHRISTMAS + timedelta(days=number) for number in range(4_001)], "dates"),
    ],
)
async def test_a_bad_name_or_date_is_refused_and_nothing_is_written(
    store: ScriptedStore, scheduler: AsyncScheduler, name: Any, dates: Any, field: str
) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        await scheduler.set_calendar(name, dates)
    assert refused.value.field == field
    assert await store.read_calendars() == []


@pytest.mark.parametrize("applied", [True, False])
async def test_a_write_without_an_answer_is_settled_by_its_token(
    store: ScriptedStore, scheduler: AsyncScheduler, applied: bool
) -> None:
    write, calls = store.inner.write_calendar, []

    async def failing(*arguments: Any) -> bool:
        calls.append(arguments)
        if len(calls) > 1:
            return await write(*arguments)
        if applied:
            await write(*arguments)
        raise StoreTimeout

    store.write_calendar = failing
    made = await scheduler.set_calendar("holidays", [CHRISTMAS])
    assert (made.version, len(calls)) == (1, 1 if applied else 2)


async def test_of_two_who_set_a_calendar_the_later_one_holds(store: ScriptedStore, scheduler: AsyncScheduler) -> None:
    write, overtaken = store.inner.write_calendar, []

    async def overtake(*arguments: Any) -> bool:
        if not overtaken:
            overtaken.append(1)
            async with AsyncScheduler(store.inner, clock=store.clock) as other:
                await other.set_calendar("holidays", [BOXING_DAY])
        return await write(*arguments)

    store.write_calendar = overtake
    made = await scheduler.set_calendar("holidays", [CHRISTMAS])
    assert (made.version, made.dates) == (2, {CHRISTMAS})


async def test_a_store_that_stops_answering_leaves_the_outcome_unknown(
    store: ScriptedStore, scheduler: AsyncScheduler
) -> None:
    async def failing(*_: Any) -> bool:
        async def fail(_: str) -> None:
            raise StoreTimeout

        store.read_calendar = fail
        raise StoreTimeout

    store.write_calendar = failing
    with pytest.raises(OutcomeUnknown):
        await scheduler.set_calendar("holidays", [CHRISTMAS])
