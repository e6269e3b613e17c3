"""Write ahead, commit, confirm: whatever a client lives to see of it, the range ends as `schedules` says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import msgspec
import pytest
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.dispatcher.verification import Answer, judge_entry, judge_marker
from tocsin.producer.change import JUST_NOW_MS, Committed, Wish
from tocsin.producer.definition import NewSchedule
from tocsin.producer.wishes import Cancel, Create, Pause, Resume, Update
from tocsin.schema.entries import occurrence_key
from tocsin.schema.errors import InstantInPast, OutcomeUnknown, ScheduleExists, StoreUnavailable, VersionConflict
from tocsin.schema.instants import DAY_MS, MINUTE_MS, SECOND_MS, to_datetime
from tocsin.schema.levels import Level
from tocsin.schema.recurrence import AnyRecurrence, Every, Once
from tocsin.schema.schedules import REPLACED_MAX, ScheduleRow, State

GRACE_MS = 60_000
TIMEOUT_MS = 10_000
MINUTELY = Every(timedelta(minutes=1))
IN_A_SECOND = Once(to_datetime(START_MS + SECOND_MS))
IN_THREE_DAYS = Once(to_datetime(START_MS + 3 * DAY_MS))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


def create(recurrence: AnyRecurrence = MINUTELY, *, payload: bytes = b"p") -> Create:
    return Create(NewSchedule(schedule_id="s", recurrence=recurrence, topic="t", payload=payload), GRACE_MS)


def update(**changes: object) -> Update:
    return Update("s", changes, grace_ms=GRACE_MS)


async def make(world: World, wish: Wish) -> Committed:
    deadline = world.clock.monotonic_ms() + TIMEOUT_MS
    return await world.changes().make("s", wish, deadline=deadline)


async def row_now(world: World) -> ScheduleRow | None:
    return (await world.store.inner.read_schedules(["s"])).get("s")


async def counting(world: World) -> set[tuple[int, int, bytes]]:
    """(scheduled_for, version, payload) of what an owner would let count, markers and verification included."""
    row = await row_now(world)
    markers = [
        placed.marker
        for placed in world.store.markers
        if not placed.marker.verify or judge_marker(placed.marker, row) is Answer.COUNTS
    ]
    counts = set()
    for _, _, entry in await world.waiting():
        if entry.verify and judge_entry(entry, row).answer is not Answer.COUNTS:
            continue
        if not any(marker.ends(entry.version, entry.scheduled_for) for marker in markers):
            whole = entry if entry.spec or row is None else msgspec.structs.replace(entry, payload=row.payload)
            counts.add((entry.scheduled_for, entry.version, whole.payload))
    return counts


# The three steps


async def test_a_create_writes_ahead_commits_and_confirms(world: World) -> None:
    committed = await make(world, create())
    made = [name for name in world.store.made if name in {"write_pack", "insert_schedule"}]
    assert made == ["write_pack", "insert_schedule", "write_pack"]
    first, second = [entry for _, _, entry in await world.waiting()]
    assert (first.verify, second.verify) == (True, False)
    assert first == second.marked()
    assert second.scheduled_for == START_MS
    assert committed.row == await row_now(world)
    assert (committed.previous, committed.uncertain) == (None, ())


async def test_a_far_pointer_is_not_confirmed_for_it_is_verified_anyway(world: World) -> None:
    await make(world, create(IN_THREE_DAYS))
    assert [(level, entry.verify) for level, _, entry in await world.waiting()] == [(Level.FAR, True)]


async def test_a_far_pointer_is_confirmed_where_its_day_was_sealed_meanwhile(world: World) -> None:
    world.store.meanwhile("insert_schedule", partial(world.seal, sealed_far=START_MS + 5 * DAY_MS))
    await make(world, create(IN_THREE_DAYS))
    assert [level for level, _, _ in await world.waiting()] == [Level.FAR, Level.FAR, Level.MINUTE]


async def test_a_cancel_marks_its_marker_until_it_is_committed(world: World) -> None:
    created = await make(world, create())
    committed = await make(world, Cancel("s"))
    assert [placed.marker.verify for placed in world.store.markers] == [True, False]
    for placed in world.store.markers:
        assert placed.marker.version == committed.row.version > created.row.version
        assert placed.marker.from_ms == 0
        assert placed.marker.until_ms > placed.position
    assert await counting(world) == set()


async def test_an_update_keeps_what_was_nominal_before_it(world: World) -> None:
    created = await make(world, create())
    world.clock.turn(90 * SECOND_MS)
    updated = await make(world, update(payload=b"q"))
    assert updated.row.replaced == ((created.row.version, START_MS + 90 * SECOND_MS),)
    assert await counting(world) == {
        (START_MS, created.row.version, b"p"),
        (START_MS + 2 * MINUTE_MS, updated.row.version, b"q"),
    }


async def test_a_row_remembers_the_last_versions_and_each_later_end_is_the_smaller(world: World) -> None:
    await make(world, create())
    ends = []
    for number in range(REPLACED_MAX + 3):
        world.clock.turn(MINUTE_MS)
        committed = await make(world, update(payload=str(number).encode()))
        ends.append(committed.row.since)
    assert len(committed.row.replaced) == REPLACED_MAX
    assert [end for _, end in committed.row.replaced] == ends[: -REPLACED_MAX - 1 : -1]
    paused = await make(world, Pause("s", ""))
    assert {end for _, end in paused.row.replaced} == {0}


async def test_versions_rise_even_where_the_clock_goes_back(world: World) -> None:
    created = await make(world, create())
    world.clock.step(-MINUTE_MS)
    await world.store_clock.refresh()
    paused = await make(world, Pause("s", ""))
    assert paused.row.version > created.row.version


async def test_two_callers_of_one_millisecond_write_different_versions(world: World) -> None:
    await make(world, create())
    other = {}

    async def overtake() -> None:
        other["row"] = (await make(world, update(payload=b"theirs"))).row

    world.store.meanwhile("read_schedules", overtake, nth=1)
    with pytest.raises(VersionConflict):
        await make(world, update(payload=b"mine"))
    assert b"mine" not in {payload for _, _, payload in await counting(world)}


# Answers


async def test_a_cancel_well_ahead_has_prevented_everything(world: World) -> None:
    await make(world, create(Once(to_datetime(START_MS + 5_000))))
    assert (await make(world, Cancel("s"))).uncertain == ()


async def test_a_cancel_names_what_may_have_been_dispatched_just_now(world: World) -> None:
    await make(world, create(Once(to_datetime(START_MS + 100))))
    committed = await make(world, Cancel("s"))
    assert committed.uncertain == (occurrence_key("s", START_MS + 100),)


async def test_what_is_committed_is_no_longer_uncertain(world: World) -> None:
    await make(world, create(Once(to_datetime(START_MS + 100))))
    world.clock.turn(100 + JUST_NOW_MS)
    await world.seal(committed=START_MS + 100, sealed_near=START_MS + 300)
    assert (await make(world, Cancel("s"))).uncertain == ()


async def test_what_went_out_a_moment_ago_is_named_though_it_is_committed(world: World) -> None:
    await make(world, create(Once(to_datetime(START_MS + 100))))
    world.clock.turn(50 + JUST_NOW_MS)
    await world.seal(committed=START_MS + 100, sealed_near=START_MS + 300)
    assert (await make(world, Cancel("s"))).uncertain == (occurrence_key("s", START_MS + 100),)


async def test_what_is_dispatched_late_while_the_row_is_read_is_uncertain(world: World) -> None:
    await make(world, create(Once(to_datetime(START_MS + 100))))
    world.clock.turn(10 * JUST_NOW_MS)
    world.store.meanwhile("read_frontier", lambda: world.seal(committed=START_MS + 100), nth=1)
    assert (await make(world, Cancel("s"))).uncertain == (occurrence_key("s", START_MS + 100),)


async def test_what_is_dispatched_while_the_change_is_made_is_uncertain_and_not_prevented(world: World) -> None:
    await make(world, create(Once(to_datetime(START_MS + 100))))

    async def dispatch() -> None:
        world.clock.turn(300)
        await world.seal(committed=START_MS + 200, sealed_near=START_MS + 300)

    world.store.meanwhile("replace_schedule", dispatch)
    assert (await make(world, Cancel("s"))).uncertain == (occurrence_key("s", START_MS + 100),)


async def test_a_resume_cannot_have_dispatched_anything_before(world: World) -> None:
    await make(world, create())
    await make(world, Pause("s", ""))
    world.clock.turn(MINUTE_MS)
    assert (await make(world, Resume("s", None, GRACE_MS))).uncertain == ()


# Unknown outcomes


async def test_a_commit_that_timed_out_and_holds_is_recognised_by_its_token(world: World) -> None:
    world.store.fail("insert_schedule", applied=True)
    committed = await make(world, create())
    assert world.store.made.count("insert_schedule") == 1
    assert committed.row == await row_now(world)
    assert len(await counting(world)) == 1


async def test_a_commit_that_timed_out_and_does_not_hold_is_made_anew(world: World) -> None:
    world.store.fail("insert_schedule", applied=False)
    committed = await make(world, create())
    assert world.store.made.count("insert_schedule") == 2
    assert {version for _, version, _ in await counting(world)} == {committed.row.version}


async def test_a_commit_that_arrives_later_than_its_own_repeat_is_recognised(world: World) -> None:
    """The first conditional write is delayed past the serial read; the second one then meets it."""
    late = []
    insert = world.store.inner.insert_schedule

    async def delayed(row: ScheduleRow) -> ScheduleRow | None:
        late.append(row)
        if len(late) == 1:
            raise StoreUnavailable
        await insert(late[0])
        return await insert(row)

    world.store.inner.insert_schedule = delayed  # type: ignore[method-assign]
    committed = await make(world, create())
    assert committed.row.token == late[0].token
    assert {version for _, version, _ in await counting(world)} == {late[0].version}


async def test_a_refusal_after_a_commit_without_an_answer_is_an_unknown_outcome_for_it_may_hold_yet(
    world: World,
) -> None:
    world.store.fail("insert_schedule", applied=False)
    world.store.meanwhile("read_schedules", lambda: turned(world, 2 * SECOND_MS), nth=1)
    once = Create(NewSchedule(schedule_id="s", recurrence=IN_A_SECOND, topic="t", payload=b"p"), grace_ms=0)
    with pytest.raises(OutcomeUnknown) as unknown:
        await make(world, once)
    assert isinstance(unknown.value.__cause__, InstantInPast)


async def test_a_refusal_after_a_commit_that_was_beaten_is_a_refusal(world: World) -> None:
    async def overtake() -> None:
        await make(world, create(payload=b"theirs"))

    world.store.fail("insert_schedule", applied=False)
    world.store.meanwhile("read_schedules", overtake)
    with pytest.raises(ScheduleExists):
        await make(world, create(payload=b"mine"))


async def test_a_writer_that_is_slower_than_the_commit_limit_writes_ahead_again(world: World) -> None:
    limit_ms = world.levels.timing.commit_limit_ms
    world.store.meanwhile("write_pack", lambda: turned(world, limit_ms + 1))
    deadline = world.clock.monotonic_ms() + 3 * limit_ms
    await world.changes().make("s", create(), deadline=deadline)
    made = [name for name in world.store.made if name in {"write_pack", "insert_schedule"}]
    assert made == ["write_pack", "write_pack", "insert_schedule", "write_pack"]


async def turned(world: World, duration_ms: int) -> None:
    world.clock.turn(duration_ms)


async def test_another_writer_that_was_first_is_seen(world: World) -> None:
    async def overtake() -> None:
        await make(world, create(payload=b"theirs"))

    world.store.meanwhile("read_schedules", overtake)
    with pytest.raises(ScheduleExists):
        await make(world, create(payload=b"mine"))
    row = await row_now(world)
    assert row is not None
    assert row.payload == b"theirs"
    assert {payload for _, _, payload in await counting(world)} == {b"theirs"}


async def test_a_store_that_answers_nothing_changes_nothing(world: World) -> None:
    world.store.dies_at = (0, False)
    with pytest.raises(StoreUnavailable):
        await make(world, create())
    assert await row_now(world) is None
    assert world.store.packs == []


# A client that dies at any of its calls, and one that comes back


class Story(NamedTuple):
    """A change, and what has to be before it."""

    before: tuple[Wish, ...]
    wish: Callable[[], Wish]
    state: State
    payload: bytes


STORIES = {
    "create": Story((), create, State.ACTIVE, b"p"),
    "create soon": Story((), lambda: create(IN_A_SECOND), State.ACTIVE, b"p"),
    "create far": Story((), lambda: create(IN_THREE_DAYS), State.ACTIVE, b"p"),
    "update": Story((create(),), lambda: update(payload=b"q"), State.ACTIVE, b"q"),
    "pause": Story((create(),), lambda: Pause("s", ""), State.PAUSED, b"p"),
    "resume": Story((create(), Pause("s", "")), lambda: Resume("s", None, GRACE_MS), State.ACTIVE, b"p"),
    "cancel": Story((create(),), lambda: Cancel("s"), State.CANCELLED, b"p"),
    "cancel far": Story((create(IN_THREE_DAYS),), lambda: Cancel("s"), State.CANCELLED, b"p"),
}
CALLS_MAX = 12


async def dies(world: World, story: Story, at: int, *, applied: bool) -> bool:
    """Make the change; from its call number `at` on the store answers no more. False: it had fewer calls."""
    for wish in story.before:
        await make(world, wish)
        world.clock.turn(SECOND_MS)
    begun = len(world.store.made)
    world.store.dies_at = (begun + at, applied)
    try:
        await make(world, story.wish())
    except (OutcomeUnknown, StoreUnavailable):
        return True
    finally:
        world.store.dies_at = None
        world.clock.turn(SECOND_MS)
    return False


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("name", STORIES)
async def test_a_client_that_dies_leaves_a_range_that_is_as_its_row_says(name: str, applied: bool) -> None:
    story = STORIES[name]
    for at in range(CALLS_MAX):
        async with a_world() as world:
            died = await dies(world, story, at, applied=applied)
            row = await row_now(world)
            of_row = {version for _, version, _ in await counting(world)} if row else set()
            if row is None:
                assert await counting(world) == set()
            elif row.state is State.ACTIVE:
                assert row.version in of_row
                assert of_row <= {row.version, *(version for version, _ in row.replaced)}
            else:
                assert of_row == set()
        if not died:
            assert at > 2
            return
    pytest.fail("the change makes more calls than are tried")


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("name", STORIES)
async def test_a_repeated_call_ends_as_if_the_first_had_lived(name: str, applied: bool) -> None:
    story = STORIES[name]
    for at in range(CALLS_MAX):
        async with a_world() as world:
            died = await dies(world, story, at, applied=applied)
            committed = await make(world, story.wish())
            row = await row_now(world)
            assert row == committed.row
            assert (row.state, row.payload) == (story.state, story.payload)
            assert await unmarked_or_far(world) >= ({row.version} if row.state is State.ACTIVE else set())
            current = {version for _, version, _ in await counting(world)}
            assert (row.version in current) is (row.state is State.ACTIVE)
            confirmed = {placed.marker.version for placed in world.store.markers if not placed.marker.verify}
            assert not row.replaced or row.version in confirmed
        if not died:
            return
    pytest.fail("the change makes more calls than are tried")


async def unmarked_or_far(world: World) -> set[int]:
    return {entry.version for level, _, entry in await world.waiting() if not entry.verify or level is Level.FAR}
