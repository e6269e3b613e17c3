"""A whole load test in virtual time, on the shipped store, client and dispatcher: what it must tell, it tells."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tocsin.dispatcher.fleet import make_dispatcher
from tocsin.dispatcher.observers import Observers
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.dispatcher.virtual_loop import VirtualClock, VirtualLoop
from tocsin.loadtest.figures import Figures
from tocsin.loadtest.load_run import Fault, LoadRun
from tocsin.loadtest.profiles import Load, Profile
from tocsin.loadtest.topic_reader import Arrived
from tocsin.loadtest.verdict import Seen
from tocsin.schema.entries import parse_instant
from tocsin.schema.errors import SettingsError, StoreTimeout
from tocsin.schema.instants import MINUTE_MS, SECOND_MS
from tocsin.schema.levels import Layout
from tocsin.schema.sqlite import SqliteStore
from tocsin.schema.store import Settings
from tocsin.schema.timing import Timing

START = 1_796_032_800_000
#: One occurrence of a run that begins a minute later.
LOST = "r-0000009@2026-11-30T10:01:00.000Z"


class Broker:
    """A Publisher that does as it is told."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._topic: list[Arrived] = []
        self.is_away = False
        #: A key that is acknowledged and lost.
        self.loses = ""

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        await self._clock.sleep_ms(3)
        if self.is_away:
            return [Outcome.BROKER_AWAY] * len(records)
        for record in records:
            due = parse_instant(dict(record.headers)["ce_time"].decode())
            if record.key.decode() != self.loses:
                self._topic.append(Arrived(Seen(record.key.decode(), self._clock.wall_ms()), due))
        return [Outcome.ACKED] * len(records)

    async def read(self) -> Sequence[Arrived]:
        taken, self._topic = self._topic, []
        return taken

    async def start(self) -> None: ...

    async def close(self, timeout_ms: int) -> None: ...


class Bench:
    """All parts of a load test on one virtual loop."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop, START)
        self.timing = Timing()
        settings = Settings(genesis=START, shard_ranges=1, layouts=(Layout(0, 1),))
        self.store = SqliteStore("sqlite:///:memory:", None, timing=self.timing, clock=self.clock, create=settings)
        self.settings = self.loop.run_until_complete(self.store.open())
        self.broker = Broker(self.clock)
        numbers = itertools.count(1)
        self._dispatcher = make_dispatcher(
            self.store,
            self.settings,
            self.broker,
            dispatcher_id="d",
            observer=Observers(),
            timing=self.timing,
            clock=self.clock,
            new_id=lambda: next(numbers).to_bytes(16),
        )
        self._running = self.loop.create_task(self._dispatcher.run())

    def close(self) -> None:
        self._dispatcher.stop()
        self.loop.run_until_complete(self._running)
        self.loop.run_until_complete(self.store.close())
        self.loop.close()

    # Parts, and a Screen

    def usage(self) -> Mapping[str, tuple[float, int]]:
        return {"dispatcher": (self.loop.time() / 4, 1 << 20)}

    async def metrics(self) -> Mapping[str, float]:
        return {}

    def created(self, count: int) -> None: ...

    def dispatched(self, count: int, expected: int, seconds_left: float) -> None: ...

    def run(
        self, profile: Profile, *, faults: Sequence[Fault] = (), ahead_ms: int = MINUTE_MS, **sizes: Any
    ) -> Figures:
        start_ms = -(-(self.clock.wall_ms() + ahead_ms) // MINUTE_MS) * MINUTE_MS
        minutes = sizes.pop("minutes", 1)
        load = Load(
            profile=profile, run_id="r", topic="t", start_ms=start_ms, end_ms=start_ms + minutes * MINUTE_MS, **sizes
        )
        run = LoadRun(
            load,
            self.store,
            self.settings,
            self.broker.read,
            timing=self.timing,
            clock=self.clock,
            parts=self,
            faults=faults,
            patience_ms=20 * SECOND_MS,
            screen=self,
        )
        return self.loop.run_until_complete(run.run({"where": "here"}))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def test_a_run_of_which_all_arrives_has_nothing_to_tell(bench: Bench) -> None:
    figures = bench.run(Profile.HOURLY_PEAK, scale=0.006, hour_ms=20_000)
    found = figures.findings
    assert (found.expected, found.dispatched) == (180, 180)
    assert (found.lost, found.early, found.unexpected, found.out_of_order, found.repeated) == (0, 0, 0, 0, 0)
    assert [drain.count for drain in figures.drains] == [20, 20, 20]
    assert figures.lateness["all"].max_ms is not None
    assert figures.lateness["all"].max_ms < 1_000
    assert [sample.parts["dispatcher"][1] for sample in figures.samples] == [1 << 20] * len(figures.samples)
    assert all(0.2 < sample.parts["dispatcher"][0] < 0.3 for sample in figures.samples)
    assert len(figures.samples) > 60


def test_what_the_broker_acknowledged_and_lost_is_told(bench: Bench) -> None:
    bench.broker.loses = LOST
    figures = bench.run(Profile.HOURLY_PEAK, scale=0.003, hour_ms=20_000)
    assert figures.findings.lost == 1
    assert figures.findings.examples["lost"] == (LOST,)


def test_a_broker_that_stalls_is_measured_as_late_and_nobody_waits_for_it(bench: Bench) -> None:
    async def away() -> None:
        bench.broker.is_away = True
        await bench.clock.sleep_ms(8 * SECOND_MS)
        bench.broker.is_away = False

    fault = Fault(at_minute=1 / 6, what="broker away", do=away)
    figures = bench.run(Profile.STEADY, scale=0.01, faults=[fault])
    assert (figures.findings.expected, figures.findings.lost) == (120, 0)
    late = [second for second in figures.seconds if second.outstanding > 0]
    assert 7 <= len(late) <= 14
    assert figures.lateness["all"].max_ms is not None
    assert 7_000 < figures.lateness["all"].max_ms < 14_000
    assert {second.due for second in figures.seconds if 0 <= second.at < 60} == {2}, "what fell due did not wait"
    assert [event.what for event in figures.events] == ["broker away"]


def test_recalled_timers_stay_away_and_the_others_come(bench: Bench) -> None:
    figures = bench.run(Profile.TIMERS, scale=0.01, minutes=2)
    assert figures.findings.expected == figures.findings.dispatched == 12
    assert (figures.findings.unexpected, figures.findings.failed_calls) == (0, 0)
    assert figures.settings["timers"].startswith("120 sent")


def test_a_timer_that_comes_although_it_was_recalled_is_unexpected(bench: Bench) -> None:
    recall = bench.store.write_pack

    async def forget_recalls(bucket: Any, row: Any) -> None:
        if bench.clock.wall_ms() < START + 90 * SECOND_MS:
            await recall(bucket, row)

    bench.store.write_pack = forget_recalls  # type: ignore[method-assign]
    figures = bench.run(Profile.TIMERS, scale=0.01, minutes=2)
    assert figures.findings.unexpected > 0


def test_schedules_that_are_created_too_late_end_the_run(bench: Bench) -> None:
    with pytest.raises(SettingsError, match="--warmup"):
        bench.run(Profile.STEADY, scale=0.01, ahead_ms=0)


def test_a_create_that_stayed_unanswered_is_repeated(bench: Bench) -> None:
    create = bench.store.insert_schedule
    calls = itertools.count()

    async def stall_once(row: Any) -> Any:
        if next(calls) == 3:
            await bench.clock.sleep_ms(31 * SECOND_MS)
            raise StoreTimeout("no answer")
        return await create(row)

    bench.store.insert_schedule = stall_once  # type: ignore[method-assign]
    found = bench.run(Profile.STEADY, scale=0.01, ahead_ms=2 * MINUTE_MS).findings
    assert (found.expected, found.dispatched, found.lost, found.unexpected) == (120, 120, 0, 0)
    assert next(calls) > 20


def test_a_fault_that_cannot_be_done_ends_the_run(bench: Bench) -> None:
    async def refuse() -> None:
        raise SettingsError("no such node")

    with pytest.raises(SettingsError, match="no such node"):
        bench.run(Profile.STEADY, scale=0.001, faults=[Fault(at_minute=0.1, what="node killed", do=refuse)])
