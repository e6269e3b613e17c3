"""One load test: create, wait for the window, watch, wait for what is missing, judge.

    create    every schedule by the client, before the window begins. Should it take longer than that, the run is
              refused in the middle: what was created late was owed late, and lateness would mean nothing
    window    the dues were laid down beforehand (profiles.py), so nobody waits for anybody. Timers are sent at their
              instants, whether those before were answered or not. Meanwhile the topics are read, each second the parts
              are looked at, and at their minutes faults happen
    patience  from the end of the window on, until nothing is missing, or for so long in vain
    judge     every expected key against the topics

Runs on the clock of this host; the store's and the broker's are compared with it by `tocsin doctor`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from tocsin.dispatcher.progress import read_progress
from tocsin.loadtest import figures
from tocsin.loadtest.figures import Event, Figures, Findings, Sample, Window
from tocsin.loadtest.profiles import Load
from tocsin.loadtest.timer_sender import TimerSender
from tocsin.loadtest.topic_reader import Arrived
from tocsin.loadtest.verdict import Judge
from tocsin.producer.definition import NewSchedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.clock import Clock
from tocsin.schema.errors import OutcomeUnknown, SettingsError, StoreTimeout, StoreUnavailable
from tocsin.schema.instants import MINUTE_MS, SECOND_MS
from tocsin.schema.store import Settings, Store
from tocsin.schema.timing import Timing

#: Distance between two looks at the parts.
SAMPLE_MS: Final = SECOND_MS
#: How long a call may take before it is repeated; what is measured is when occurrences come, not how fast calls are.
CALL_TIMEOUT: Final = timedelta(seconds=30)
#: Between two reads of a topic on which nothing came.
PAUSE_MS: Final = 100
#: Creating must be over so long before the first due: minutes are sealed ten seconds ahead.
AHEAD_MS: Final = 12 * SECOND_MS


class Parts(Protocol):
    """The running system, as far as a load test sees and disturbs it."""

    def usage(self) -> Mapping[str, tuple[float, int]]:
        """By part: processor seconds since it began, and resident bytes."""
        ...

    async def metrics(self) -> Mapping[str, float]:
        """What the dispatchers' metrics read now, summed over them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is done to the system, and when: minutes from the start of the window."""

    at_minute: float
    what: str
    do: Callable[[], Awaitable[None]]


class Screen(Protocol):
    """Told how far a run is."""

    def created(self, count: int) -> None:
        """So many schedules are created."""
        ...

    def dispatched(self, count: int, expected: int, seconds_left: float) -> None:
        """So many records have come, of so many expected by the end."""
        ...


class LoadRun:
    """Runs one load against a store and topics that are served already.

    Args:
        load: what is scheduled, and when.
        store: opened by the caller.
        settings: of the store.
        timing: of the store.
        clock: this host's.
        read: what has come on the load's topic since the last call.
        parts: the running system.
        faults: what happens to it.
        patience_ms: how long is waited for what is missing after the window.
        screen: told how far it is.
    """

    def __init__(
        self,
        load: Load,
        store: Store,
        settings: Settings,
        read: Callable[[], Awaitable[Sequence[Arrived]]],
        *,
        timing: Timing,
        clock: Clock,
        parts: Parts,
        faults: Sequence[Fault] = (),
        patience_ms: int = MINUTE_MS,
        screen: Screen,
    ) -> None:
        self._load = load
        self._store = store
        self._shard_ranges = settings.shard_ranges
        self._read = read
        self._clock = clock
        self._timing = timing
        self._parts = parts
        self._faults = faults
        self._patience_ms = patience_ms
        self._screen = screen
        self._expected: dict[str, int] = {}
        self._judge = Judge(self._expected)
        self._samples: list[Sample] = []
        self._events: list[Event] = []
        self.created_count = 0
        self._create_seconds = 0.0

    async def run(self, about: Mapping[str, str]) -> Figures:
        """Run it; `about` is told in the report.

        Raises:
            SettingsError: creating took longer than the time left for it.
            TocsinError: a schedule could not be created, or a fault of the run could not be done.
        """
        load = self._load
        async with AsyncScheduler(
            self._store, timing=self._timing, clock=self._clock, timeout=CALL_TIMEOUT
        ) as scheduler:
            await self._create(scheduler)
            timers = TimerSender(load, scheduler, self._expected, self._clock)
            work = [timers.run(), self._sample(), *(self._do(fault) for fault in self._faults)]
            beside = [asyncio.create_task(each) for each in work]
            try:
                await self._watch(beside, timers)
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.wait(beside)
            return await self._figures(about, timers)

    async def _figures(self, about: Mapping[str, str], timers: TimerSender) -> Figures:
        load, expected, first = self._load, self._expected, self._judge.first
        window = Window(
            start_ms=load.start_ms, end_ms=load.end_ms, hour_ms=load.hour_ms, peaks=load.peaks, peak_ms=load.peak_ms
        )
        told = dict(about)
        if self.created_count:
            rate = self.created_count / max(self._create_seconds, 0.001)
            told["schedules"] = f"{self.created_count:,}, created in {self._create_seconds:.1f} s, {rate:,.0f} a second"
        if timers.sent_count:
            told["timers"] = f"{timers.sent_count:,} sent, {timers.sent_count - len(expected):,} of them to be recalled"
        if timers.errors:
            told["failed calls"] = f"{len(timers.errors)}; the first: {timers.errors[0]}"
        return Figures(
            settings=told,
            findings=Findings.of(
                self._judge.verdict(tolerated=timers.tolerated),
                failed_calls=len(timers.errors),
            ),
            lateness=figures.lateness_by_part(expected, first, window),
            seconds=figures.seconds_of(expected, first, window),
            heat=figures.heat_of(expected, first, window),
            hour_ms=load.hour_ms,
            drains=figures.drains_of(expected, first, window),
            samples=tuple(self._samples),
            events=tuple(self._events),
            metrics=dict(await self._parts.metrics()),
        )

    @property
    def expected(self) -> Mapping[str, int]:
        """The due of every key that has to be there; ms UTC."""
        return self._expected

    async def _create(self, scheduler: AsyncScheduler) -> None:
        """Create every schedule; a call that stayed unanswered is repeated, which settles it."""
        began = self._clock.monotonic_ms()
        for planned in self._load.schedules():
            self._expected.update(planned.expected())
        unanswered = await self._create_each(scheduler, (planned.schedule for planned in self._load.schedules()))
        while unanswered and self._until_start() > 0:
            again = (planned.schedule for planned in self._load.schedules())
            unanswered = await self._create_each(
                scheduler, (schedule for schedule in again if schedule.schedule_id in unanswered)
            )
        self._create_seconds = (self._clock.monotonic_ms() - began) / 1000
        if self._until_start() < AHEAD_MS / 1000:
            raise SettingsError(
                f"{self.created_count:,} schedules took {self._create_seconds:.0f} s to create, and more time than was "
                "left before the first due; repeat the run with a longer --warmup or a smaller --scale."
            )

    async def _create_each(self, scheduler: AsyncScheduler, schedules: Iterable[NewSchedule]) -> set[str]:
        """The ids of those for which the store did not answer."""
        unanswered = set()
        async for result in scheduler.create_many(schedules):
            if isinstance(result.error, OutcomeUnknown | StoreUnavailable):
                unanswered.add(result.schedule_id)
            elif result.error is not None:
                raise result.error
            else:
                self.created_count += 1
                self._screen.created(self.created_count)
            if self._until_start() < 0:
                break
        return unanswered

    async def _watch(self, beside: Sequence[asyncio.Task[None]], timers: TimerSender) -> None:
        """Read the topics until all is there, or patience ends."""
        load = self._load
        give_up = load.end_ms + self._patience_ms
        while (now := self._clock.wall_ms()) < give_up:
            arrived = await self._read()
            self._judge.hear(record.seen for record in arrived)
            for task in beside:
                if task.done() and (error := task.exception()) is not None:
                    raise error
            self._screen.dispatched(len(self._judge.first), len(self._expected), (load.end_ms - now) / 1000)
            if now > load.end_ms and not (arrived or timers.is_waiting or self._judge.missing_count()):
                return
            if not arrived:
                await self._clock.sleep_ms(PAUSE_MS)

    async def _sample(self) -> None:
        before, before_at = self._parts.usage(), self._clock.monotonic_ms()
        while True:
            await self._clock.sleep_ms(SAMPLE_MS)
            now, now_at = self._parts.usage(), self._clock.monotonic_ms()
            parts = {
                name: (max(0.0, seconds - before.get(name, (0.0, 0))[0]) / (now_at - before_at) * 1000, size_bytes)
                for name, (seconds, size_bytes) in now.items()
            }
            before, before_at = now, now_at
            lag = unowned = None
            with contextlib.suppress(StoreTimeout, StoreUnavailable):
                progress = await read_progress(self._store, self._shard_ranges, self._clock.wall_ms())
                lag = max(each.lag_ms for each in progress) / 1000
                unowned = sum(not each.is_owned for each in progress)
            self._samples.append(Sample(at=round(-self._until_start(), 2), lag=lag, unowned=unowned, parts=parts))

    async def _do(self, fault: Fault) -> None:
        await self._clock.sleep_ms(round(1000 * self._until_start() + fault.at_minute * MINUTE_MS))
        self._events.append(Event(at=round(-self._until_start(), 1), what=fault.what))
        await fault.do()

    def _until_start(self) -> float:
        return (self._load.start_ms - self._clock.wall_ms()) / 1000
