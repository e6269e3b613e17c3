"""Every fate of an occurrence on every kind of store: what an owner does is done here by hand, then it is asked for."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tocsin import AsyncScheduler, Every, Fate, Once
from tocsin.producer.arming import entry_for
from tocsin.producer.frontiers import Frontiers
from tocsin.producer.insert import Inserter, Placement
from tocsin.schema.clock import StoreClock, SystemClock
from tocsin.schema.entries import Entry, encode_pack, occurrence_key
from tocsin.schema.instants import to_datetime
from tocsin.schema.levels import Levels
from tocsin.schema.schedules import ScheduleRow, decode_spec
from tocsin.schema.store import DeadLetter, Store

from .conftest import SETTINGS, TIMING, Fresh

PERIOD = timedelta(minutes=10)
PERIOD_MS = 600_000


class Owner:
    """Writes what the owner of every range would."""

    def __init__(self, store: Store, clock: StoreClock) -> None:
        self._store = store
        self._levels = Levels(TIMING, SETTINGS.shard_ranges, SETTINGS.layouts)
        numbers = itertools.count(1)
        self._inserter = Inserter(
            store,
            self._levels,
            store_clock=clock,
            clock=SystemClock(),
            frontiers=Frontiers(store, SystemClock(), TIMING),
            new_id=lambda: next(numbers).to_bytes(16),
            marks_late=True,
        )

    async def raise_registers(self, **registers: int) -> None:
        for shard_range in range(SETTINGS.shard_ranges):
            await self._store.write_frontier(shard_range, registers)

    async def row(self, schedule_id: str) -> ScheduleRow:
        return (await self._store.read_schedules([schedule_id]))[schedule_id]

    async def arm(self, entry: Entry, *, delay_ms: int = 0) -> None:
        await self._inserter.insert([Placement(entry, delay_ms=delay_ms)])

    async def give_up(self, row: ScheduleRow, scheduled_for: int, at: int) -> None:
        entry = entry_for(row, decode_spec(row.spec), scheduled_for)
        shard_range = self._levels.shard_range(row.schedule_id)
        letter = DeadLetter(
            shard_range=shard_range,
            at=at,
            occurrence_key=entry.key,
            reason="too_large",
            attempts=1,
            entry=encode_pack([entry]),
        )
        await self._store.write_dead_letter(letter)


@pytest.fixture
async def scheduler(store: Store) -> AsyncIterator[AsyncScheduler]:
    async with AsyncScheduler(store, timing=TIMING, timeout=timedelta(seconds=60)) as scheduler:
        yield scheduler


@pytest.fixture
async def clock(store: Store) -> StoreClock:
    clock = StoreClock(store, SystemClock(), skew_ms_max=TIMING.skew_ms_max)
    await clock.refresh()
    return clock


async def test_each_fate_is_told_as_it_is_stored(
    store: Store, scheduler: AsyncScheduler, clock: StoreClock, fresh: Fresh
) -> None:
    owner, now = Owner(store, clock), clock.now_ms()
    times = [now - 55 * 60_000 + number * PERIOD_MS for number in range(8)]
    await owner.raise_registers(sealed_near=now - 1_000)

    rule = Every(PERIOD, anchor=to_datetime(times[0]))
    chain = fresh.schedule_id()
    await scheduler.create(chain, rule, topic="t", paused=True)
    await scheduler.resume(chain, resume_from=to_datetime(times[0]))
    row = await owner.row(chain)

    def armed(at: int, after: int, *, chosen: int, skipped: str = "") -> Entry:
        entry = entry_for(row, decode_spec(row.spec), times[at], previous=times[after])
        return msgspec.structs.replace(entry, chosen=times[chosen], skipped=skipped)

    await owner.arm(armed(1, 0, chosen=0))
    await owner.arm(armed(2, 1, chosen=1, skipped="excluded"))
    await owner.arm(armed(3, 2, chosen=2))
    await owner.give_up(row, times[2], now)
    await owner.arm(armed(6, 5, chosen=5))

    ended = fresh.schedule_id()
    await scheduler.create(ended, Once(to_datetime(times[6])), topic="t")
    await scheduler.cancel(ended)
    # A client can have sealed its create by a row alone only where what it wrote ahead has left by its time to live.
    lost = msgspec.structs.replace(row, schedule_id=fresh.schedule_id(), since=now)
    await store.insert_fresh_schedule(lost)
    expiring = fresh.schedule_id()
    await scheduler.create(expiring, Once(to_datetime(now)), topic="t", expires_after=timedelta(seconds=1))
    parked = fresh.schedule_id()
    await scheduler.create(parked, Once(to_datetime(now)), topic="t")
    waiting = entry_for(await owner.row(parked), decode_spec((await owner.row(parked)).spec), now)
    await owner.arm(waiting.marked(tries=0), delay_ms=300_000)
    await owner.raise_registers(committed=now + 60_000)

    async def fates(schedule_id: str) -> list[tuple[Fate, str]]:
        until = to_datetime(times[7] + 1)
        statuses = [each async for each in scheduler.occurrences(schedule_id, since=to_datetime(times[0]), until=until)]
        assert [each.key for each in statuses] == [
            occurrence_key(schedule_id, int(each.scheduled_for.timestamp() * 1000 + 0.5)) for each in statuses
        ]
        return [(each.fate, each.reason) for each in statuses]

    assert await fates(chain) == [
        (Fate.DISPATCHED, ""),
        (Fate.SKIPPED, "excluded"),
        (Fate.FAILED, "too_large"),
        (Fate.SKIPPED, "missed"),
        (Fate.SKIPPED, "missed"),
        (Fate.DISPATCHED, ""),
        (Fate.ARMED, ""),
        (Fate.UPCOMING, ""),
    ]
    assert await fates(ended) == [(Fate.CANCELLED, "the schedule was cancelled before")]
    assert {fate for fate, _ in await fates(lost.schedule_id)} == {Fate.STRANDED}
    assert await fates(expiring) == [(Fate.PASSED, "was the last one: dispatched or skipped")]
    assert await fates(parked) == [(Fate.ARMED, "waits for another try")]

    failing = {schedule.schedule_id async for schedule in scheduler.list(failing=True)}
    assert failing == {chain, parked}
    assert datetime.now(UTC) - to_datetime(now) < timedelta(minutes=2), "the test took longer than it allows for"
