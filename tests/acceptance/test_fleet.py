"""Dispatchers join, leave, are stopped as planned and killed, all under load: every range has an owner again, soon.

After each step the ranges are shared fairly, to within one, and no more of them have moved than had to: those of who
left, or what the newcomer is due.

    FLEET_SECONDS   how long it goes on: 25 in `make test`, 300 in `make faults`
    FAULT_SEED      which step comes when
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from acceptance.evidence import now_ms
from acceptance.faults import Fleet
from acceptance.herds import SHORT_MINUTES, Ranges, Registers
from acceptance.processes import Processes
from acceptance.pulse import OpenScheduler, Pulse
from acceptance.records import Topic

from tocsin.schema.timing import Timing

SECONDS = float(os.environ.get("FLEET_SECONDS", "25"))
SEED = int(os.environ.get("FAULT_SEED", str(secrets.randbelow(1_000_000))))

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka, pytest.mark.timeout(240 + 2 * SECONDS)]

DISPATCHERS_MIN, DISPATCHERS_MAX = 1, 3
PULSES = 40
HAND_OVER_SECONDS = 5.0
PATIENCE_SECONDS = 90

OpenTopic = Callable[[], Topic]


@pytest.fixture(scope="module")
def timing() -> Timing:
    return SHORT_MINUTES


@pytest.fixture
def pulse(fleet: Fleet, open_scheduler: OpenScheduler, open_topic: OpenTopic) -> Iterator[Pulse]:
    pulse = Pulse(open_scheduler, open_topic(), PULSES)
    pulse.start()
    yield pulse
    pulse.stop()


class Restless:
    """A fleet that changes, step by step; what each step moved is counted."""

    def __init__(self, fleet: Fleet, registers: Registers, luck: Random) -> None:
        self._fleet = fleet
        self._registers = registers
        self._luck = luck
        self.steps: list[str] = []

    @property
    def count(self) -> int:
        """How many dispatchers run."""
        return len(self._fleet.running)

    def step(self) -> None:
        """One more change, of those that are possible now."""
        possible: list[Callable[[], None]] = []
        if self.count < DISPATCHERS_MAX:
            possible += [self.join]
        if self.count > DISPATCHERS_MIN:
            possible += [self.leave, self.die]
        self._luck.choice(possible)()

    def join(self) -> None:
        """One more; it gets its share, and nothing else moves."""
        before = self._registers.read()
        self._fleet.start()
        self._settled("join", before, moves_max=-(-self._fleet.shard_ranges // self.count))

    def leave(self) -> None:
        """A planned stop: its ranges are free within seconds, and only they move."""
        victim, _ = self._luck.choice(self._fleet.running)
        before = self._registers.read()
        asked_at = time.monotonic()
        victim.send(signal.SIGTERM)
        assert victim.ended() == 0, str(victim)
        took = time.monotonic() - asked_at
        assert took < HAND_OVER_SECONDS
        self._fleet.gone(victim)
        self._settled(f"leave {took:.1f} s", before, moves_max=len(before.of(victim)))

    def die(self) -> None:
        """Kill -9: its ranges have owners within two times to live of a lease, and only they move."""
        victim, _ = self._luck.choice(self._fleet.running)
        before = self._registers.read()
        victim.send(signal.SIGKILL)
        victim.ended()
        killed_at = time.monotonic()
        self._fleet.gone(victim)
        living = {running.process.pid for running, _ in self._fleet.running}
        self._until(lambda: set(self._registers.read().owners.values()) <= living)
        took = time.monotonic() - killed_at
        assert took < 2 * SHORT_MINUTES.lease_ttl_ms / 1000
        self._settled(f"die {took:.1f} s", before, moves_max=len(before.of(victim)))

    def _settled(self, what: str, before: Ranges, *, moves_max: int) -> None:
        """Every range is owned by somebody who runs, fairly, and not more have moved than had to."""
        pids = {running.process.pid for running, _ in self._fleet.running}
        self._until(lambda: is_fair(self._registers.read(), pids))
        after = self._registers.read()
        moved = [each for each, owner in after.owners.items() if owner != before.owners[each]]
        self.steps.append(f"{what}: {self.count} run, {len(moved)} of {moves_max} moves")
        assert len(moved) <= moves_max, self.steps

    def _until(self, holds: Callable[[], bool]) -> None:
        """Ask the store again and again until it holds."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < give_up
            assert all(running.process.poll() is None for running, _ in self._fleet.running), "one has ended unasked"


def is_fair(ranges: Ranges, pids: set[int]) -> bool:
    """Whether every range has an owner of these, and the numbers differ by at most one."""
    counts = Counter(ranges.owners.values())
    return counts.keys() == pids and max(counts.values()) - min(counts.values()) <= 1


def test_dispatchers_join_and_leave_and_every_range_keeps_an_owner(
    processes: Processes, fleet: Fleet, pulse: Pulse, cassandra_session: Any, real_store: str
) -> None:
    restless = Restless(fleet, Registers(cassandra_session, real_store), Random(SEED))
    begun, give_up = now_ms(), time.monotonic() + SECONDS
    restless.join()
    restless.leave()
    restless.die()
    while time.monotonic() < give_up:
        restless.step()
    verdict = pulse.judged(begun, now_ms())

    print(f"FAULT_SEED={SEED}: {len(restless.steps)} steps\n" + "\n".join(restless.steps))
    assert verdict.holds
    assert verdict.out_of_order == ()
