"""An owner is struck in the middle of a herd: killed, frozen beyond its lease, or stopped as planned.

Nothing is lost or early, each schedule's occurrences come in order, and what comes twice lies within one progress
interval: a range's owner writes `committed` with each seal, so its successor repeats at most what it had
dispatched after that, in a herd what is due at that one instant, and no range of another owner repeats anything.

    FAULT_ROUNDS   how often an owner is killed, frozen, and stopped: once in `make test`, 20 times in `make faults`
    FAULT_SEED     when it is struck
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from random import Random
from typing import Any, NamedTuple

import pytest
from acceptance.evidence import now_ms
from acceptance.faults import Fleet
from acceptance.herds import SHORT_MINUTES, Herd, Ranges, Registers
from acceptance.processes import Processes, Running, Said
from acceptance.pulse import OpenScheduler, Pulse
from acceptance.records import Topic

from tocsin.schema.entries import parse_occurrence_key
from tocsin.schema.levels import Levels
from tocsin.schema.open_store import default_settings
from tocsin.schema.timing import Timing

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
SEED = int(os.environ.get("FAULT_SEED", str(secrets.randbelow(1_000_000))))

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka, pytest.mark.timeout(300 + 120 * ROUNDS)]

HERD_COUNT = 20_000
#: What a planned stop may take until the last range is free.
HAND_OVER_SECONDS = 5.0
#: The part of the herd that is published when its victim is struck.
STRUCK_BETWEEN = (0.05, 0.5)

#: Blows that may come too late, one after the other.
MISSES_MAX = 3

OpenTopic = Callable[[], Topic]


@pytest.fixture(scope="module")
def timing() -> Timing:
    return SHORT_MINUTES


@pytest.fixture(scope="module")
def pulse(fleet: Fleet, open_scheduler: OpenScheduler, open_module_topic: OpenTopic) -> Iterator[Pulse]:
    """Schedules of one second beside the herds: their order, and that all of theirs come."""
    pulse = Pulse(open_scheduler, open_module_topic())
    pulse.start()
    yield pulse
    pulse.stop()


class Arena:
    """A fleet, a pulse, and one herd after another."""

    def __init__(
        self, fleet: Fleet, pulse: Pulse, open_scheduler: OpenScheduler, open_topic: OpenTopic, registers: Registers
    ) -> None:
        self.fleet = fleet
        self.registers = registers
        self._pulse = pulse
        self._open_scheduler = open_scheduler
        self._open_topic = open_topic
        self._luck = Random(SEED)
        store = default_settings("cassandra://", 0)
        self._levels = Levels(SHORT_MINUTES, store.shard_ranges, store.layouts)

    def strike_in_the_middle(self, blow: Callable[[Running], Ranges]) -> None:
        """Strike in each round, and again where the herd was always out before the blow fell."""
        rounds = [self.strike(blow) for _ in range(ROUNDS)]
        while not any(each.in_the_middle for each in rounds):
            assert len(rounds) < ROUNDS + MISSES_MAX
            rounds.append(self.strike(blow))

    def strike(self, blow: Callable[[Running], Ranges]) -> Round:
        """A herd, a blow in the middle of it, and the verdict over all that came."""
        self.fleet.until_shared()
        herd = Herd(self._open_topic(), HERD_COUNT, SHORT_MINUTES.minute_ms)
        herd.create(self._open_scheduler)
        victim, _ = self._luck.choice(self.fleet.running)
        mine = self.registers.read().of(victim)
        begun = now_ms()
        struck_ms = herd.until_struck(self._luck.uniform(*STRUCK_BETWEEN))
        left = blow(victim)
        verdict = herd.judged()
        pulses = self._pulse.judged(begun, now_ms())

        first = _first_sent(herd.topic, self._pulse.topic)
        before = sum(first[key] < struck_ms for key in herd.expected if self._range_of(key) in mine)
        after = sum(first[key] >= struck_ms for key in herd.expected if self._range_of(key) in mine)
        interval_ms = struck_ms - min(left.committed[each] for each in mine)
        print(
            f"struck {struck_ms - herd.due:.0f} ms after the herd was due, {before} of the victim's {before + after} "
            f"out; lost {len(verdict.lost) + len(pulses.lost)}, early {len(verdict.early) + len(pulses.early)}, out of "
            f"order {len(pulses.out_of_order)}; repeats {verdict.repeat_count} of the herd, {pulses.repeat_count} of "
            f"the pulse, progress interval {interval_ms:.0f} ms; lateness worst {verdict.lateness_ms_at(100)} ms"
        )
        assert verdict.holds
        assert pulses.holds
        assert pulses.out_of_order == ()
        repeated = (*verdict.repeated, *pulses.repeated)
        beyond = [
            key
            for key in repeated
            if self._range_of(key) not in mine or first[key] <= left.committed[self._range_of(key)]
        ]
        assert beyond == []
        return Round(before, after)

    def _range_of(self, key: str) -> int:
        return self._levels.shard_range(parse_occurrence_key(key)[0])


class Round(NamedTuple):
    """One blow: the victim's part of the herd before and after it."""

    before: int
    after: int

    @property
    def in_the_middle(self) -> bool:
        """Whether the blow fell while the victim's herd was on its way out."""
        return self.before > 0 and self.after > 0


def _first_sent(*topics: Topic) -> dict[str, int]:
    first: dict[str, int] = {}
    for topic in topics:
        for record in topic.records:
            first[record.key] = min(record.sent_ms, first.get(record.key, record.sent_ms))
    return first


@pytest.fixture
def arena(
    processes: Processes,
    fleet: Fleet,
    pulse: Pulse,
    open_scheduler: OpenScheduler,
    open_topic: OpenTopic,
    cassandra_session: Any,
    real_store: str,
) -> Arena:
    print(f"FAULT_SEED={SEED}")
    return Arena(fleet, pulse, open_scheduler, open_topic, Registers(cassandra_session, real_store))


def test_an_owner_killed_in_the_middle_of_a_herd_loses_nothing(arena: Arena) -> None:
    def kill(victim: Running) -> Ranges:
        victim.send(signal.SIGKILL)
        victim.ended()
        killed_at = time.monotonic()
        left = arena.registers.read()
        (survivor,) = (running for running, _ in arena.fleet.running if running is not victim)
        heard = len(survivor.said)
        mine = left.of(victim)
        survivor.until(lambda said: _taken(said[heard:]) >= mine)
        took = time.monotonic() - killed_at
        print(f"takeover of {len(mine)} ranges {took:.1f} s after the kill")
        assert took < 2 * SHORT_MINUTES.lease_ttl_ms / 1000
        arena.fleet.gone(victim)
        arena.fleet.start()
        return left

    arena.strike_in_the_middle(kill)


def test_an_owner_frozen_beyond_its_lease_in_the_middle_of_a_herd_loses_nothing(arena: Arena) -> None:
    def freeze(victim: Running) -> Ranges:
        victim.send(signal.SIGSTOP)
        left = arena.registers.read()
        (other,) = (running for running, _ in arena.fleet.running if running is not victim)
        arena.fleet.until_owned(other)
        victim.send(signal.SIGCONT)
        return left

    arena.strike_in_the_middle(freeze)


def test_a_planned_stop_in_the_middle_of_a_herd_hands_over_within_seconds(arena: Arena) -> None:
    def stop(victim: Running) -> Ranges:
        left = arena.registers.read()
        mine = left.of(victim)
        asked_at, heard = time.time(), len(victim.said)
        victim.send(signal.SIGTERM)
        assert victim.ended() == 0
        given_up = [line for line in victim.said[heard:] if line.get("action") == "gave_up_range"]
        took = max(_instant(line) for line in given_up) - asked_at
        print(f"{len(given_up)} ranges handed over within {took:.1f} s")
        assert {line["shard_range"] for line in given_up} >= mine
        assert took < HAND_OVER_SECONDS
        assert victim.process.pid not in arena.registers.read().owners.values()
        arena.fleet.gone(victim)
        arena.fleet.start()
        return left

    arena.strike_in_the_middle(stop)


def _taken(said: list[Said]) -> set[int]:
    return {line["shard_range"] for line in said if line.get("action") == "took_range"}


def _instant(line: Said) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
