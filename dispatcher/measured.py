"""How long the store and the publisher take, and what they leave open, without either of them knowing.

A store of forty methods is wrapped by one rule instead of forty: a call that is awaited is timed until its answer, a
read of pages is timed page by page. The label is the method's name, so it is bounded by the Store protocol. What is
counted:

    tocsin_store_seconds{operation}                 until the store answered, whether the answer pleased or not
    tocsin_store_failures_total{operation,reason}   timeout: no answer in time; unavailable: nobody to ask
    tocsin_unknown_outcomes_total{operation}        writes among the timeouts: they may hold or not. A dispatcher writes
                                                    them again until they are acknowledged
    tocsin_publish_seconds                          from handing a batch over to the last answer for it
    tocsin_publish_outcomes_total{outcome}          records by what became of them
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, cast

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tocsin.dispatcher.histogram import Histogram
from tocsin.dispatcher.publisher import Outcome, Publisher, Record
from tocsin.schema.clock import Clock
from tocsin.schema.errors import StoreTimeout, StoreUnavailable
from tocsin.schema.store import Store

#: Upper bounds in milliseconds; a store in good health answers within a few.
CALL_BUCKETS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
#: Methods that write begin with one of these words.
WRITES: Final = frozenset({"write", "insert", "replace", "acquire", "keep", "delete"})
TIMEOUT, UNAVAILABLE = "timeout", "unavailable"

Call = Callable[..., Any]


class CallMetrics(Collector):
    """What was measured, for one scrape."""

    def __init__(self) -> None:
        self._store: dict[str, Histogram] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._unknown: Counter[str] = Counter()
        self._publish = Histogram(CALL_BUCKETS_MS)
        self._outcomes: Counter[Outcome] = Counter()

    def answered(self, operation: str, duration_ms: float) -> None:
        """The store answered, or refused, after so long."""
        histogram = self._store.get(operation)
        if histogram is None:
            histogram = self._store[operation] = Histogram(CALL_BUCKETS_MS)
        histogram.observe(duration_ms)

    def failed(self, operation: str, reason: str) -> None:
        """The store did not answer."""
        self._failures[operation, reason] += 1
        if reason == TIMEOUT and operation.partition("_")[0] in WRITES:
            self._unknown[operation] += 1

    def published(self, outcomes: Sequence[Outcome], duration_ms: float) -> None:
        """A batch was answered for."""
        self._publish.observe(duration_ms)
        self._outcomes.update(outcomes)

    def collect(self) -> Iterator[Metric]:
        """Everything, for one scrape."""
        store = HistogramMetricFamily(
            "tocsin_store_seconds", "Until the store answered a call.", labels=["operation"], unit="seconds"
        )
        for operation, histogram in list(self._store.items()):
            histogram.add_to(store, [operation])
        yield store
        failures = CounterMetricFamily(
            "tocsin_store_failures", "Calls that the store did not answer.", labels=["operation", "reason"]
        )
        for (operation, reason), count in list(self._failures.items()):
            failures.add_metric([operation, reason], count)
        yield failures
        unknown = CounterMetricFamily(
            "tocsin_unknown_outcomes", "Writes that may hold or not, and are written again.", labels=["operation"]
        )
        for operation, count in list(self._unknown.items()):
            unknown.add_metric([operation], count)
        yield unknown
        publish = HistogramMetricFamily(
            "tocsin_publish_seconds", "From handing a batch over to the last answer for it.", labels=[], unit="seconds"
        )
        self._publish.add_to(publish, [])
        yield publish
        outcomes = CounterMetricFamily("tocsin_publish_outcomes", "Records by what became of them.", labels=["outcome"])
        for outcome, count in list(self._outcomes.items()):
            outcomes.add_metric([outcome.value], count)
        yield outcomes


def measured_store(store: Store, metrics: CallMetrics, clock: Clock) -> Store:
    """The same store, timed."""
    return cast("Store", _MeasuredStore(store, _Stopwatch(metrics, clock)))


class MeasuredPublisher:
    """The same publisher, timed; a Publisher."""

    def __init__(self, publisher: Publisher, metrics: CallMetrics, clock: Clock) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._clock = clock

    async def start(self) -> None:
        """Make ready; see Publisher.start."""
        await self._publisher.start()

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Hand over and wait; see Publisher.publish."""
        began = self._clock.monotonic_ms()
        outcomes = await self._publisher.publish(records)
        self._metrics.published(outcomes, self._clock.monotonic_ms() - began)
        return outcomes

    async def close(self, timeout_ms: int) -> None:
        """Wait for what is in flight; see Publisher.close."""
        await self._publisher.close(timeout_ms)


class _Stopwatch:
    """Times one call."""

    def __init__(self, metrics: CallMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    async def until_answered(self, operation: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The call's own answer, or its own error."""
        began = self._clock.monotonic_ms()
        try:
            return await ask()
        except StoreTimeout:
            self._metrics.failed(operation, TIMEOUT)
            raise
        except StoreUnavailable:
            self._metrics.failed(operation, UNAVAILABLE)
            raise
        finally:
            self._metrics.answered(operation, self._clock.monotonic_ms() - began)


class _MeasuredStore:
    """Whatever a Store has, timed; each method is wrapped when it is first asked for."""

    def __init__(self, store: Store, stopwatch: _Stopwatch) -> None:
        self._store = store
        self._stopwatch = stopwatch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found
        timed = _timed_call(name, found, self._stopwatch)
        setattr(self, name, timed)
        return timed


def _timed_call(operation: str, call: Call, stopwatch: _Stopwatch) -> Call:
    if inspect.iscoroutinefunction(call):

        async def until_answered(*arguments: Any, **named: Any) -> Any:
            return await stopwatch.until_answered(operation, lambda: call(*arguments, **named))

        return until_answered

    def pages(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
        return _MeasuredPages(operation, call(*arguments, **named), stopwatch)

    return pages


class _MeasuredPages:
    """Pages as the store gives them; after an error the next `anext` reaches the same page again, as theirs does."""

    def __init__(self, operation: str, pages: AsyncIterator[Any], stopwatch: _Stopwatch) -> None:
        self._operation = operation
        self._pages = pages
        self._stopwatch = stopwatch

    def __aiter__(self) -> _MeasuredPages:
        return self

    async def __anext__(self) -> Any:
        return await self._stopwatch.until_answered(self._operation, self._pages.__anext__)
