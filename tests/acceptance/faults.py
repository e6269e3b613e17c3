"""What can go wrong with real processes: each fault is caused, seen to bite, and taken back; the system is whole again.

Every step waits for something seen: what a process says, or records that go on coming. Kinds of disturbances have the
simulation's names where its checkers look at them: "pause" is a dispatcher that stands still or is cut off, "broker"
that Kafka is away.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from random import Random

from acceptance.evidence import Evidence, now_ms
from acceptance.processes import Processes, Running, Said
from acceptance.proxy import Proxy
from acceptance.records import Topic

from tocsin.deploy.stack import LocalStack

#: How long anything may take to show, on a machine that runs three store nodes on two cores.
PATIENCE_SECONDS = 90.0
#: A fault without an end of its own is taken back once records due this much later have come, or this has passed.
BITE_MS = 6_000


class Fleet:
    """Dispatchers, each led through a proxy of its own."""

    def __init__(self, processes: Processes, nodes: list[tuple[str, int]], shard_ranges: int) -> None:
        self._processes = processes
        self._nodes = nodes
        self.shard_ranges = shard_ranges
        self.running: list[tuple[Running, Proxy]] = []

    def start(self) -> Running:
        """One more dispatcher."""
        proxy = Proxy(self._nodes)
        running = self._processes.dispatcher(environment=proxy.environment)
        self.running.append((running, proxy))
        return running

    def gone(self, running: Running) -> None:
        """This one has ended."""
        for each in self.running:
            if each[0] is running:
                each[1].close()
        self.running = [each for each in self.running if each[0] is not running]

    def until_owned(self, by: Running | None = None) -> None:
        """Return once one dispatcher owns every range, or all of them do together."""
        (running, _), *_ = self.running
        heard = len((by or running).said)

        def owned(said: list[Said]) -> bool:
            status = [line for line in said[heard:] if line.get("action") == "status"]
            if by is not None:
                return any(line["ranges_owned"] == self.shard_ranges for line in status)
            return any(line["unowned"] == 0 and line["lag_seconds"] < 2 for line in status)

        (by or running).until(owned, seconds=PATIENCE_SECONDS)

    def until_shared(self) -> None:
        """Return once each of the dispatchers owns its share, and nothing lags."""
        share = self.shard_ranges // len(self.running)
        for running, _ in self.running:
            heard = len(running.said)
            running.until(
                lambda said, heard=heard: any(
                    line.get("ranges_owned", 0) >= share and line["unowned"] == 0 and line["lag_seconds"] < 2
                    for line in said[heard:]
                ),
                seconds=PATIENCE_SECONDS,
            )

    def close(self) -> None:
        """End the proxies; processes are reaped by whoever started them."""
        for _, proxy in self.running:
            proxy.close()


class Faults:
    """Causes them, one at a time."""

    def __init__(self, fleet: Fleet, stack: LocalStack, topic: Topic, evidence: Evidence, luck: Random) -> None:
        self._fleet = fleet
        self._stack = stack
        self._topic = topic
        self._evidence = evidence
        self._luck = luck

    @property
    def kinds(self) -> list[Callable[[], None]]:
        """Every kind."""
        return [
            self.dispatcher_killed,
            self.dispatcher_paused_beyond_its_lease,
            self.dispatcher_replaced_as_planned,
            self.node_killed,
            self.node_frozen,
            self.broker_restarted,
            self.replies_lost,
            self.connections_cut,
            self.connections_slow,
            self.dispatcher_cut_off,
        ]

    def dispatcher_killed(self) -> None:
        """Kill -9, and a new one instead."""
        with self._evidence.disturbed("kill"):
            victim, _ = self._pick()
            victim.send(signal.SIGKILL)
            victim.ended()
            self._fleet.gone(victim)
            self._fleet.start()
            self._fleet.until_shared()

    def dispatcher_paused_beyond_its_lease(self) -> None:
        """SIGSTOP until another owns all, then SIGCONT: it has to notice before its next publish."""
        with self._evidence.disturbed("pause"):
            victim, _ = self._pick()
            other = next(running for running, _ in self._fleet.running if running is not victim)
            victim.send(signal.SIGSTOP)
            self._fleet.until_owned(other)
            victim.send(signal.SIGCONT)
            self._fleet.until_shared()

    def dispatcher_replaced_as_planned(self) -> None:
        """SIGTERM: it hands over and ends with 0."""
        with self._evidence.disturbed("leave"):
            victim, _ = self._pick()
            self._fleet.start()
            victim.send(signal.SIGTERM)
            assert victim.ended() == 0, str(victim)
            self._fleet.gone(victim)
            self._fleet.until_shared()

    def node_killed(self) -> None:
        """A store node dies and comes back on its data."""
        node = self._luck.randint(1, 3)
        with self._evidence.disturbed("node"):
            self._stack.stop_node(node, gently=False)
            self._bite()
            self._stack.start_node(node)
            self._fleet.until_shared()

    def node_frozen(self) -> None:
        """A store node answers nothing, its connections open."""
        node = self._luck.randint(1, 3)
        with self._evidence.disturbed("node"):
            self._stack.pause_node(node)
            self._bite()
            self._stack.resume_node(node)
            self._fleet.until_shared()

    def broker_restarted(self) -> None:
        """Kafka is away, gently or not, and comes back on its topics."""
        with self._evidence.disturbed("broker"):
            self._stack.stop_kafka(gently=self._luck.random() < 0.5)
            self._stack.start_kafka()
            self._bite()
            self._fleet.until_shared()

    def replies_lost(self) -> None:
        """What a dispatcher writes takes effect, and it never hears of it."""
        with self._evidence.disturbed("pause"):
            victim, proxy = self._pick()
            heard = len(victim.said)
            with proxy.replies_lost():
                victim.until(lambda said: any(_is_trouble(line) for line in said[heard:]), seconds=PATIENCE_SECONDS)
            self._fleet.until_shared()

    def connections_cut(self) -> None:
        """Every connection of a dispatcher to the store breaks, thrice, and can be made again at once."""
        with self._evidence.disturbed("pause"):
            _, proxy = self._pick()
            for _ in range(3):
                proxy.cut()
                self._bite(BITE_MS // 3)
            self._fleet.until_shared()

    def connections_slow(self) -> None:
        """Each call of a dispatcher to the store takes most of a second longer."""
        with self._evidence.disturbed("pause"):
            _, proxy = self._pick()
            with proxy.delayed(self._luck.uniform(0.05, 0.4)):
                self._bite()
            self._fleet.until_shared()

    def dispatcher_cut_off(self) -> None:
        """A dispatcher reaches no store node until another one owns all."""
        with self._evidence.disturbed("pause"):
            victim, proxy = self._pick()
            other = next(running for running, _ in self._fleet.running if running is not victim)
            with proxy.away():
                self._fleet.until_owned(other)
            self._fleet.until_shared()

    def _pick(self) -> tuple[Running, Proxy]:
        return self._luck.choice(self._fleet.running)

    def _bite(self, duration_ms: int = BITE_MS) -> None:
        """Let the fault last until records have come that were not due yet when it began."""
        due = now_ms() + duration_ms
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not any(record.sent_ms >= due for record in self._topic.records[-1:]):
            assert time.monotonic() < give_up, "no records came any more"
            self._topic.read()


def _is_trouble(line: Said) -> bool:
    return line.get("level") == "warning" or line.get("action") == "gave_up_range"
