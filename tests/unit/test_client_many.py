"""Many schedules through the client: create_many, generated ids, listing, forecasts, the synchronous twin."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from unit.manual_clock import START_MS, ManualClock
from unit.scripted_store import ScriptedStore

from tocsin import AsyncScheduler, Every, InvalidSchedule, NewSchedule, Once, Scheduler, State
from tocsin.producer.many import WINDOW, in_order
from tocsin.schema.errors import OutcomeUnknown, ScheduleExists, ScheduleNotFound, StoreTimeout
from tocsin.schema.instants import to_datetime
from tocsin.schema.open_store import open_store
from tocsin.schema.schedules import ScheduleFilter

HOURLY = Every(timedelta(hours=1), anchor=to_datetime(START_MS))


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


async def ids(scheduler: AsyncScheduler, **wanted: Any) -> list[str]:
    return [schedule.schedule_id async for schedule in scheduler.list(**wanted)]


# Many at once


async def test_each_item_has_its_result_in_order_and_a_refused_one_stops_nobody(scheduler: AsyncScheduler) -> None:
    await scheduler.create("s3", HOURLY, topic="other")
    past = Once(to_datetime(START_MS - 3_600_000))
    items = [new(f"s{number}", **({"recurrence": past} if number == 5 else {})) for number in range(8)]
    results = [result async for result in scheduler.create_many(items)]
    assert [result.schedule_id for result in results] == [f"s{number}" for number in range(8)]
    assert isinstance(results[3].error, ScheduleExists)
    assert isinstance(results[5].error, InvalidSchedule)
    assert [result.schedule is None for result in results] == [number in {3, 5} for number in range(8)]
    assert await ids(scheduler) == ["s0", "s1", "s2", "s3", "s4", "s6", "s7"]


async def test_creating_the_same_many_again_changes_nothing(scheduler: AsyncScheduler) -> None:
    items = [new(f"s{number}") for number in range(20)]
    first = [result.schedule async for result in scheduler.create_many(items)]
    assert [result.schedule async for result in scheduler.create_many(items)] == first


async def test_the_input_is_consumed_no_further_ahead_than_the_window(scheduler: AsyncScheduler) -> None:
    consumed = itertools.count()
    items = (new(f"s{next(consumed)}") for _ in range(2 * WINDOW))
    results = scheduler.create_many(items)
    for taken in range(1, 4):
        await anext(results)
        assert next(consumed) - taken <= WINDOW + taken
    await results.aclose()


async def test_results_left_behind_end_the_calls_under_way() -> None:
    ended = []

    async def call(number: int) -> int:
        if number:
            try:
                await ScriptedForever()
            finally:
                ended.append(number)
        return number

    results = in_order(range(10), call, window=4)
    assert await anext(results) == 0
    await results.aclose()
    assert sorted(ended) == [1, 2, 3]


class ScriptedForever:
    """Awaiting it never ends."""

    def __await__(self) -> Iterator[None]:
        while True:
            yield None


async def test_many_into_one_minute_share_packs(store: ScriptedStore, scheduler: AsyncScheduler) -> None:
    results = [result.error async for result in scheduler.create_many(new(f"s{number}") for number in range(400))]
    assert results == [None] * 400
    # 16 sub-partitions; each entry is written ahead and confirmed. One by one they would be 800 packs.
    assert len(store.packs) < 200


async def test_a_store_that_stops_answering_is_an_unknown_outcome_of_each_item(
    store: ScriptedStore, scheduler: AsyncScheduler
) -> None:
    store.takes_ms = lambda _: 100
    items = [new(f"s{number}") for number in range(5)]
    begun = len(store.made)
    store.dies_at = (begun + 8, False)
    results = [result async for result in scheduler.create_many(items)]
    store.dies_at = None
    assert all(result.error is None or result.error.retriable for result in results)
    assert any(isinstance(result.error, OutcomeUnknown) for result in results)
    repeated = [result async for result in scheduler.create_many(items)]
    assert [result.error for result in repeated] == [None] * 5


# Generated ids


async def test_a_generated_id_takes_no_conditional_write_and_can_be_changed(
    store: ScriptedStore, scheduler: AsyncScheduler
) -> None:
    made = await scheduler.create(None, HOURLY, topic="t")
    assert "insert_schedule" not in store.made
    assert await scheduler.get(made.schedule_id) == made
    paused = await scheduler.pause(made.schedule_id)
    assert (await scheduler.get(made.schedule_id)).version == paused.schedule.version > made.version


async def test_the_row_of_a_generated_id_is_written_again_until_it_is_acknowledged(
    store: ScriptedStore, scheduler: AsyncScheduler
) -> None:
    rows = []
    insert = store.inner.insert_fresh_schedule

    async def failing(row: Any) -> None:
        rows.append(row)
        await insert(row)
        if len(rows) < 3:
            raise StoreTimeout

    store.insert_fresh_schedule = failing
    made = await scheduler.create(None, HOURLY, topic="t")
    assert rows == [rows[0]] * 3
    assert (await scheduler.get(made.schedule_id)).version == made.version


async def test_many_may_have_generated_ids_among_them(scheduler: AsyncScheduler) -> None:
    results = [result async for result in scheduler.create_many([new(None), new("s"), new(None)])]
    assert [result.error for result in results] == [None] * 3
    assert len({result.schedule_id for result in results}) == 3


# Listing and forecasts


async def test_schedules_are_listed_by_what_is_asked_for(scheduler: AsyncScheduler) -> None:
    await scheduler.create("a", HOURLY, topic="mail", tenant="x", tags=["red"])
    await scheduler.create("b", HOURLY, topic="mail", tenant="y", tags=["red", "blue"])
    await scheduler.create("c", HOURLY, topic="push", tenant="y")
    await scheduler.pause("b")
    assert await ids(scheduler) == ["a", "b", "c"]
    assert await ids(scheduler, topic="mail") == ["a", "b"]
    assert await ids(scheduler, tag="red", tenant="y") == ["b"]
    assert await ids(scheduler, state=State.PAUSED) == ["b"]
    assert await ids(scheduler, state=State.CANCELLED) == []
    await scheduler.update("a", topic="push", tags=["green"])
    assert await ids(scheduler, topic="push") == ["a", "c"]
    assert await ids(scheduler, tag="red") == ["b"]


@pytest.mark.parametrize(
    "wanted", [{"tenant": ""}, {"tag": 3}, {"topic": "not a topic"}, {"state": "active"}, {"tenant": "a\0b"}]
)
async def test_a_filter_that_nothing_can_fit_is_refused(scheduler: AsyncScheduler, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        await ids(scheduler, **wanted)
    assert refused.value.field == next(iter(wanted))


async def test_a_listing_goes_on_where_a_page_failed(store: ScriptedStore, scheduler: AsyncScheduler) -> None:
    async for _ in scheduler.create_many(new(f"s{number:03}") for number in range(250)):
        pass
    failed = []

    class Failing:
        def __init__(self) -> None:
            self.pages = store.inner.list_schedules(ScheduleFilter())

        async def __anext__(self) -> Any:
            if len(failed) < 2:
                failed.append(1)
                raise StoreTimeout
            return await anext(self.pages)

    store.list_schedules = lambda _: Failing()
    assert await ids(scheduler) == [f"s{number:03}" for number in range(250)]


async def test_upcoming_is_what_is_due_jitter_included_and_nothing_while_paused(scheduler: AsyncScheduler) -> None:
    await scheduler.create("plain", HOURLY, topic="t", max_runs=3)
    assert await scheduler.upcoming("plain") == [to_datetime(START_MS + hour * 3_600_000) for hour in range(3)]
    assert len(await scheduler.upcoming("plain", 2)) == 2
    await scheduler.create("late", HOURLY, topic="t", jitter=timedelta(minutes=10))
    late = await scheduler.upcoming("late", 5)
    assert late[0] == (await scheduler.get("late")).next_at
    assert any(at.minute for at in late)
    await scheduler.pause("plain")
    assert await scheduler.upcoming("plain") == []
    with pytest.raises(ScheduleNotFound):
        await scheduler.upcoming("nobody")


@pytest.mark.parametrize("count", [0, -1, 10_001, True, 1.5])
async def test_a_forecast_of_no_or_too_many_instants_is_refused(scheduler: AsyncScheduler, count: Any) -> None:
    with pytest.raises(InvalidSchedule, match="count"):
        await scheduler.upcoming("s", count)


# The synchronous twin


def test_the_twin_has_every_public_method_with_its_signature_and_documentation() -> None:
    for name, method in inspect.getmembers(AsyncScheduler, inspect.isfunction):
        if name.startswith("_") or name == "close":
            continue
        twin = getattr(Scheduler, name)
        assert inspect.signature(twin) == inspect.signature(method), name
        assert twin.__doc__ == method.__doc__, name


def test_the_twin_creates_lists_and_consumes_what_it_is_given_on_the_caller_s_thread() -> None:
    store = open_store("sqlite:///:memory:", create=True)
    with Scheduler(store) as scheduler:
        start = datetime.now(UTC) + timedelta(hours=1)

        def items() -> Iterator[NewSchedule]:
            for number in range(5):
                # An item may depend on what was scheduled before: this would lock up on the scheduler's own thread.
                known = sum(1 for _ in scheduler.list())
                yield new(f"s{number}-{known}", recurrence=Once(start))

        assert [result.error for result in scheduler.create_many(items())] == [None] * 5
        assert [schedule.schedule_id for schedule in scheduler.list()] == [f"s{number}-0" for number in range(5)]
        assert scheduler.upcoming("s0-0") == [scheduler.get("s0-0").next_at]
        scheduler.run(store.close())


def test_a_closed_twin_says_so() -> None:
    store = open_store("sqlite:///:memory:", create=True)
    with Scheduler(store) as scheduler:
        scheduler.run(store.close())
    with pytest.raises(RuntimeError, match="this Scheduler is closed"):
        scheduler.get("tea")
