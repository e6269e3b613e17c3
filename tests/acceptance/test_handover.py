"""Ranges that change hands, as planned and not: quickly, with nothing lost, and the old owner publishes no more.

Schedules of one second are the pulse by which it is seen: each has to be dispatched each second, whoever owns it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from acceptance.evidence import now_ms
from acceptance.faults import Fleet
from acceptance.processes import Processes, actions
from acceptance.pulse import OpenScheduler, Pulse
from acceptance.records import Topic

from tocsin.deploy.stack import LocalStack
from tocsin.schema.timing import Timing

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]

OpenTopic = Callable[[], Topic]
LEASE_TTL_MS = Timing().lease_ttl_ms


@pytest.fixture(scope="module")
def pulse(fleet: Fleet, open_scheduler: OpenScheduler, open_module_topic: OpenTopic) -> Iterator[Pulse]:
    """One for all tests here; each judges a span of it."""
    pulse = Pulse(open_scheduler, open_module_topic())
    pulse.start()
    yield pulse
    pulse.stop()


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
