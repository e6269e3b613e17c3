"""One dispatcher in this process: put together, run, reported once a second, stopped cleanly.

How it ends:

    SIGTERM or SIGINT   stop reading, await what is under way, write progress, release the ranges; a second or less
    the second one      leave at once; nothing is lost by it, the ranges are free after lease_ttl_ms. Within half a
                        second it is the same one: wrappers pass on what the terminal has sent already
    supervisor gone     as SIGTERM: a dispatcher that somebody started and lost does not run on unseen
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version

import structlog

from tocsin.deploy.configuration import Configuration
from tocsin.deploy.metrics_server import OFF, MetricsServer
from tocsin.dispatcher.allow_list import AllowList
from tocsin.dispatcher.collector import spare_the_collector
from tocsin.dispatcher.fleet import Dispatcher, make_dispatcher
from tocsin.dispatcher.herd_forecast import HerdForecast
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.log import LogObserver
from tocsin.dispatcher.measured import CallMetrics, MeasuredPublisher, measured_store
from tocsin.dispatcher.metrics import Metrics
from tocsin.dispatcher.observers import Observers
from tocsin.dispatcher.progress import RangeProgress, read_progress
from tocsin.dispatcher.publisher import Outcome, Publisher, Record
from tocsin.dispatcher.rate_limit import RateLimit
from tocsin.dispatcher.sink import open_publisher
from tocsin.schema.clock import StoreClock, SystemClock
from tocsin.schema.errors import StoreTimeout, StoreUnavailable
from tocsin.schema.fresh_ids import FreshIds
from tocsin.schema.open_store import open_store
from tocsin.schema.store import Settings, Store
from tocsin.schema.timing import Timing

#: Distance between two looks at every range.
REPORT_MS = 1_000
#: Without a sign for so long the process counts as hanging, or the store as gone.
SILENCE_MS_MAX = 10_000
#: Two signals closer than this are one.
SAME_SIGNAL_MS = 500
EXIT_AT_ONCE = 130

_log = structlog.get_logger("tocsin.dispatcher")


class Reporter:
    """Looks at every range once a second: for the metrics, and for one line of the log."""

    def __init__(
        self, store: Store, settings: Settings, timing: Timing, metrics: Metrics, *, says_status: bool
    ) -> None:
        self._store = store
        self._shard_ranges = settings.shard_ranges
        self._timing = timing
        self._metrics = metrics
        self._says_status = says_status
        self._clock = SystemClock()
        self._store_clock = StoreClock(store, self._clock, skew_ms_max=timing.skew_ms_max)
        self._dispatched_before = 0
        self._turned_at = self._answered_at = self._clock.monotonic_ms()

    def is_healthy(self) -> bool:
        """Whether the event loop turned lately."""
        return self._clock.monotonic_ms() - self._turned_at < SILENCE_MS_MAX

    def is_ready(self) -> bool:
        """Whether the store answered lately, too."""
        return self.is_healthy() and self._clock.monotonic_ms() - self._answered_at < SILENCE_MS_MAX

    async def run(self, stop: Callable[[], None], supervisor: int | None) -> None:
        """Report until cancelled; stop the dispatcher where its supervisor has gone."""
        while True:
            await self._clock.sleep_ms(REPORT_MS)
            self._turned_at = self._clock.monotonic_ms()
            if supervisor is not None and os.getppid() != supervisor:
                _log.warning("Whoever started this dispatcher has gone; it stops.", action="supervisor_gone")
                stop()
                return
            try:
                await self._store_clock.refresh()
                now = self._store_clock.now_ms()
                progress = await read_progress(self._store, self._shard_ranges, now)
            except (StoreUnavailable, StoreTimeout) as error:
                self._metrics.troubled("progress_unread", error)
                continue
            self._answered_at = self._clock.monotonic_ms()
            skew_ms = self._store_clock.skew_ms
            self._metrics.saw(progress, now=now, retention_ms=self._timing.retention_ms, skew_ms=skew_ms)
            if self._says_status:
                self._say(progress)

    def _say(self, progress: list[RangeProgress]) -> None:
        dispatched = self._metrics.dispatched_count
        figures = {
            "ranges_owned": self._metrics.owned_count,
            "ranges": len(progress),
            "unowned": sum(not each.is_owned for each in progress),
            "lag_seconds": max(each.lag_ms for each in progress) / 1000,
            "dispatched": dispatched,
            "dispatched_now": dispatched - self._dispatched_before,
        }
        self._dispatched_before = dispatched
        unowned = f", {figures['unowned']} unowned" if figures["unowned"] else ""
        _log.info(
            f"Ranges {figures['ranges_owned']} of {figures['ranges']}{unowned}; lag {figures['lag_seconds']:.1f} s; "
            f"dispatched {dispatched} (+{figures['dispatched_now']}).",
            action="status",
            figures=figures,
        )


class Greeting:
    """A publisher that greets once it has started: nobody is told that all is well and then refused."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.greetings: list[Callable[[], object]] = []

    async def start(self) -> None:
        """Start the publisher behind, and greet."""
        await self._publisher.start()
        for greet in self.greetings:
            greet()

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """The publisher's own outcomes."""
        return await self._publisher.publish(records)

    async def close(self, timeout_ms: int) -> None:
        """Close the publisher behind."""
        await self._publisher.close(timeout_ms)


async def run_dispatcher(
    configuration: Configuration,
    *,
    create: bool = False,
    says_status: bool = True,
    supervisor: int | None = None,
    greet: Callable[[], None] | None = None,
) -> None:
    """Run one dispatcher until it is told to stop.

    Args:
        configuration: store, sink, timing and where the metrics are.
        create: make the store where it is missing.
        says_status: log one line a second.
        supervisor: the process without which this one stops.
        greet: called once store and sink are open, so that nobody is greeted and then refused.

    Raises:
        TocsinError: a setting is refused, the store is not there or not initialised.
    """
    timing = configuration.protocol_timing()
    publisher = open_publisher(
        configuration.sink,
        settings=configuration.publisher_settings(),
        security=KafkaSecurity.from_environment(os.environ),
        kafka_client=configuration.kafka_client,
    )
    if configuration.allowed_topics:
        publisher = AllowList(publisher, configuration.allowed_topics)
    if configuration.topic_rates:
        publisher = RateLimit(publisher, configuration.topic_rates, SystemClock())
    clock = SystemClock()
    metrics, calls = Metrics(), CallMetrics()
    sink = Greeting(MeasuredPublisher(publisher, calls, clock))
    store = measured_store(open_store(configuration.store, timing=timing, create=create), calls, clock)
    settings = await store.open()
    spare_the_collector()
    reporter = Reporter(store, settings, timing, metrics, says_status=says_status)
    server: MetricsServer | None = None
    try:
        if configuration.metrics != OFF:
            probes = {"healthy": reporter.is_healthy, "ready": reporter.is_ready}
            server = MetricsServer(configuration.metrics, metrics, calls, **probes)
        dispatcher = make_dispatcher(
            store,
            settings,
            sink,
            dispatcher_id=f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            observer=Observers(metrics, LogObserver()),
            timing=timing,
            clock=clock,
            new_id=FreshIds(),
            address=server.address if server else "",
            release=version("tocsin"),
            audits_everything=True,
        )
        where = f"http://{server.address}/metrics" if server else "nowhere"
        sink.greetings += [
            *(() if greet is None else (greet,)),
            partial(_log.info, f"Metrics are on {where}.", action="metrics"),
            partial(_log.info, f"Dispatching {configuration.store} to {configuration.sink}.", action="started"),
        ]
        ahead = HerdForecast(dispatcher.services, dispatcher.owners.values, metrics.forecast)
        await _run_until_stopped(dispatcher, reporter, ahead, supervisor)
        _log.info(f"Stopped; {metrics.dispatched_count} dispatched in all.", action="stopped")
    finally:
        if server is not None:
            server.close()
        await store.close()


async def _run_until_stopped(
    dispatcher: Dispatcher, reporter: Reporter, ahead: HerdForecast, supervisor: int | None
) -> None:
    loop = asyncio.get_running_loop()
    asked_at: float | None = None

    def stop() -> None:
        nonlocal asked_at
        if asked_at is None:
            asked_at = loop.time()
            _log.info("Stopping: finishing what is under way and handing over.", action="stopping")
            dispatcher.stop()
        elif loop.time() - asked_at > SAME_SIGNAL_MS / 1000:
            os._exit(EXIT_AT_ONCE)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    beside = [loop.create_task(reporter.run(dispatcher.stop, supervisor)), loop.create_task(ahead.run())]
    try:
        await dispatcher.run()
    finally:
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
