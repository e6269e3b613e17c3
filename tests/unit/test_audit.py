"""The audit makes the levels agree with `schedules`, at its pace, and is harmless where they do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.producer.audit import BATCH, Audit, AuditReport
from tocsin.schema.instants import HOUR_MS, SECOND_MS, to_datetime
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import ScheduleRow, Spec, State, encode_spec

HOURLY = encode_spec(Spec(recurrence=Every(timedelta(hours=1), anchor=to_datetime(START_MS + HOUR_MS)), topic="t"))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


async def keep(world: World, count: int, state: State = State.ACTIVE, *, until: int = 0, prefix: str = "s") -> None:
    for number in range(count):
        row = ScheduleRow(
            schedule_id=f"{prefix}{number}",
            version=7,
            token=b"t",
            state=state,
            since=START_MS,
            replaced=((6, 0),) if until else (),
            until=until,
            spec=HOURLY,
            created_at=START_MS,
            updated_at=START_MS,
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
    assert report.armed == 5
    assert [entry.scheduled_for for _, _, entry in await world.waiting("s3")] == [START_MS + HOUR_MS]
    assert await world.waiting("p0") == []


async def test_what_was_dispatched_already_is_left_alone(world: World) -> None:
    await keep(world, 1)
    await world.seal("s0", committed=START_MS + HOUR_MS)
    assert (await walked(world)).armed == 0


async def test_the_marker_of_a_change_that_may_still_matter_is_repeated(world: World) -> None:
    await keep(world, 1, State.CANCELLED, until=START_MS + HOUR_MS)
    await keep(world, 1, State.CANCELLED, until=START_MS - 1, prefix="old")
    assert (await walked(world)).ended == 1
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
    assert (await walked(world)).armed == 1
