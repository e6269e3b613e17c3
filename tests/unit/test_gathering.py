"""Inserts of many callers, made together: what they share, and that each still has an answer of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.producer.gathering import GatheringInserter
from tocsin.producer.insert import Inserter, Placement
from tocsin.schema.entries import Entry, decode_pack
from tocsin.schema.errors import StoreTimeout
from tocsin.schema.instants import HOUR_MS, MINUTE_MS
from tocsin.schema.levels import Level


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


def gathering(world: World, kind: type[Inserter] = GatheringInserter) -> Inserter:
    return kind(
        world.store,
        world.levels,
        store_clock=world.store_clock,
        clock=world.clock,
        frontiers=world.frontiers,
        new_id=world.new_id,
        marks_late=False,
    )


def placement(number: int, *, minutes: int = 60, source: int | None = None) -> Placement:
    due = START_MS + minutes * MINUTE_MS
    return Placement(Entry(f"s{number}", due, due, 1), source=source)


def written(world: World) -> list[Entry]:
    return [entry for _, row in world.store.packs for entry in decode_pack(row.body)]


async def test_callers_of_one_moment_share_packs_and_readings_of_the_frontier(world: World) -> None:
    inserter = gathering(world)
    places = await asyncio.gather(*(inserter.insert([placement(number)]) for number in range(200)))
    assert all(place is not None and place.level is Level.MINUTE for (place,) in places)
    assert sorted(entry.schedule_id for entry in written(world)) == sorted(f"s{number}" for number in range(200))
    assert len(world.store.packs) == 16  # sub-partitions
    assert world.store.made.count("read_frontier") == 4  # ranges
    apart = len(world.store.packs)
    await asyncio.gather(*(gathering(world, Inserter).insert([placement(number)]) for number in range(200)))
    assert len(world.store.packs) == apart + 200


async def test_who_comes_while_an_insert_is_under_way_joins_the_next_one(world: World) -> None:
    inserter = gathering(world)
    joined: list[asyncio.Task[object]] = []

    async def more() -> None:
        joined.extend(asyncio.ensure_future(inserter.insert([placement(number)])) for number in range(100, 160))

    world.store.meanwhile("write_pack", more)
    await inserter.insert([placement(0)])
    await asyncio.gather(*joined)
    assert len(written(world)) == 61
    assert len(world.store.packs) <= 1 + 16


async def test_each_caller_has_the_places_of_its_own_placements(world: World) -> None:
    inserter = gathering(world)
    await world.store.inner.write_frontier(0, {"committed": START_MS + 2 * HOUR_MS})
    numbers = range(60)
    answers = await asyncio.gather(
        *(inserter.insert([placement(n, source=START_MS + HOUR_MS), placement(n, minutes=90)]) for n in numbers)
    )
    for number, (repeated, fresh) in zip(numbers, answers, strict=True):
        in_first = world.levels.shard_range(f"s{number}") == 0
        assert (repeated is None) == in_first  # committed has reached its source
        assert fresh is not None
        assert fresh.position == START_MS + 90 * MINUTE_MS


async def test_a_failure_reaches_all_who_share_it_and_the_next_insert_is_new(world: World) -> None:
    inserter = gathering(world)
    deadline = world.clock.monotonic_ms()
    for nth in range(8):
        world.store.fail("write_pack", nth=nth)
    answers = await asyncio.gather(
        *(inserter.insert([placement(number)], deadline=deadline) for number in range(8)), return_exceptions=True
    )
    assert {type(answer) for answer in answers} == {StoreTimeout}
    (place,) = await inserter.insert([placement(0)])
    assert place is not None


async def test_the_latest_deadline_of_those_who_share_counts(world: World) -> None:
    inserter = gathering(world)
    now = world.clock.monotonic_ms()
    world.store.fail("write_pack")
    early, late = (inserter.insert([placement(0)], deadline=now + after_ms) for after_ms in (0, 10_000))
    assert [len(places) for places in await asyncio.gather(early, late)] == [1, 1]
    world.store.fail("write_pack", nth=world.store.made.count("write_pack"))
    never, soon = inserter.insert([placement(0)]), inserter.insert([placement(0)], deadline=now)
    assert [len(places) for places in await asyncio.gather(never, soon)] == [1, 1]


async def test_a_caller_that_gives_up_takes_nobody_with_it(world: World) -> None:
    inserter = gathering(world)
    given_up, kept = (asyncio.ensure_future(inserter.insert([placement(0)])) for _ in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    (place,) = await kept
    assert place is not None
    with pytest.raises(asyncio.CancelledError):
        await given_up
