"""A thousand one-shots by two clients while two dispatchers run: none lost, none early, whatever dies half-way."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from acceptance.faults import Fleet
from acceptance.processes import Processes
from acceptance.records import Topic

from tocsin.deploy.stack import LocalStack
from tocsin.loadtest.verdict import Verdict, judge

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]

COUNT = 1_000
DELAY_SECONDS = 15
#: After the last due: a takeover, and a busy machine.
DRAIN_SECONDS = 60

OpenTopic = Callable[[], Topic]


def run(processes: Processes, topic: Topic, half_way: Callable[[], object]) -> Verdict:
    """Create them all, do something once half of them are on the topic, and judge what the topic has in the end."""
    clients = [
        processes.client(
            {
                "topic": topic.name,
                "prefix": f"{topic.name}-{number}",
                "count": COUNT // 2,
                "delay_seconds": DELAY_SECONDS,
                "seed": number,
            }
        )
        for number in range(2)
    ]
    assert topic.until(lambda it: len(it.keys) >= COUNT // 2, seconds=DRAIN_SECONDS)
    half_way()
    assert [client.ended() for client in clients] == [0, 0]
    expected = {line["key"]: line["due"] for client in clients for line in client.said if line["action"] == "created"}
    assert len(expected) == COUNT
    topic.until(lambda it: it.keys >= expected.keys(), seconds=DELAY_SECONDS + DRAIN_SECONDS)
    verdict = judge(expected, topic.seen)
    print(
        f"{verdict.dispatched_count} of {verdict.expected_count} keys, early {len(verdict.early)}, lost "
        f"{len(verdict.lost)}, repeats {verdict.repeat_count}, "
        f"lateness p50 {verdict.lateness_ms_at(50)} ms, p99 {verdict.lateness_ms_at(99)} ms"
    )
    return verdict


def test_all_arrive_once_and_none_early(processes: Processes, fleet: Fleet, open_topic: OpenTopic) -> None:
    verdict = run(processes, open_topic(), lambda: None)

    assert verdict.holds
    assert verdict.repeat_count == 0


def test_an_owner_killed_half_way_loses_nothing(processes: Processes, fleet: Fleet, open_topic: OpenTopic) -> None:
    owner, _ = fleet.running[0]

    verdict = run(processes, open_topic(), lambda: owner.send(signal.SIGKILL))
    fleet.gone(owner)
    fleet.start()

    assert verdict.holds


def test_a_store_node_killed_half_way_loses_nothing(
    processes: Processes, fleet: Fleet, open_topic: OpenTopic, disturbed_stack: LocalStack
) -> None:
    fleet.until_shared()

    verdict = run(processes, open_topic(), lambda: disturbed_stack.stop_node(2, gently=False))

    assert verdict.holds
