"""Rates: a tenant is told when to come back, a topic gets its share, and nobody else waits for either."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from unit.manual_clock import ManualClock

from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.dispatcher.rate_limit import WAIT_MS_MAX, RateLimit
from tocsin.dispatcher.virtual_loop import VirtualClock, VirtualLoop
from tocsin.producer import quotas as quotas_module
from tocsin.producer.definition import NewSchedule
from tocsin.producer.quotas import Quotas, TokenBucket
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.errors import Overloaded, SettingsError
from tocsin.schema.open_store import open_store
from tocsin.schema.recurrence import Every

EVERY = Every(timedelta(hours=1))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_bucket_gives_a_seconds_worth_at_once_and_then_its_rate() -> None:
    bucket = TokenBucket(4, 0)
    for _ in range(4):
        assert bucket.wait_ms(0) == 0
        bucket.take(0)
    assert bucket.wait_ms(0) == 250
    assert bucket.wait_ms(200) == 50
    assert bucket.wait_ms(250) == 0
    bucket.take(10_000, 12)
    assert bucket.wait_ms(10_000) == 2_250


def test_a_tenant_over_its_rate_is_told_when_to_come_back(clock: ManualClock) -> None:
    quotas = Quotas({"*": 2, "large": 100}, clock)
    quotas.require("small")
    quotas.require("small")
    with pytest.raises(Overloaded) as refused:
        quotas.require("small")
    quotas.require("other")
    for _ in range(100):
        quotas.require("large")
    clock.turn(refused.value.retry_after_ms)
    quotas.require("small")


def test_without_a_rate_nobody_is_limited(clock: ManualClock) -> None:
    quotas = Quotas({"small": 1}, clock)
    for _ in range(1_000):
        quotas.require("other")


def test_tenants_are_forgotten_only_when_it_changes_nothing(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas_module, "TENANTS_MAX", 3)
    quotas = Quotas({"*": 1}, clock)
    quotas.require("spent")
    clock.turn(500)
    for number in range(10):
        quotas.require(f"t{number}")
        if number < 4:
            with pytest.raises(Overloaded):
                quotas.require("spent")


@pytest.mark.parametrize("rate", [0, -1, 1.5, True])
def test_a_rate_that_is_none_is_refused(clock: ManualClock, rate: int) -> None:
    with pytest.raises(SettingsError, match="whole number from 1 on"):
        Quotas({"a": rate}, clock)
    with pytest.raises(SettingsError, match="whole number from 1 on"):
        RateLimit(Behind(), {"a": rate}, clock)


async def test_create_refuses_and_create_many_waits(clock: ManualClock) -> None:
    store = open_store("sqlite:///:memory:", clock=clock, create=True)
    await store.open()
    scheduler = AsyncScheduler(store, clock=clock, creates_per_second={"*": 3})
    for number in range(3):
        await scheduler.create(f"s{number}", EVERY, topic="t")
    with pytest.raises(Overloaded):
        await scheduler.create("s3", EVERY, topic="t")
    began = clock.monotonic_ms()
    results = [
        result
        async for result in scheduler.create_many(
            NewSchedule(schedule_id=f"m{number}", recurrence=EVERY, topic="t") for number in range(9)
        )
    ]
    assert [result.error for result in results] == [None] * 9
    assert clock.monotonic_ms() - began >= 2_900
    await store.close()


class Behind:
    """A publisher that keeps what it gets, and when."""

    def __init__(self) -> None:
        self.got: list[tuple[int, str]] = []
        self.clock: VirtualClock | None = None

    async def start(self) -> None: ...

    async def close(self, timeout_ms: int) -> None: ...

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        assert self.clock is not None
        self.got += [(self.clock.monotonic_ms(), record.topic) for record in records]
        return [Outcome.ACKED] * len(records)


def records(topic: str, count: int) -> list[Record]:
    return [Record(topic=topic, key=b"k", value=b"", headers=[], partition_key=b"k") for _ in range(count)]


def test_a_limited_topic_is_late_and_another_is_not() -> None:
    loop = VirtualLoop()
    behind = Behind()
    behind.clock = clock = VirtualClock(loop, 0)
    limit = RateLimit(behind, {"slow": 100}, clock)

    async def herd() -> list[Sequence[Outcome]]:
        batches = [limit.publish(records("slow", 100)) for _ in range(10)]
        return list(await asyncio.gather(*batches, limit.publish(records("quick", 500))))

    answers = loop.run_until_complete(herd())
    loop.close()

    slow = [at for at, topic in behind.got if topic == "slow"]
    assert {at for at, topic in behind.got if topic == "quick"} == {0}
    assert max(sum(start <= at < start + 1_000 for at in slow) for start in slow) <= 200
    parked = sum(answer[0] is Outcome.TOPIC_FAILING for answer in answers)
    assert len(slow) + 100 * parked == 1_000
    assert parked == 10 - len(slow) // 100 > 0
    assert max(slow) <= WAIT_MS_MAX + 10
