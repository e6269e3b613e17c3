"""The audit makes the levels agree with `schedules`, at its pace, and is harmless where they do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import time, timedelta

import pytest
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.producer.audit import BATCH, Audit, AuditReport
from tocsin.producer.wishes import Renew
from tocsin.schema.instants import HOUR_MS, SECOND_MS, to_datetime
from tocsin.schema.recurrence import Daily, Every
from tocsin.schema.schedules import ScheduleRow, Spec, State, encode_spec

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
            updated_at=START_MS - 1,
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
