"""Triggers and backfills: beside the rule, one occurrence a request, pure turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.producer.extra_runs import TURN_MAX, BackfillTerms, backfill_turn, next_turn_due
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.errors import InvalidSchedule, OutcomeUnknown, ScheduleNotFound, StoreTimeout
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, to_datetime
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import Spec

HOURLY = Every(timedelta(hours=1), anchor=to_datetime(START_MS - 100 * DAY_MS))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


def client(world: World) -> AsyncScheduler:
    return AsyncScheduler(world.store, clock=world.clock)  # type: ignore[arg-type]


async def runs(world: World) -> list[Entry]:
    return [entry for _, _, entry in await world.waiting() if entry.kind in {Kind.TRIGGER, Kind.BACKFILL}]


@pytest.mark.parametrize("paused", [False, True])
async def test_the_same_request_twice_is_one_key_however_much_later(world: World, paused: bool) -> None:
    async with client(world) as scheduler:
        await scheduler.create("s", HOURLY, topic="t", payload=b"p", paused=paused)
        first = await scheduler.trigger("s", request_id="r1")
        world.clock.turn(MINUTE_MS)
        assert await scheduler.trigger("s", request_id="r1") == first
        assert await scheduler.trigger("s") != first
    keys = [entry.key for entry in await runs(world)]
    assert keys.count(first) == 2
    assert len(set(keys)) == 2


async def test_a_trigger_leaves_the_armed_occurrence_where_it_is(world: World) -> None:
    async with client(world) as scheduler:
        await scheduler.create("s", HOURLY, topic="t")
        before = [entry for _, _, entry in await world.waiting()]
        await scheduler.trigger("s")
    after = [entry for _, _, entry in await world.waiting() if entry.kind == Kind.ARM]
    assert after == before


@pytest.mark.parametrize("request_id", ["", "a@b", "a!b", "x" * 129, "new\nline"])
async def test_a_request_id_that_would_spoil_the_key_is_refused(world: World, request_id: str) -> None:
    async with client(world) as scheduler:
        await scheduler.create("s", HOURLY, topic="t")
        with pytest.raises(InvalidSchedule) as refused:
            await scheduler.trigger("s", request_id=request_id)
    assert refused.value.field == "request_id"
    assert await runs(world) == []


async def test_what_is_not_there_or_cancelled_cannot_be_triggered(world: World) -> None:
    async with client(world) as scheduler:
        with pytest.raises(ScheduleNotFound):
            await scheduler.trigger("s")
        await scheduler.create("s", HOURLY, topic="t")
        await scheduler.cancel("s")
        with pytest.raises(InvalidSchedule):
            await scheduler.trigger("s")


async def test_a_trigger_whose_write_is_never_acknowledged_is_unknown_and_a_repeat_settles_it(world: World) -> None:
    async with client(world) as scheduler:
        await scheduler.create("s", HOURLY, topic="t")
        for nth in range(200):
            world.store.fail("write_pack", nth=nth + world.store.made.count("write_pack"), error=StoreTimeout())
        with pytest.raises(OutcomeUnknown):
            await scheduler.trigger("s", request_id="r1")


async def test_a_backfill_is_one_entry_at_its_first_nominal_time(world: World) -> None:
    start, end = to_datetime(START_MS - 5 * HOUR_MS), to_datetime(START_MS)
    async with client(world) as scheduler:
        await scheduler.create("s", HOURLY, topic="t", start=to_datetime(START_MS - 50 * DAY_MS))
        planned = await scheduler.backfill("s", start, end, dry_run=True)
        assert await runs(world) == []
        made = await scheduler.backfill("s", start, end, per_second=2)
    assert (planned.occurrences, made.occurrences, made.seconds) == (5, 5, 2.5)
    (entry,) = await runs(world)
    assert (entry.kind, entry.scheduled_for) == (Kind.BACKFILL, START_MS - 5 * HOUR_MS)


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "per_second", "field"),
    [
        (0, 0, 100, "end"),
        (0, HOUR_MS, 100, "end"),
        (-HOUR_MS, 0, 0, "per_second"),
        (-HOUR_MS, 0, 5000, "per_second"),
    ],
)
async def test_windows_and_rates_are_checked_before_anything_is_written(
    world: World, start_ms: int, end_ms: int, per_second: int, field: str
) -> None:
    async with client(world) as scheduler:
        await scheduler.create("s", HOURLY, topic="t")
        start, end = to_datetime(START_MS + start_ms), to_datetime(START_MS + end_ms)
        with pytest.raises(InvalidSchedule) as refused:
            await scheduler.backfill("s", start, end, per_second=per_second)
    assert refused.value.field == field
    assert await runs(world) == []


@pytest.mark.parametrize("per_second", [1, 7, 100, 1000])
def test_turn_after_turn_covers_the_window_once_at_its_rate(per_second: int) -> None:
    spec = Spec(recurrence=Every(timedelta(minutes=1), anchor=to_datetime(START_MS - DAY_MS)), topic="t")
    terms = BackfillTerms("b/1", START_MS, per_second)
    first = START_MS - 6 * HOUR_MS
    stands_at: int | None = first
    due, covered = START_MS, []
    while stands_at is not None:
        entry = Entry("s", stands_at, due, 7, kind=Kind.BACKFILL, request=terms.encode())
        turn, stands_at = backfill_turn(entry, spec)
        assert len(turn) <= min(per_second, TURN_MAX)
        covered += turn
        due = next_turn_due(entry)
    assert covered == list(range(first, START_MS, MINUTE_MS))
    assert (due - START_MS) / SECOND_MS >= len(covered) / per_second - 1


def test_terms_survive_their_text() -> None:
    terms = BackfillTerms("a/b", 5, 7)
    assert BackfillTerms.decode(terms.encode()) == terms
