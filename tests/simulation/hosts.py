"""Dispatcher hosts: each runs one dispatcher at a time, and starts another when it was killed or stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulation.event_loop import Process
from simulation.scenario import FAULTS_MS
from simulation.traps import Trap
from tocsin.dispatcher.fleet import Dispatcher, make_dispatcher
from tocsin.schema.entries import Entry

if TYPE_CHECKING:
    from simulation.world import World

#: How long whatever watches over a dispatcher takes to start it again.
RESTART_MS = 1_500


class Watcher:
    """Hears what a dispatcher reports; implements tocsin.dispatcher.services.Observer."""

    def __init__(self, world: World, dispatcher_id: str) -> None:
        self._world = world
        self._dispatcher_id = dispatcher_id

    def dispatched(self, topic: str, entries: Sequence[Entry], now: int) -> None:
        """Kafka's side tells more."""

    def skipped(self, reason: str, count: int) -> None:
        self._note(f"skips {count}: {reason}")

    def verified(self, answer: str) -> None:
        """Seen in what follows from it."""

    def parked(self, topic: str, entries: Sequence[Entry]) -> None:
        self._note(f"parks {len(entries)} of topic {topic}")

    def demoted(self, level: str, count: int) -> None:
        """Seen in where the entries are met again."""

    def dead_lettered(self, reason: str, key: str) -> None:
        self._note(f"gives up {key}: {reason}")

    def owns(self, shard_range: int, epoch: int) -> None:
        self._note(f"owns range {shard_range} under epoch {epoch}")

    def lost(self, shard_range: int, epoch: int, reason: str) -> None:
        self._note(f"lets go range {shard_range} of epoch {epoch}: {reason}")

    def troubled(self, action: str, error: Exception) -> None:
        self._note(f"is troubled: {action}: {error!r}")
        if action == "range_failed":
            self._world.failures.append(f"{self._dispatcher_id} gave a range up: {error!r}")

    def _note(self, text: str) -> None:
        self._world.history.note(f"{self._dispatcher_id} {text}")


class Host:
    """One machine; its clocks outlive its processes."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number
        self._started = 0
        self._skew_ms = world.random.randint(-300, 300)
        self._clock = world.clock(skew_ms=self._skew_ms)
        self._process: Process | None = None
        self._dispatcher: Dispatcher | None = None
        self._down_until_ms: float = 0

    def start(self) -> None:
        """Start a dispatcher, unless one runs or the host is to stay down."""
        if self._process is not None:
            return
        if self._world.loop.now_ms < self._down_until_ms:
            self._restart()
            return
        self._started += 1
        process = self._process = Process(f"d{self._number}.{self._started}")
        self._world.on_death(process, self._died)
        self._world.start(process, lambda: self._serve(process), ())

    async def _serve(self, process: Process) -> None:
        self._dispatcher = self._assembled(process.name)
        await self._dispatcher.run()
        self._process = None
        self._restart()

    def _assembled(self, dispatcher_id: str) -> Dispatcher:
        """A dispatcher as its command assembles it, with the world's store, clock, publisher and ids."""
        world = self._world
        return make_dispatcher(
            world.store(),
            world.settings,
            world.publisher(),
            dispatcher_id=dispatcher_id,
            observer=Watcher(world, dispatcher_id),
            timing=world.timing,
            clock=self._clock,
            new_id=world.new_id,
            audits_everything=world.scenario.audits,
        )

    def lay(self, trap: Trap) -> None:
        """A trap for whichever dispatcher runs here now."""
        if self._process is not None:
            self._world.traps.set(self._process, (trap,))

    def kill(self, down_ms: float) -> None:
        """SIGKILL, and no new start for a while."""
        self._stay_down(down_ms)
        if self._process is not None:
            self._world.traps.kill(self._process, "by an outage")

    def leave(self, down_ms: float) -> None:
        """A planned stop, and no new start for a while."""
        self._stay_down(down_ms)
        if self._process is not None and self._dispatcher is not None:
            self._world.history.note(f"{self._process} is stopped as planned")
            self._world.loop.run_in(self._process, self._dispatcher.stop)

    def step(self, step_ms: float) -> None:
        """The wall clock steps."""
        self._clock.skew_ms = self._skew_ms + step_ms

    def _stay_down(self, down_ms: float) -> None:
        until = min(self._world.loop.now_ms + down_ms, FAULTS_MS)
        self._down_until_ms = max(self._down_until_ms, until)

    def _died(self) -> None:
        self._process = None
        self._dispatcher = None
        self._restart()

    def _restart(self) -> None:
        wait_ms = max(RESTART_MS, self._down_until_ms - self._world.loop.now_ms)
        self._world.after(wait_ms, self.start)
