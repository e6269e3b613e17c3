"""Clients: each process makes one call with the shipped scheduler, repeats it while its outcome is unknown, or dies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol

from simulation import extra_runs
from simulation.clocks import EPOCH_MS, HostClock
from simulation.event_loop import Process
from simulation.history import Acknowledged, History
from simulation.scenario import TIMING, Audit, Call, ExtraRun, Herd, Scenario, SetLayout, Wanted
from simulation.traps import Trap
from tocsin.producer.arming import arm_again
from tocsin.producer.layouts import set_layout
from tocsin.producer.persistence import Persistence
from tocsin.producer.results import Change, ChangeOutcome, Schedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.clock import StoreClock
from tocsin.schema.errors import OutcomeUnknown, StoreTimeout, StoreUnavailable, TocsinError
from tocsin.schema.instants import to_datetime
from tocsin.schema.levels import Layout
from tocsin.schema.recurrence import AnyRecurrence, Cron, Every, Once
from tocsin.schema.store import Store
from tocsin.schema.timing import Timing

#: How long one call may take, and how often it is repeated while its outcome is unknown.
CALL_TIMEOUT = timedelta(seconds=8)
REPEATS_MAX = 4


class World(Protocol):
    """What clients need of the world they live in."""

    history: History
    scenario: Scenario
    timing: Timing

    def start(self, process: Process, main: Callable[[], Awaitable[None]], traps: tuple[Trap, ...]) -> None:
        """Start a process."""

    def store(self) -> Store:
        """A store as one process sees it."""

    def clock(self, *, skew_ms: float) -> HostClock:
        """The clocks of one host."""

    def new_id(self) -> bytes:
        """A fresh id."""

    def after(self, delay_ms: float, callback: Callable[[], None]) -> None:
        """Run something later."""

    def on_death(self, process: Process, callback: Callable[[], None]) -> None:
        """Run something when a process is killed."""


def recurrence_of(wanted: Wanted) -> AnyRecurrence:
    """The recurrence as the scheduler takes it."""
    if wanted.once_ms is not None:
        return Once(to_datetime(EPOCH_MS + wanted.once_ms))
    if wanted.cron is not None:
        return Cron(wanted.cron)
    assert wanted.period_ms is not None
    return Every(timedelta(milliseconds=wanted.period_ms), anchor=to_datetime(EPOCH_MS + wanted.anchor_ms))


class Clients:
    """Starts client processes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._started = 0

    def call(self, call: Call, *, attempt: int = 0) -> None:
        """A process that makes this call; after its death another repeats it, where the scenario says so."""
        process = self._process(f"{call.operation}-{call.schedule_id}" + ("'" * attempt))
        if attempt or self._world.scenario.audits or self._world.scenario.retention_ms is not None:
            self._world.history.doubled.add(call.schedule_id)
        if attempt == 0 and call.repeat_after_ms is not None:
            delay = call.repeat_after_ms
            again = lambda: self._world.after(delay, lambda: self.call(call, attempt=1))  # noqa: E731 — one line, one use
            self._world.on_death(process, again)
        skew = call.skew_ms if attempt == 0 else -call.skew_ms
        self._world.start(process, lambda: self._make(call, skew), call.traps if attempt == 0 else ())

    def herd(self, herd: Herd) -> None:
        """A process that creates many schedules, a few at a time."""

        async def create_all() -> None:
            for number in range(herd.count):
                name = f"{herd.name}{number}"
                await self._make(Call(at_ms=herd.at_ms, operation="create", schedule_id=name, wanted=herd.wanted), 0)

        self._world.start(self._process("herd"), create_all, ())

    def audit(self, audit: Audit) -> None:
        """A process that inserts what should be armed."""

        async def insert() -> None:
            history = self._world.history
            try:
                async with self._scheduler(0) as scheduler:
                    changes, deadline = await scheduler._ready()
                    row = await changes.read(audit.schedule_id, deadline=deadline)
                    if row is not None:
                        history.doubled.add(audit.schedule_id)
                        history.note(f"the audit looks at {audit.schedule_id} v{row.version}")
                        await arm_again(changes._inserter, [row], scheduler._store_clock.now_ms(), deadline=deadline)
            except (StoreTimeout, StoreUnavailable) as error:
                history.note(f"the audit of {audit.schedule_id} gives up: {error!r}")

        self._world.start(self._process(f"audit-{audit.schedule_id}"), insert, audit.traps)

    def set_layout(self, event: SetLayout) -> None:
        """A process that lets a layout hold from an instant on, and says so where it is refused."""

        async def change() -> None:
            store, timing = self._world.store(), self._world.timing
            clock = self._world.clock(skew_ms=0)
            store_clock, persistence = (
                StoreClock(store, clock, skew_ms_max=timing.skew_ms_max),
                Persistence(clock, timing),
            )
            await persistence.until_answered(store_clock.refresh)
            layout = Layout(EPOCH_MS + event.from_ms, event.sub_partitions)
            deadline = clock.monotonic_ms() + CALL_TIMEOUT // timedelta(milliseconds=1)
            try:
                await set_layout(
                    store, layout, timing=timing, store_clock=store_clock, persistence=persistence, deadline=deadline
                )
            except TocsinError as error:
                self._world.history.refused.append(type(error).__name__)
                self._world.history.note(f"a layout of {event.sub_partitions} is refused: {error!r}")
            else:
                self._world.history.note(f"a layout of {event.sub_partitions} holds from {event.from_ms} on")

        self._world.start(self._process("layout"), change, event.traps)

    def extra_run(self, run: ExtraRun) -> None:
        """A process that sends, recalls, triggers or backfills."""
        caller = _Caller(self, self._world)
        process = self._process(f"{run.operation}-{run.name}")
        self._world.start(process, lambda: extra_runs.make(run, caller), run.traps)

    def _process(self, name: str) -> Process:
        self._started += 1
        return Process(f"c{self._started}-{name}")

    def _scheduler(self, skew_ms: float) -> AsyncScheduler:
        return AsyncScheduler(
            self._world.store(),
            timeout=CALL_TIMEOUT,
            timing=TIMING,
            clock=self._world.clock(skew_ms=skew_ms),
            new_id=self._world.new_id,
        )

    async def _make(self, call: Call, skew_ms: float) -> None:
        history = self._world.history
        try:
            result = await self._until_known(call, skew_ms)
        except TocsinError as error:
            history.refused.append(type(error).__name__)
            history.note(f"{call.operation} of {call.schedule_id} is refused: {error!r}")
            return
        history.promised(acknowledged_of(call, result, history.now_ms()))

    async def _until_known(self, call: Call, skew_ms: float) -> Schedule | Change:
        """Repeat the call while its outcome is unknown, as its documentation says."""
        tries = 0
        while True:
            tries += 1
            try:
                async with self._scheduler(skew_ms) as scheduler:
                    return await _operate(scheduler, call)
            except (OutcomeUnknown, StoreUnavailable, StoreTimeout):
                self._world.history.doubled.add(call.schedule_id)
                if tries > REPEATS_MAX:
                    raise


class _Caller:
    """What extra runs are asked for with."""

    def __init__(self, clients: Clients, world: World) -> None:
        self.history = world.history
        self._clients = clients
        self._world = world

    def scheduler(self) -> AsyncScheduler:
        return self._clients._scheduler(0)

    def clock(self) -> HostClock:
        return self._world.clock(skew_ms=0)


async def _operate(scheduler: AsyncScheduler, call: Call) -> Schedule | Change:
    schedule_id, wanted = call.schedule_id, call.wanted
    if call.operation == "create":
        assert wanted is not None
        return await scheduler.create(schedule_id, recurrence_of(wanted), topic=wanted.topic, **_fields(wanted))
    if call.operation == "update":
        assert wanted is not None
        changes = {"recurrence": recurrence_of(wanted), "topic": wanted.topic, **_fields(wanted)}
        return await scheduler.update(schedule_id, **changes)
    if call.operation == "pause":
        return await scheduler.pause(schedule_id)
    if call.operation == "resume":
        return await scheduler.resume(schedule_id)
    return await scheduler.cancel(schedule_id)


def _fields(wanted: Wanted) -> dict[str, Any]:
    return {
        "payload": wanted.payload.encode(),
        "jitter": timedelta(milliseconds=wanted.jitter_ms),
        "catch_up": wanted.catch_up,
    }


def acknowledged_of(call: Call, result: Schedule | Change, at_ms: float) -> Acknowledged:
    """The promise a returned call makes."""
    if isinstance(result, Schedule):
        return Acknowledged(at_ms, call.operation, call.schedule_id, result.version, False, ())
    assert result.schedule is not None
    prevented = result.outcome is ChangeOutcome.PREVENTED
    return Acknowledged(at_ms, call.operation, call.schedule_id, result.schedule.version, prevented, result.uncertain)
