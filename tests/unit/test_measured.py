"""Store and publisher are timed from outside, and what they leave open is counted, without changing what they do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from unit.manual_clock import ManualClock

from tocsin.dispatcher.measured import CallMetrics, MeasuredPublisher, measured_store
from tocsin.dispatcher.publisher import Outcome, Publisher, Record
from tocsin.schema.errors import StoreTimeout, StoreUnavailable
from tocsin.schema.store import Store


class Slow:
    """A store, as far as a test needs one: calls take 40 ms and then do as they are told."""

    url = "slow://"

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.errors: list[Exception] = []

    async def write_pack(self, bucket: object, row: object) -> str:
        return self._answer(f"{bucket}{row}")

    async def read_leases(self) -> str:
        return self._answer("leases")

    def read_packs(self, *_: object) -> AsyncIterator[str]:
        return SlowPages(self)

    def _answer(self, answer: str) -> str:
        self._clock.turn(40)
        if self.errors:
            raise self.errors.pop()
        return answer


class SlowPages:
    """Three pages; one that fails is asked for again."""

    def __init__(self, store: Slow) -> None:
        self._store = store
        self._left = ["c", "b", "a"]

    def __aiter__(self) -> SlowPages:
        return self

    async def __anext__(self) -> str:
        if not self._left:
            raise StopAsyncIteration
        page = self._store._answer(self._left[-1])
        self._left.pop()
        return page


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics() -> CallMetrics:
    return CallMetrics()


@pytest.fixture
def slow(clock: ManualClock) -> Slow:
    return Slow(clock)


@pytest.fixture
def store(slow: Slow, metrics: CallMetrics, clock: ManualClock) -> Any:
    return cast("Any", measured_store(cast("Store", slow), metrics, clock))


def value(metrics: CallMetrics, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry.get_sample_value(f"tocsin_{name}", labels)


async def test_calls_are_answered_as_ever_and_timed(store: Any, metrics: CallMetrics) -> None:
    assert await store.write_pack("a", row="b") == "ab"
    assert await store.write_pack("a", row="c") == "ac"
    assert store.url == "slow://"
    assert value(metrics, "store_seconds_count", operation="write_pack") == 2
    assert value(metrics, "store_seconds_sum", operation="write_pack") == pytest.approx(0.08)
    assert value(metrics, "store_seconds_bucket", operation="write_pack", le="0.025") == 0
    assert value(metrics, "store_seconds_bucket", operation="write_pack", le="0.05") == 2


async def test_pages_come_in_order_and_one_that_failed_comes_again(
    store: Any, slow: Slow, metrics: CallMetrics
) -> None:
    slow.errors = [StoreTimeout("late")]
    pages = store.read_packs("bucket")
    with pytest.raises(StoreTimeout):
        await anext(pages)
    assert [page async for page in pages] == ["a", "b", "c"]
    assert value(metrics, "store_failures_total", operation="read_packs", reason="timeout") == 1
    assert value(metrics, "unknown_outcomes_total", operation="read_packs") is None


async def test_a_write_without_an_answer_is_an_unknown_outcome_and_a_refused_one_is_not(
    store: Any, slow: Slow, metrics: CallMetrics
) -> None:
    slow.errors = [StoreUnavailable(), StoreTimeout("late")]
    with pytest.raises(StoreTimeout):
        await store.write_pack("a", "b")
    with pytest.raises(StoreUnavailable):
        await store.write_pack("a", "b")
    assert value(metrics, "unknown_outcomes_total", operation="write_pack") == 1
    assert value(metrics, "store_failures_total", operation="write_pack", reason="unavailable") == 1


async def test_a_batch_is_timed_to_its_last_answer(metrics: CallMetrics, clock: ManualClock) -> None:
    class Broker:
        async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
            clock.turn(300)
            return [Outcome.ACKED] * (len(records) - 1) + [Outcome.TOO_LARGE]

    publisher = MeasuredPublisher(cast("Publisher", Broker()), metrics, clock)
    record = Record("t", b"k", b"", [], b"p")
    assert (await publisher.publish([record] * 5))[-1] is Outcome.TOO_LARGE
    assert value(metrics, "publish_seconds_sum") == pytest.approx(0.3)
    assert value(metrics, "publish_outcomes_total", outcome="acked") == 4
    assert value(metrics, "publish_outcomes_total", outcome="too_large") == 1


async def test_every_family_says_what_it_is(store: Any, metrics: CallMetrics) -> None:
    await store.read_leases()
    for family in metrics.collect():
        assert len(family.documentation.split()) >= 4
        assert (family.unit == "seconds") == family.name.endswith("_seconds")
