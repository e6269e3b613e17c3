"""Kafka is away, or one topic of it is: everybody else goes on, nothing is lost, memory stays flat.

OUTAGE_SECONDS   how long the broker is away: 12 in `make test`, 120 in `make faults`. A topic that does not exist is
                 waited for half as long, in `make faults` for the 60 s of the default
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from acceptance.evidence import now_ms
from acceptance.faults import Fleet
from acceptance.herds import SHORT_MINUTES
from acceptance.processes import Processes, actions
from acceptance.pulse import OpenScheduler, Pulse
from acceptance.records import PARTITIONS, Topic
from command_line import tocsin
from confluent_kafka.admin import AdminClient, NewTopic

from tocsin import NewTimer
from tocsin.deploy.stack import LocalStack
from tocsin.loadtest.verdict import judge
from tocsin.schema.entries import occurrence_key
from tocsin.schema.instants import SECOND_MS, ceil_ms
from tocsin.schema.timing import Timing

OUTAGE_SECONDS = float(os.environ.get("OUTAGE_SECONDS", "12"))
UNKNOWN_TOPIC_MS = int(min(60, OUTAGE_SECONDS / 2) * SECOND_MS)
#: Longer than the client waits for an acknowledgement, so that answers of both kinds are met: in time, and given up.
DELIVERY_TIMEOUT_MS = 5_000

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka, pytest.mark.timeout(240 + 4 * OUTAGE_SECONDS)]

#: Beside the schedules of one second: timers all over the outage, a second's worth of them.
TIMERS_PER_SECOND = 100
#: What a dispatcher may grow by while it waits for the broker.
GROWN_MIB_MAX = 48
PATIENCE_SECONDS = 90
TOPICS = 5
PULSES_PER_TOPIC = 20
#: At full length a figure is judged, of a machine that does nothing else; otherwise that nobody waits for the topic.
LATENESS_MS_MAX = 500 if OUTAGE_SECONDS >= 60 else UNKNOWN_TOPIC_MS / 2

OpenTopic = Callable[[], Topic]


@pytest.fixture(scope="module")
def timing() -> Timing:
    return msgspec.structs.replace(SHORT_MINUTES, unknown_topic_ms=UNKNOWN_TOPIC_MS)


@pytest.fixture(scope="module")
def shard_ranges() -> int:
    # Each range costs the nodes some statements a second, and here lateness is judged.
    return 8


@pytest.fixture(scope="module")
def publisher_settings() -> dict[str, int | str]:
    return {"delivery_timeout_ms": DELIVERY_TIMEOUT_MS, "request_timeout_ms": 3_000, "metadata_timeout_ms": 2_000}


@pytest.fixture
def pulse(fleet: Fleet, open_scheduler: OpenScheduler, open_topic: OpenTopic) -> Iterator[Pulse]:
    pulse = Pulse(open_scheduler, open_topic(), PULSES_PER_TOPIC)
    pulse.start()
    yield pulse
    pulse.stop()


def test_a_broker_that_is_away_stops_reading_and_loses_nothing(
    processes: Processes,
    fleet: Fleet,
    pulse: Pulse,
    open_scheduler: OpenScheduler,
    open_topic: OpenTopic,
    disturbed_stack: LocalStack,
) -> None:
    herd = open_topic()
    expected = send_timers(open_scheduler, herd)
    pulse.until_due(now_ms())
    begun = now_ms()
    disturbed_stack.stop_kafka(gently=False)
    before = {running.name: resident_mib(running.process.pid) for running, _ in fleet.running}
    (first, _), *_ = fleet.running
    heard = len(first.said)
    first.until(
        lambda said: any(line.get("lag_seconds", 0) >= OUTAGE_SECONDS for line in said[heard:]),
        seconds=OUTAGE_SECONDS + PATIENCE_SECONDS,
    )
    grown = {running.name: resident_mib(running.process.pid) - before[running.name] for running, _ in fleet.running}
    disturbed_stack.start_kafka()
    returned = time.monotonic()
    pulses = pulse.judged(begun, now_ms())
    herd.until(lambda it: it.keys >= expected.keys(), seconds=PATIENCE_SECONDS)
    fleet.until_shared()
    drained = time.monotonic() - returned
    timers = judge(expected, herd.seen)

    print(
        f"away {OUTAGE_SECONDS:.0f} s: lost {len(pulses.lost) + len(timers.lost)} of "
        f"{pulses.expected_count + timers.expected_count}, repeats {pulses.repeat_count + timers.repeat_count}, "
        f"out of order {len(pulses.out_of_order)}, drained {drained:.1f} s after the return, "
        f"memory grew by {max(grown.values()):.1f} MiB at most"
    )
    assert pulses.holds
    assert timers.holds
    assert pulses.out_of_order == ()
    assert max(grown.values()) < GROWN_MIB_MAX
    for running, _ in fleet.running:
        assert not {"dead_letter", "parked", "range_failed"} & set(actions(running.said))


def test_a_topic_that_is_deleted_delays_no_other_and_its_occurrences_can_be_replayed(
    processes: Processes, fleet: Fleet, open_scheduler: OpenScheduler, open_topic: OpenTopic, kafka_admin: AdminClient
) -> None:
    pulses = [Pulse(open_scheduler, open_topic(), PULSES_PER_TOPIC) for _ in range(TOPICS)]
    for pulse in pulses:
        pulse.start()
    *others, victim = pulses
    started = now_ms() + 3 * SECOND_MS
    for pulse in pulses:
        pulse.until_due(started + 5 * SECOND_MS)
    before = max(pulse.judged(started, started + 5 * SECOND_MS).lateness_ms_at(99) or 0 for pulse in others)
    name = victim.topic.name
    heard = {running.name: len(running.said) for running, _ in fleet.running}
    begun = now_ms()
    kafka_admin.delete_topics([name])[name].result()
    for running, _ in fleet.running:
        running.until(
            lambda said, known=heard[running.name]: "dead_letter" in actions(said[known:]),
            seconds=UNKNOWN_TOPIC_MS / SECOND_MS + PATIENCE_SECONDS,
        )
    verdicts = [pulse.judged(begun + SECOND_MS, now_ms()) for pulse in others]
    kafka_admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)])[name].result()
    made_ms = now_ms()

    late = [verdict.lateness_ms_at(99) for verdict in verdicts]
    said = [line for running, _ in fleet.running for line in running.said[heard[running.name] :]]
    dead = {line["key"]: line["reason"] for line in said if line.get("action") == "dead_letter"}
    print(f"p99 of the other topics {late} ms, before {before} ms; {len(dead)} dead letters of the deleted one")
    assert all(verdict.holds and not verdict.repeat_count for verdict in verdicts)
    # A machine that is late by itself is no later for a topic that fails.
    assert max(each for each in late if each is not None) < max(LATENESS_MS_MAX, 1.5 * before)
    assert set(dead.values()) == {"unknown_topic"}
    assert all(key.startswith(name) for key in dead)
    # The schedules go on by themselves, and what became a dead letter comes when it is asked for, under its own key.
    fresh = Topic(victim.topic.bootstrap, name)
    owed = {key for key, due in victim.owed(made_ms + 10 * SECOND_MS).items() if due > made_ms}
    assert fresh.until(lambda it: bool(owed & it.keys), seconds=PATIENCE_SECONDS)
    words = ("--reason", "unknown_topic", "--store", processes.store, "-o", "json")
    listed = {each["key"] for each in tocsin("dead-letters", "list", *words).objects()}
    replayed = {each["key"] for each in tocsin("dead-letters", "replay", *words).objects() if each["replayed"]}
    assert dead.keys() <= listed == replayed
    assert tocsin("dead-letters", "list", "--reason", "too_large", "--store", processes.store, "-o", "json").out == ""
    assert fresh.until(lambda it: it.keys >= dead.keys(), seconds=PATIENCE_SECONDS)
    fresh.close()
    for pulse in pulses:
        pulse.stop()


def test_a_topic_that_is_created_late_gets_everything_and_a_record_too_large_is_a_dead_letter(
    processes: Processes,
    fleet: Fleet,
    open_scheduler: OpenScheduler,
    kafka_admin: AdminClient,
    cassandra_stack: LocalStack,
) -> None:
    name = f"late-{secrets.token_hex(4)}"
    heard = {running.name: len(running.said) for running, _ in fleet.running}
    at = datetime.now(UTC) + timedelta(seconds=1)
    sizes = {f"{name}-{number}": 40_000 if number == 0 else 10 for number in range(40)}
    with open_scheduler() as scheduler:
        timers = [NewTimer(timer_id=each, topic=name, at=at, payload=b"x" * size) for each, size in sizes.items()]
        keys = {result.key for result in scheduler.send_many(timers) if result.key}
    for running, _ in fleet.running:
        running.until(
            lambda said, known=heard[running.name]: "parked" in actions(said[known:]), seconds=PATIENCE_SECONDS
        )
    limited = NewTopic(name, num_partitions=PARTITIONS, config={"max.message.bytes": "20000"})
    kafka_admin.create_topics([limited])[name].result()
    topic = Topic(cassandra_stack.kafka_bootstrap, name)
    large = occurrence_key(f"{name}-0", ceil_ms(at))

    assert topic.until(lambda it: it.keys >= keys - {large}, seconds=PATIENCE_SECONDS)
    words = ("dead-letters", "list", "--store", processes.store, "-o", "json")
    letters: dict[str, str] = {}
    give_up = time.monotonic() + PATIENCE_SECONDS
    while large not in letters and time.monotonic() < give_up:
        letters = {each["key"]: each["reason"] for each in tocsin(*words).objects() if each["key"].startswith(name)}
    assert letters == {large: "too_large"}
    assert len(topic.records) == len(keys) - 1
    topic.close()


def send_timers(open_scheduler: OpenScheduler, topic: Topic) -> dict[str, int]:
    """Timers all over the outage; the due of each key, ms UTC."""
    begun = datetime.now(UTC) + timedelta(seconds=1)
    count = int(OUTAGE_SECONDS * TIMERS_PER_SECOND)
    dues = {f"{topic.name}-{number}": begun + timedelta(seconds=number / TIMERS_PER_SECOND) for number in range(count)}
    with open_scheduler() as scheduler:
        timers = [NewTimer(timer_id=each, topic=topic.name, at=at, payload=b"x" * 1_000) for each, at in dues.items()]
        assert [result for result in scheduler.send_many(timers) if result.error is not None] == []
    return {occurrence_key(each, ceil_ms(at)): ceil_ms(at) for each, at in dues.items()}


def resident_mib(pid: int) -> float:
    """What a process holds in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
