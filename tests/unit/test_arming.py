"""What should be armed now: the first occurrence that is still due, jitter included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.producer.arming import arm_again, entry_due_from, entry_from
from tocsin.producer.results import schedule_of
from tocsin.schema.instants import HOUR_MS, MINUTE_MS, to_datetime
from tocsin.schema.levels import Level
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import ScheduleRow, Spec, State, encode_spec

START = to_datetime(START_MS)


def row(period: timedelta = timedelta(hours=1), state: State = State.ACTIVE, **fields: int) -> ScheduleRow:
    return ScheduleRow(
        schedule_id="s",
        version=3,
        token=b"",
        state=state,
        since=START_MS,
        spec=encode_spec(Spec(recurrence=Every(period, anchor=START), topic="t", **fields)),  # type: ignore[arg-type]
        payload=b"p",
        created_at=START_MS,
        updated_at=START_MS,
    )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


def test_an_occurrence_whose_jitter_is_running_is_still_the_next() -> None:
    jittered = row(jitter_ms=HOUR_MS)
    first = entry_from(jittered, START_MS)
    assert first is not None
    assert first.due > START_MS + MINUTE_MS
    assert entry_due_from(jittered, first.due - 1) == first
    assert entry_due_from(jittered, first.due) == first
    after = entry_due_from(jittered, first.due + 1)
    assert after is not None
    assert after.scheduled_for == START_MS + HOUR_MS


@given(st.integers(1, 5_000), st.integers(0, 12 * HOUR_MS), st.integers(-HOUR_MS, 20 * HOUR_MS))
def test_it_is_what_a_walk_from_the_beginning_finds(period_s: int, jitter_ms: int, ahead_ms: int) -> None:
    found = row(timedelta(seconds=period_s), jitter_ms=jitter_ms)
    instant = START_MS + min(ahead_ms, 500_000 * period_s)
    spec = Spec(recurrence=Every(timedelta(seconds=period_s), anchor=START), topic="t", jitter_ms=jitter_ms)
    nominal = START_MS
    while spec.due_of("s", nominal) < instant:
        nominal += period_s * 1_000
    entry = entry_due_from(found, instant)
    assert entry is not None
    assert (entry.scheduled_for, entry.due) == (nominal, spec.due_of("s", nominal))


@pytest.mark.parametrize("state", [State.PAUSED, State.CANCELLED])
def test_what_is_not_active_has_nothing_to_arm(state: State) -> None:
    assert entry_due_from(row(state=state), START_MS) is None
    assert entry_from(row(state=state), START_MS) is None


def test_what_is_over_has_nothing_to_arm() -> None:
    assert entry_due_from(row(until=START_MS + HOUR_MS), START_MS + HOUR_MS + 1) is None


def test_a_schedule_shows_when_it_is_next_due() -> None:
    jittered = row(jitter_ms=HOUR_MS)
    entry = entry_due_from(jittered, START_MS + 5)
    assert entry is not None
    assert schedule_of(jittered, START_MS + 5).next_at == to_datetime(entry.due)
    assert schedule_of(row(state=State.PAUSED), START_MS).next_at is None


async def test_what_should_be_armed_is_inserted(world: World) -> None:
    assert await arm_again(world.inserter(), [row()], START_MS + 1) == 1
    ((level, position, _),) = await world.waiting()
    assert (level, position) == (Level.MINUTE, START_MS + HOUR_MS)


async def test_nothing_is_done_where_it_was_dispatched_already(world: World) -> None:
    await world.seal(committed=START_MS + HOUR_MS)
    assert await arm_again(world.inserter(), [row()], START_MS + 1) == 0


async def test_nothing_is_done_where_nothing_is_left(world: World) -> None:
    assert await arm_again(world.inserter(), [row(state=State.PAUSED)], START_MS) == 0
    assert world.store.packs == []
