"""The insert rule: an entry ends where its owner will still look, however often the owner is faster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.producer.insert import Place, Placement, WriteLatency
from tocsin.schema.entries import Entry, decode_pack
from tocsin.schema.errors import StoreTimeout, StoreUnavailable
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tocsin.schema.levels import Level
from tocsin.schema.schedules import Marker


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


def entry(ahead_ms: int, schedule_id: str = "s") -> Entry:
    due = START_MS + ahead_ms
    return Entry(schedule_id, due, due, 1, spec=b"spec", payload=b"payload")


async def insert(world: World, *placements: Placement, marks_late: bool = False, **options: int) -> list[Place | None]:
    return await world.inserter(marks_late=marks_late).insert(placements, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ahead_ms", "level"),
    [
        (-HOUR_MS, Level.NEAR),
        (SECOND_MS, Level.NEAR),
        (2 * MINUTE_MS, Level.MINUTE),
        (DAY_MS, Level.MINUTE),
        (3 * DAY_MS, Level.FAR),
    ],
)
async def test_an_entry_goes_to_the_level_of_its_due(world: World, ahead_ms: int, level: Level) -> None:
    (place,) = await insert(world, Placement(entry(ahead_ms)))
    ((found_level, position, found),) = await world.waiting()
    assert place is not None
    assert (place.level, place.position) == (found_level, position) == (level, position)
    assert found == entry(ahead_ms).as_stored(level)
    assert world.store.made.count("read_frontier") in {1, 2}
    assert world.store.made[-2:] == ["write_pack", "read_frontier"]


@pytest.mark.parametrize("marks_late", [False, True])
async def test_a_bucket_sealed_between_write_and_read_demotes_marked(world: World, marks_late: bool) -> None:
    due = entry(2 * MINUTE_MS)
    end = world.levels.end(Level.MINUTE, due.due)
    world.store.meanwhile("write_pack", partial(world.seal, sealed_minute=end))
    (place,) = await insert(world, Placement(due), marks_late=marks_late)
    assert place is not None
    assert place.level is Level.NEAR
    assert place.position == due.due
    assert await world.waiting() == [(Level.MINUTE, due.due, due), (Level.NEAR, due.due, due.marked())]


async def test_whoever_counts_hears_from_which_level_how_much_was_demoted(world: World) -> None:
    heard: list[tuple[Level, int]] = []
    inserter = world.inserter(demoted=lambda level, count: heard.append((level, count)))
    due = entry(2 * MINUTE_MS)
    end = world.levels.end(Level.MINUTE, due.due)
    await inserter.insert([Placement(due)])
    assert heard == []
    world.store.meanwhile("write_pack", partial(world.seal, sealed_minute=end), nth=1)
    await inserter.insert([Placement(due)] * 3)
    assert heard == [(Level.MINUTE, 3)]


async def test_a_bucket_sealed_only_up_to_its_start_is_not_sealed(world: World) -> None:
    due = entry(2 * MINUTE_MS + 5)
    await world.seal(sealed_minute=START_MS + 2 * MINUTE_MS)
    (place,) = await insert(world, Placement(due))
    assert place is not None
    assert place.level is Level.MINUTE


async def test_an_entry_falls_through_all_levels_that_were_sealed_while_it_was_written(world: World) -> None:
    due = entry(3 * DAY_MS)
    world.store.meanwhile("write_pack", partial(world.seal, sealed_far=START_MS + 5 * DAY_MS))
    world.store.meanwhile("write_pack", partial(world.seal, sealed_minute=START_MS + 4 * DAY_MS), nth=1)
    world.store.meanwhile("write_pack", partial(world.seal, sealed_near=due.due), nth=2)
    (place,) = await insert(world, Placement(due))
    assert place is not None
    assert place.level is Level.NEAR
    assert place.position > due.due
    assert [bucket.level for bucket, _ in world.store.packs] == [Level.FAR, Level.MINUTE, Level.NEAR, Level.NEAR]
    bodies = [decode_pack(row.body)[0] for _, row in world.store.packs]
    assert bodies[0] == due.as_stored(Level.FAR)
    assert bodies[1:] == [due.marked()] * 3


async def test_on_near_each_try_lies_further_beyond_the_position_clock(world: World) -> None:
    timing = world.levels.timing
    beyond = []

    async def seal_what_was_written() -> None:
        position = world.store.packs[-1][1].position
        beyond.append(position - await world.frontiers.position_clock(world.levels.shard_range("s")))
        await world.seal(sealed_near=position)

    for nth in range(7):
        world.store.meanwhile("write_pack", seal_what_was_written, nth=nth)
    (place,) = await insert(world, Placement(entry(0)))
    assert place is not None
    assert place.frontier.sealed_near < place.position
    assert beyond == [min(timing.margin_ms << tries, timing.margin_ms_max) for tries in range(7)]


async def test_near_positions_follow_the_seal_and_no_wall_clock(world: World) -> None:
    await world.seal(sealed_near=START_MS + HOUR_MS)
    world.clock.step(-DAY_MS)
    (place,) = await insert(world, Placement(entry(0)))
    assert place is not None
    timing = world.levels.timing
    assert place.position == START_MS + HOUR_MS + timing.tick_ms + timing.margin_ms


async def test_a_write_that_times_out_is_made_again_with_the_same_pack(world: World) -> None:
    world.store.fail("write_pack", applied=True)
    world.store.fail("write_pack", nth=1, applied=False)
    world.store.fail("write_pack", nth=2, applied=True)
    await insert(world, Placement(entry(2 * MINUTE_MS)))
    assert world.store.made.count("write_pack") == 4
    assert len({row for _, row in world.store.packs}) == 1
    assert len(await world.waiting()) == 1


async def test_a_frontier_that_cannot_be_read_is_read_again_and_never_taken_as_open(world: World) -> None:
    await world.seal(sealed_minute=START_MS + HOUR_MS)
    for nth in range(3):
        world.store.fail("read_frontier", nth=nth, error=StoreUnavailable())
    (place,) = await insert(world, Placement(entry(2 * MINUTE_MS)))
    assert place is not None
    assert place.level is Level.NEAR


async def test_every_frontier_read_begins_after_the_write_it_judges(world: World) -> None:
    end = START_MS + HOUR_MS
    world.store.meanwhile("write_pack", partial(world.seal, sealed_minute=end))
    await insert(world, Placement(entry(2 * MINUTE_MS)))
    made = [name for name in world.store.made if name != "server_times_ms"]
    assert made[:2] == ["write_pack", "read_frontier"]
    assert made[-2:] == ["write_pack", "read_frontier"]


@given(
    st.lists(st.integers(-HOUR_MS, 5 * DAY_MS), min_size=1, max_size=6),
    st.lists(st.tuples(st.sampled_from(["sealed_far", "sealed_minute", "sealed_near"]), st.integers(0, 6 * DAY_MS))),
)
@settings(max_examples=40)
def test_whatever_is_sealed_meanwhile_each_entry_ends_where_its_owner_will_look(
    aheads: list[int], seals: list[tuple[str, int]]
) -> None:
    async def insert_while_sealing() -> None:
        async with a_world() as world:
            for nth, (register, ahead_ms) in enumerate(seals):
                world.store.meanwhile("write_pack", partial(world.seal, **{register: START_MS + ahead_ms}), nth=nth)
            wanted = [entry(ahead_ms) for ahead_ms in aheads]
            places = await insert(world, *map(Placement, wanted))
            lying = await world.waiting()
            frontier = await world.store.inner.read_frontier(world.levels.shard_range("s"))
            for each, place in zip(wanted, places, strict=True):
                assert place is not None
                assert place.frontier.sealed(place.level) < world.levels.end(place.level, place.position)
                copies = [(level, found) for level, _, found in lying if found.due == each.due]
                assert place.level in {level for level, _ in copies}
                sealed_away = [level for level, _ in copies if level is not place.level]
                assert all(frontier.sealed(level) > START_MS for level in sealed_away)

    asyncio.run(insert_while_sealing())


# Sources


async def test_a_source_that_is_committed_stops_the_repeat(world: World) -> None:
    await world.seal(committed=START_MS + 500)
    places = await insert(
        world, Placement(entry(SECOND_MS, "s"), source=START_MS + 500), Placement(entry(SECOND_MS, "s"), START_MS + 501)
    )
    assert places[0] is None
    assert places[1] is not None


async def test_a_source_that_is_committed_ends_the_demotions(world: World) -> None:
    async def overtake() -> None:
        await world.seal(sealed_minute=START_MS + HOUR_MS, committed=START_MS + 500)

    world.store.meanwhile("write_pack", overtake)
    assert await insert(world, Placement(entry(2 * MINUTE_MS), source=START_MS + 500)) == [None]
    assert len(world.store.packs) == 1


async def test_a_cascade_compares_its_day_with_committed_far(world: World) -> None:
    day = START_MS + 3 * DAY_MS
    placement = Placement(entry(2 * MINUTE_MS), source=day)
    await world.seal(committed=day, committed_far=day - 1)
    (place,) = await world.inserter().insert([placement], cascade=True)
    assert place is not None
    await world.seal(committed_far=day)
    assert await world.inserter().insert([placement], cascade=True) == [None]


# Deadlines


async def test_past_the_deadline_the_last_error_is_raised(world: World) -> None:
    for nth in range(100):
        world.store.fail("write_pack", nth=nth)
    deadline = world.clock.monotonic_ms() + 5_000
    with pytest.raises(StoreTimeout):
        await insert(world, Placement(entry(2 * MINUTE_MS)), deadline=deadline)
    assert world.clock.monotonic_ms() <= deadline


async def overtaken_for_ever(world: World, name: str, tries: int) -> None:
    """Each write takes a second, and near is sealed beyond it every time."""

    async def seal_far_beyond() -> None:
        world.clock.turn(SECOND_MS)
        await world.seal(sealed_near=START_MS + HOUR_MS * world.store.made.count(name))

    for nth in range(tries):
        world.store.meanwhile(name, seal_far_beyond, nth=nth)


async def test_a_client_that_is_overtaken_again_and_again_ends_at_its_deadline(world: World) -> None:
    await overtaken_for_ever(world, "write_pack", 30)
    with pytest.raises(StoreTimeout):
        await insert(world, Placement(entry(0)), deadline=world.clock.monotonic_ms() + 10_000)
    assert len(world.store.packs) <= 11


async def test_a_change_marker_that_is_overtaken_again_and_again_ends_at_its_deadline(world: World) -> None:
    await overtaken_for_ever(world, "write_marker", 30)
    with pytest.raises(StoreTimeout):
        await insert_marker(world, deadline=world.clock.monotonic_ms() + 10_000)
    assert len(world.store.markers) <= 11


async def test_a_re_arm_that_is_overtaken_goes_on_until_it_is_not(world: World) -> None:
    await overtaken_for_ever(world, "write_pack", 30)
    (place,) = await insert(world, Placement(entry(0)))
    assert place is not None
    assert len(world.store.packs) == 31


# Late marks


async def test_a_dispatcher_marks_what_lies_later_than_its_due_and_a_client_does_not(world: World) -> None:
    await insert(world, Placement(entry(SECOND_MS, "a")), Placement(entry(-SECOND_MS, "b")), marks_late=True)
    await insert(world, Placement(entry(-SECOND_MS, "c")))
    marks = {}
    for schedule_id in "abc":
        ((_, _, found),) = await world.waiting(schedule_id)
        marks[schedule_id] = found.verify
    assert marks == {"a": False, "b": True, "c": False}


async def test_a_delay_moves_a_position_and_never_the_due(world: World) -> None:
    timing = world.levels.timing
    (place,) = await insert(world, Placement(entry(0), delay_ms=5_000, level=Level.NEAR))
    ((_, position, found),) = await world.waiting()
    assert place is not None
    assert position == place.position == START_MS + timing.tick_ms + timing.margin_ms + 5_000
    assert found.due == START_MS


# Many at once


async def test_every_entry_of_many_waits_exactly_once_and_places_come_in_order(world: World) -> None:
    aheads = [SECOND_MS, 2 * MINUTE_MS, 2 * MINUTE_MS + 1, HOUR_MS, 3 * DAY_MS]
    wanted = [entry(aheads[number % 5], f"id-{number}") for number in range(300)]
    places = await insert(world, *map(Placement, wanted))
    for each, place in zip(wanted, places, strict=True):
        ((level, _, found),) = await world.waiting(each.schedule_id)
        assert place is not None
        assert level is place.level
        assert found == each.as_stored(level)
    assert world.store.made.count("read_frontier") <= 2 * world.levels.shard_ranges
    assert len(world.store.packs) < 100


async def test_entries_of_one_near_tick_share_a_pack_at_their_lowest_position(world: World) -> None:
    await insert(world, *(Placement(entry(2_000 + number, "s")) for number in range(190)))
    ((_, row),) = world.store.packs
    assert row.position == START_MS + 2_000
    assert len(decode_pack(row.body)) == 190


async def test_nothing_is_written_further_out_than_the_limit(world: World) -> None:
    limit = START_MS + world.levels.timing.far_limit_ms
    (place,) = await insert(world, Placement(entry(900 * DAY_MS)))
    ((level, position, found),) = await world.waiting()
    assert place is not None
    assert (level, position, found.due) == (Level.FAR, limit, START_MS + 900 * DAY_MS)


async def test_nothing_to_insert_asks_nothing(world: World) -> None:
    assert await insert(world) == []
    assert world.store.made == []


# Change markers


async def insert_marker(world: World, deadline: int | None = None) -> tuple[Place, Marker]:
    def marker_at(position: int) -> Marker:
        return Marker(schedule_id="s", version=2, from_ms=0, until_ms=position + 7, verify=False)

    return await world.inserter().insert_marker(world.levels.shard_range("s"), marker_at, deadline=deadline)


async def test_a_change_marker_that_was_overtaken_is_written_again_further_on(world: World) -> None:
    async def overtake() -> None:
        await world.seal(sealed_near=world.store.markers[-1].position)

    world.store.meanwhile("write_marker", overtake)
    place, marker = await insert_marker(world)
    positions = [placed.position for placed in world.store.markers]
    assert positions == sorted(set(positions))
    assert len(positions) == 2
    assert place.position == positions[-1]
    assert place.frontier.sealed_near < place.position
    assert marker.until_ms == place.position + 7


def test_the_latency_of_recent_writes_is_what_counts() -> None:
    latency = WriteLatency()
    assert latency.p99_ms(0) == 0
    latency.took(900, 0)
    for now in range(1, 100):
        latency.took(5, now)
    assert latency.p99_ms(100) == 900
    assert latency.p99_ms(WriteLatency.RECENT_MS + 1) == 5
    assert latency.p99_ms(2 * WriteLatency.RECENT_MS) == 0
