"""Ranges that change hands, as planned and not: quickly, with nothing lost, and the old owner publishes no more.

Schedules of one second are the pulse by which it is seen: each has to be dispatched each second, whoever owns it.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from acceptance.evidence import now_ms
from acceptance.faults import Fleet
from acceptance.processes import Processes, actions
from acceptance.records import PARTITIONS, Topic
from confluent_kafka.admin import AdminClient, NewTopic

from tocsin import CatchUp, Every, Scheduler
from tocsin.loadtest.verdict import Verdict, judge
from tocsin.deploy.stack import LocalStack
from tocsin.schema.entries import occurrence_key
from tocsin.schema.instants import SECOND_MS, ceil_ms
from tocsin.schema.timing import Timing

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]

PULSES = 24
PATIENCE_SECONDS = 90
LEASE_TTL_MS = Timing().lease_ttl_ms


class Pulse:
    """Schedules that occur every second from an anchor on, and what has come of them."""

    def __init__(self, store: str, topic: Topic) -> None:
        self.topic = topic
        self._store = store
        self._ids = [f"{topic.name}-{number}" for number in range(PULSES)]
        self._anchor = datetime.now(UTC) + timedelta(seconds=2)

    def start(self) -> None:
        rule = Every(timedelta(seconds=1), anchor=self._anchor)
        with Scheduler(self._store) as scheduler:
            for schedule_id in self._ids:
                scheduler.create(schedule_id, rule, topic=self.topic.name, start=self._anchor, catch_up=CatchUp.ALL)

    def stop(self) -> None:
        with Scheduler(self._store) as scheduler:
            for schedule_id in self._ids:
                scheduler.cancel(schedule_id)

    def until_due(self, due: float) -> None:
        """Read on until all of them have come that are due by an instant, ms UTC."""
        assert self.topic.until(lambda it: it.keys >= self._owed(due).keys(), seconds=PATIENCE_SECONDS), (
            f"missing: {sorted(self._owed(due).keys() - self.topic.keys)[:20]}"
        )

    def judged(self, first: float, last: float) -> Verdict:
        """What became of those due between two instants, ms UTC, once all of them have come."""
        self.until_due(last)
        owed = {key: due for key, due in self._owed(last).items() if due > first}
        verdict = judge(owed, [seen for seen in self.topic.seen if seen.key in owed])
        print(
            f"{verdict.dispatched_count} keys, repeats {verdict.repeat_count}, "
            f"lateness p50 {verdict.lateness_ms_at(50)} ms, worst {verdict.lateness_ms_at(100)} ms"
        )
        return verdict

    def _owed(self, due: float) -> dict[str, int]:
        instants = range(ceil_ms(self._anchor), int(due) + 1, SECOND_MS)
        return {occurrence_key(schedule_id, instant): instant for schedule_id in self._ids for instant in instants}


@pytest.fixture(scope="module")
def pulse(fleet: Fleet, real_store: str, cassandra_stack: LocalStack, kafka_admin: AdminClient) -> Iterator[Pulse]:
    """One for all tests here; each judges a span of it."""
    name = f"pulse-{secrets.token_hex(6)}"
    kafka_admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)])[name].result()
    topic = Topic(cassandra_stack.kafka_bootstrap, name)
    pulse = Pulse(real_store, topic)
    pulse.start()
    yield pulse
    pulse.stop()
    topic.close()


def test_a_rolling_restart_hands_over_within_less_than_a_lease_and_repeats_nothing(
    processes: Processes, fleet: Fleet, pulse: Pulse
) -> None:
    pulse.until_due(now_ms())
    begun = now_ms()
    for old, _ in list(fleet.running):
        fleet.start().until_action("took_range")
        old.send(signal.SIGTERM)
        assert old.ended() == 0
        fleet.gone(old)
        pulse.until_due(now_ms())
    verdict = pulse.judged(begun, now_ms())

    assert verdict.holds
    assert verdict.repeat_count == 0
    assert verdict.lateness_ms[-1] < LEASE_TTL_MS


def test_an_owner_that_stood_still_beyond_its_lease_publishes_nothing_of_what_another_has(
    processes: Processes, fleet: Fleet, pulse: Pulse
) -> None:
    fleet.until_shared()
    (frozen, _), (other, _) = fleet.running
    begun = now_ms()
    frozen.send(signal.SIGSTOP)
    fleet.until_owned(other)
    heard = len(frozen.said)
    pulse.until_due(now_ms())
    frozen.send(signal.SIGCONT)
    frozen.until(lambda said: "gave_up_range" in actions(said[heard:]))
    fleet.until_shared()
    verdict = pulse.judged(begun, now_ms())

    assert verdict.holds
    # What it had handed to Kafka's client when it was frozen may go out twice, and nothing that was due later.
    assert verdict.repeat_count == 0
    assert verdict.lateness_ms[-1] < 2 * LEASE_TTL_MS


def test_a_broker_that_is_killed_and_comes_back_loses_nothing(
    processes: Processes, fleet: Fleet, pulse: Pulse, disturbed_stack: LocalStack
) -> None:
    begun = now_ms()
    disturbed_stack.stop_kafka(gently=False)
    disturbed_stack.start_kafka()

    assert pulse.judged(begun, now_ms()).holds
