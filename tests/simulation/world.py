"""One run: the world of a scenario, from its first millisecond to its last, and what was seen of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from statistics import median

import msgspec

from simulation.clients import Clients
from simulation.clocks import EPOCH_MS, HostClock
from simulation.cluster import Cluster
from simulation.event_loop import Process, VirtualLoop
from simulation.history import Disturbance, History
from simulation.hosts import Host
from simulation.kafka import Broker, SimulatedPublisher
from simulation.network import NetworkFaults
from simulation.replicated_store import ReplicatedStore
from simulation.scenario import (
    END_MS,
    FAULTS_MS,
    QUIET_MS,
    TIMING,
    Audit,
    BrokerAway,
    Call,
    Event,
    ExtraRun,
    Herd,
    HostClockStep,
    HostFault,
    Leave,
    Outage,
    ReplicaDown,
    Scenario,
    SetLayout,
    StoreClockStep,
    TopicFailing,
)
from simulation.traps import Trap, Traps
from tocsin.schema.levels import Bucket, Layout, Level, Levels
from tocsin.schema.store import PackRow, Settings

SHARD_RANGES = 2
#: From the second layout on, minutes are split once more, in the middle of the run.
LAYOUTS = (Layout(0, 4), Layout(EPOCH_MS + 50_000, 8))
#: Within this every dispatcher has read the store's clock again, lost answers included.
REREAD_MS = 4_000
LEVELS = Levels(TIMING, SHARD_RANGES, LAYOUTS)


class World:
    """Everything around the code under test."""

    def __init__(self, scenario: Scenario, loop: VirtualLoop) -> None:
        self.scenario = scenario
        self.loop = loop
        self.levels = LEVELS
        self.timing = TIMING
        if scenario.retention_ms is not None:
            self.timing = msgspec.structs.replace(TIMING, retention_ms=scenario.retention_ms)
        if scenario.layout_notice_ms is not None:
            self.timing = msgspec.structs.replace(TIMING, layout_notice_ms=scenario.layout_notice_ms)
        self.settings = Settings(genesis=EPOCH_MS - 1_000, shard_ranges=SHARD_RANGES, layouts=LAYOUTS)
        self.random = Random(scenario.seed)
        self.history = History(self.true_ms, LEVELS.shard_range)
        self.traps = Traps(loop, self.history.note, until_ms=FAULTS_MS)
        self.cluster = Cluster(self.random, self.true_ms, history=self.history)
        self.broker = Broker(self.random, self.history, self._shown_ms)
        self.clients = Clients(self)
        self.hosts = [Host(self, number) for number in range(scenario.hosts)]
        self.failures: list[str] = []
        self._highest_ms = 0.0
        #: Until when a reading from before a step may still be carried on, and what was added then.
        self._steps: list[tuple[float, float]] = []

    def true_ms(self) -> float:
        return EPOCH_MS + self.loop.now_ms

    async def run(self) -> None:
        """Live through the scenario."""
        for replica, skew_ms in zip(self.cluster.replicas, self.scenario.skews_ms, strict=True):
            replica.skew_ms = skew_ms
        await self.store().initialise(self.settings)
        self.cluster.network.faults = self.scenario.network
        if self.scenario.retention_ms is not None:
            self.history.forgets = True
            for replica in self.cluster.replicas:
                replica.forgets = self._forgets
        self.broker.slow = self.scenario.broker_slow
        if self.scenario.network != NetworkFaults() or self.broker.slow:
            self.history.disturbances.append(Disturbance(EPOCH_MS, EPOCH_MS + QUIET_MS, "network"))
        for host in self.hosts:
            host.start()
        for event in self.scenario.events:
            self.at(event.at_ms, lambda event=event: self._happen(event))  # type: ignore[misc]
        self.at(FAULTS_MS, self._calm)
        self.history.quiet_ms = EPOCH_MS + QUIET_MS
        self.history.end_ms = EPOCH_MS + END_MS
        await asyncio.sleep(END_MS / 1000)

    # What processes are given

    def start(self, process: Process, main: Callable[[], Awaitable[None]], traps: tuple[Trap, ...]) -> None:
        self.traps.set(process, traps)
        self.loop.spawn(process, self._watched(process, main))

    async def _watched(self, process: Process, main: Callable[[], Awaitable[None]]) -> None:
        try:
            await main()
        except Exception as error:
            self.failures.append(f"{process} ended at {self.loop.now_ms:.0f} ms: {error!r}")
            raise

    def store(self) -> ReplicatedStore:
        return ReplicatedStore(self.cluster, traps=self.traps)

    def publisher(self) -> SimulatedPublisher:
        return SimulatedPublisher(self.broker, self.traps)

    def clock(self, *, skew_ms: float) -> HostClock:
        drift = self.random.uniform(-5e-5, 5e-5)
        booted_ms = EPOCH_MS - self.random.uniform(1_000, 10**9)
        return HostClock(self.true_ms, skew_ms=skew_ms, drift=drift, booted_ms=booted_ms)

    def new_id(self) -> bytes:
        return self.random.randbytes(16)

    def after(self, delay_ms: float, callback: Callable[[], None]) -> None:
        self.loop.call_in_ms(delay_ms, callback)

    def at(self, at_ms: float, callback: Callable[[], None]) -> None:
        self.after(max(0, at_ms - self.loop.now_ms), callback)

    def on_death(self, process: Process, callback: Callable[[], None]) -> None:
        self.traps.on_death[process] = callback

    # What happens

    def _happen(self, event: Event) -> None:
        match event:
            case Call():
                self.clients.call(event)
            case Herd():
                self.clients.herd(event)
            case Audit():
                self.clients.audit(event)
            case ExtraRun():
                self.clients.extra_run(event)
            case SetLayout():
                self.clients.set_layout(event)
            case HostFault():
                self.hosts[event.host].lay(event.trap)
                self._disturb(event.trap.action, event.trap.duration_ms + TIMING.lease_ttl_ms * 2, f"host {event.host}")
            case Leave():
                self._disturb("leave", event.duration_ms, f"host {event.host}")
                self.hosts[event.host].leave(event.duration_ms)
            case Outage():
                self._disturb("outage", event.duration_ms, "")
                for host in self.hosts:
                    host.kill(event.duration_ms)
            case _:
                self._break(event)

    def _break(self, event: Event) -> None:
        """Break a part of the world, and mend it after a while."""
        match event:
            case ReplicaDown():
                replica = self.cluster.replicas[event.replica]
                self._for_a_while(
                    event.duration_ms, f"replica {event.replica}", lambda on: setattr(replica, "down", on)
                )
            case BrokerAway():
                self._for_a_while(event.duration_ms, "broker", lambda on: setattr(self.broker, "away", on))
            case TopicFailing():
                failing = self.broker.failing
                change = lambda on: failing.add(event.topic) if on else failing.discard(event.topic)  # noqa: E731
                self._for_a_while(event.duration_ms, f"topic {event.topic}", change)
            case StoreClockStep():
                hosts = self.hosts if event.hosts else []
                self._for_a_while(event.duration_ms, "store clock", lambda on: self._step(event.step_ms, hosts, on=on))
                # Sealed ran ahead with the clock; near waits for time to catch up, at half its speed.
                healed_ms = event.duration_ms + 2 * abs(event.step_ms)
                self._disturb("store clock heals", healed_ms, "")
            case HostClockStep():
                host = self.hosts[event.host]
                self._for_a_while(event.duration_ms, "host clock", lambda on: host.step(event.step_ms if on else 0))

    def _for_a_while(self, duration_ms: float, what: str, switch: Callable[[bool], object]) -> None:
        self._disturb(what, duration_ms, "")
        switch(True)

        def mend() -> None:
            switch(False)
            self.history.note(f"{what} is well again")

        self.after(duration_ms, mend)

    def _disturb(self, what: str, duration_ms: float, whom: str) -> None:
        now = self.true_ms()
        self.history.note(f"fault: {what} {whom} for {duration_ms:.0f} ms")
        self.history.disturbances.append(Disturbance(now, now + duration_ms, what.split(maxsplit=1)[0], whom))

    def _step(self, step_ms: float, hosts: list[Host], *, on: bool) -> None:
        self._shown_ms()
        self._steps.append((self.loop.now_ms + REREAD_MS, self.cluster.step_ms))
        self.cluster.step_ms = step_ms if on else 0
        for host in hosts:
            host.step(self.cluster.step_ms)

    def _shown_ms(self) -> float:
        """The highest time the store has shown, by the median of its nodes, carried on until all have read it again."""
        readings = [self.true_ms() + replica.skew_ms for replica in self.cluster.replicas]
        steps = [step_ms for until_ms, step_ms in self._steps if until_ms >= self.loop.now_ms]
        shown_ms = median(readings) + max([self.cluster.step_ms, *steps])
        # What it has shown once it has shown, whatever it shows later.
        self._highest_ms = max(shown_ms, self._highest_ms)
        return self._highest_ms

    def _forgets(self, bucket: Bucket, row: PackRow) -> bool:
        """Whether a node has let a pack go: as soon as it may."""
        end = row.position if bucket.level is Level.NEAR else LEVELS.end(bucket.level, row.position)
        return end + self.timing.retention_ms < self.true_ms()

    def _calm(self) -> None:
        """Faults end here; what was lost or late may still arrive for a while."""
        self.history.note("faults end")
        self.traps.active = False
        self.cluster.network.faults = NetworkFaults()
        self.broker.slow = 0
        for schedule_id in self.history.committed_late(TIMING.commit_limit_ms):
            self.clients.audit(Audit(at_ms=FAULTS_MS, schedule_id=schedule_id))


def simulate(scenario: Scenario) -> World:
    """Run a scenario to its end."""
    loop = VirtualLoop()
    asyncio.set_event_loop(None)
    try:
        world = World(scenario, loop)
        loop.run_until_complete(world.run())
        world.failures += loop.failures
    finally:
        loop.close()
    return world
