"""The audit makes the levels agree with `schedules`, at its pace, and is harmless where they do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, time, timedelta

import msgspec
import pytest
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.producer.audit import BATCH, Audit, AuditReport
from tocsin.producer.definition import NewSchedule
from tocsin.producer.wishes import Create, Renew
from tocsin.schema.instants import HOUR_MS, SECOND_MS, to_datetime
from tocsin.schema.recurrence import Daily, Every, Once
from tocsin.schema.schedules import ScheduleRow, Spec, State, encode_spec
from tocsin.schema.timing import Timing

HOURLY = encode_spec(Spec(recurrence=Every(timedelta(hours=1), anchor=to_datetime(START_MS + HOUR_MS)), topic="t"))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


async def keep(
    world: World,
    count: int,
    state: State = State.ACTIVE,
    *,
    until: int = 0,
    prefix: str = "s",
    spec: bytes = HOURLY,
    since: int = START_MS,
    updated_at: int = START_MS - 1,
) -> None:
    for number in range(count):
        row = ScheduleRow(
            schedule_id=f"{prefix}{number}",
            version=7,
            token=b"t",
            state=state,
            since=since,
            replaced=((6, 0),) if until else (),
            until=until,
            spec=spec,
            created_at=START_MS,
            updated_at=updated_at,
        )
        assert await world.store.inner.insert_schedule(row) is None


def audit(world: World, per_second: int = 1000) -> Audit:
    return Audit(
        world.store,  # type: ignore[arg-type]
        world.levels,
        world.inserter(),
        store_clock=world.store_clock,
        clock=world.clock,
        per_second=per_second,
    )


async def walked(world: World, segments: int = 1, per_second: int = 1000) -> AuditReport:
    report = AuditReport()
    for segment in range(segments):
        await audit(world, per_second).walk(segment, segments, report)
    return report


@pytest.mark.parametrize("segments", [1, 3])
async def test_every_active_schedule_is_armed_and_each_is_counted(world: World, segments: int) -> None:
    await keep(world, 5)
    await keep(world, 2, State.PAUSED, prefix="p")
    report = await walked(world, segments)
    assert report.count == 7
    assert report.checked == {("default", "active"): 5, ("default", "paused"): 2}
    assert report.armed == {"default": 5}
    assert [entry.scheduled_for for _, _, entry in await world.waiting("s3")] == [START_MS + HOUR_MS]
    assert await world.waiting("p0") == []


async def test_what_was_dispatched_already_is_left_alone(world: World) -> None:
    await keep(world, 1)
    await world.seal("s0", committed=START_MS + HOUR_MS)
    assert (await walked(world)).armed.total() == 0


async def test_the_marker_of_a_change_that_may_still_matter_is_repeated(world: World) -> None:
    await keep(world, 1, State.CANCELLED, until=START_MS + HOUR_MS)
    await keep(world, 1, State.CANCELLED, until=START_MS - 1, prefix="old")
    assert (await walked(world)).strays == {"default": 1}
    ((_, marker),) = world.store.markers
    assert (marker.schedule_id, marker.version, marker.from_ms, marker.verify) == ("s0", 7, 0, False)


async def test_the_walk_keeps_to_its_rate(world: World) -> None:
    await keep(world, 2 * BATCH)
    began = world.clock.monotonic_ms()
    await walked(world, per_second=BATCH)
    assert world.clock.monotonic_ms() - began >= 2 * SECOND_MS


async def test_progress_is_told_after_each_batch(world: World) -> None:
    await keep(world, BATCH + 1)
    told: list[int] = []
    await audit(world).walk(0, 1, AuditReport(), progress=lambda report: told.append(report.count))
    assert told[-1] == BATCH + 1
    assert len(told) > 1


async def test_a_read_that_times_out_is_repeated(world: World) -> None:
    await keep(world, 1)
    world.store.fail("read_schedules")
    assert (await walked(world)).armed.total() == 1


async def test_schedules_of_one_zone_get_a_new_version_that_ends_what_waits_by_old_rules(world: World) -> None:
    await keep(world, 1)
    berlin = encode_spec(Spec(recurrence=Daily(time(9), tz="Europe/Berlin"), topic="t"))
    await keep(world, 2, prefix="b", spec=berlin)
    await keep(world, 1, State.PAUSED, prefix="p", spec=berlin)
    changes, asked_at = world.changes(), world.store_clock.now_ms()

    async def renew(row: ScheduleRow) -> None:
        await changes.make(
            row.schedule_id, Renew(row.schedule_id, asked_at), deadline=world.clock.monotonic_ms() + 9_000
        )

    report = await audit(world).walk(0, 1, AuditReport(), zone="Europe/Berlin", renew=renew)

    rows = await world.store.inner.read_schedules(["s0", "b0", "b1", "p0"])
    assert report.moved == {"default": 2}
    assert report.checked == {("default", "active"): 2, ("default", "paused"): 1}
    assert [rows[name].version > 7 for name in ("s0", "b0", "b1", "p0")] == [False, True, True, False]
    assert rows["b0"].replaced == ((7, rows["b0"].since),)
    assert {marker.schedule_id for _, marker in world.store.markers if not marker.verify} == {"b0", "b1"}


async def test_a_schedule_renewed_since_is_left_alone(world: World) -> None:
    await keep(world, 1)
    wish = Renew("s0", START_MS)
    deadline = world.clock.monotonic_ms() + 9_000
    first = await world.changes().make("s0", wish, deadline=deadline)
    second = await world.changes().make("s0", Renew("s0", first.row.updated_at), deadline=deadline)
    assert first.row.version == second.row.version > 7


async def test_what_is_owed_is_armed_at_its_own_due_however_late(world: World) -> None:
    await keep(world, 3)
    theirs = {world.levels.shard_range("s1"): START_MS - 3 * HOUR_MS}
    for name in ("s0", "s1", "s2"):
        await world.seal(name, committed=START_MS - 3 * HOUR_MS)
    since = START_MS - 30 * HOUR_MS
    await keep(world, 1, prefix="s1x", since=since)

    report = await audit(world).walk_owed(0, 1, AuditReport(), committed=theirs)

    armed = [entry.scheduled_for for _, _, entry in await world.waiting("s1")]
    assert armed == [START_MS + HOUR_MS]
    assert report.count == sum(world.levels.shard_range(name) in theirs for name in ("s0", "s1", "s2", "s1x0"))


async def test_a_rule_that_a_newer_release_wrote_is_counted_and_left_alone(world: World) -> None:
    await keep(world, 1, spec=b'{"recurrence":{"type":"lunar"},"topic":"t"}')
    await keep(world, 1, prefix="t")
    report = await walked(world)
    assert report.unreadable == {"default": 1}
    assert report.armed.total() == 1


KEPT_MS = Timing().ended_kept_ms


@pytest.mark.parametrize(
    ("state", "spec", "ended"),
    [
        (State.CANCELLED, HOURLY, True),
        (State.PAUSED, HOURLY, False),
        (State.ACTIVE, HOURLY, False),
        (State.ACTIVE, encode_spec(Spec(recurrence=Once(to_datetime(START_MS - KEPT_MS - 1)), topic="t")), True),
        (State.ACTIVE, encode_spec(Spec(recurrence=Once(to_datetime(START_MS - KEPT_MS + 99)), topic="t")), False),
        # Beyond 2038, where a time to live of 32 bits would have wrapped, and beyond the 20 years one may have.
        (State.ACTIVE, encode_spec(Spec(recurrence=Once(datetime(2090, 1, 1, tzinfo=UTC)), topic="t")), False),
        (State.ACTIVE, encode_spec(Spec(recurrence=Daily(time(9), tz="UTC"), topic="t", until=1)), True),
    ],
)
async def test_what_ended_long_ago_leaves_and_what_may_still_run_stays(
    world: World, state: State, spec: bytes, *, ended: bool
) -> None:
    await keep(world, 1, state, spec=spec, since=0, updated_at=START_MS - KEPT_MS - 1)
    report = await walked(world)
    assert report.removed == ({"default": 1} if ended else {})
    assert bool(await world.store.inner.read_schedules(["s0"])) != ended


async def test_who_changes_it_meanwhile_wins(world: World) -> None:
    await keep(world, 1, State.CANCELLED, updated_at=0)
    (row,) = (await world.store.inner.read_schedules(["s0"])).values()
    revived = msgspec.structs.replace(row, version=8, state=State.ACTIVE, updated_at=START_MS)

    async def revive() -> None:
        assert await world.store.inner.replace_schedule(revived, 7) is None

    world.store.meanwhile("read_schedules", revive)
    await walked(world)
    assert await world.store.inner.read_schedules(["s0"]) == {"s0": revived}


async def test_an_id_that_left_may_be_used_again(world: World) -> None:
    await keep(world, 1, State.CANCELLED, updated_at=0)
    await walked(world)
    again = NewSchedule(schedule_id="s0", recurrence=Every(timedelta(hours=1)), topic="t")
    deadline = world.clock.monotonic_ms() + 9_000
    created = await world.changes().make("s0", Create(again, 60_000), deadline=deadline)
    assert created.row.state is State.ACTIVE
    assert [entry.version for _, _, entry in await world.waiting("s0")][-1] == created.row.version
