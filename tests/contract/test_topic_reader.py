"""A topic on a real broker is read as it is: each record, in the order of its schedule; what is foreign is counted."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Producer

from tocsin.deploy.stack import LocalStack
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher import Outcome
from tocsin.dispatcher.record import record_of
from tocsin.dispatcher.sink import open_publisher
from tocsin.loadtest.topic_reader import Arrived, TopicReader, open_topics
from tocsin.loadtest.topic_verification import Stretch, verify_topic
from tocsin.schema.entries import Entry
from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import SECOND_MS, to_datetime
from tocsin.schema.recurrence import Once
from tocsin.schema.schedules import Spec

pytestmark = pytest.mark.kafka

SCHEDULES, OCCURRENCES = 20, 50


async def publish(stack: LocalStack, topic: str, entries: Sequence[Entry]) -> None:
    spec = Spec(recurrence=Once(to_datetime(entries[0].due)), topic=topic)
    publisher = open_publisher(stack.sink_url)
    await publisher.start()
    outcomes = await publisher.publish([record_of(entry, spec) for entry in entries])
    await publisher.close(10_000)
    assert set(outcomes) == {Outcome.ACKED}


def read_all(reader: TopicReader, count: int) -> list[Arrived]:
    give_up = time.monotonic() + 60
    arrived: list[Arrived] = []
    while len(arrived) < count and time.monotonic() < give_up:
        arrived += reader.read()
    return arrived


async def test_a_topic_is_read_whole_and_verified(cassandra_stack: LocalStack, topic: Callable[..., str]) -> None:
    name = topic(partitions=4)
    now = time.time_ns() // 1_000_000
    entries = [
        Entry(f"s{schedule}", now - SECOND_MS * (OCCURRENCES - number), now - SECOND_MS * (OCCURRENCES - number), 1)
        for number in range(OCCURRENCES)
        for schedule in range(SCHEDULES)
    ]
    await publish(cassandra_stack, name, entries)
    foreign = Producer({"bootstrap.servers": cassandra_stack.kafka_bootstrap})
    foreign.produce(name, b"hello")
    foreign.flush(30)
    expected = {entry.key: entry.due for entry in entries}

    reader = open_topics(cassandra_stack.sink_url, [name], KafkaSecurity())
    arrived = read_all(reader, len(entries))
    reader.close()
    order = defaultdict(list)
    for each in arrived:
        order[each.seen.key.rpartition("@")[0]].append(each.due)
        assert each.due == expected[each.seen.key]
        assert now - SECOND_MS <= each.seen.at_ms
    assert len(arrived) == len(entries)
    assert all(dues == sorted(dues) for dues in order.values())

    reader = open_topics(cassandra_stack.sink_url, [name], KafkaSecurity(), from_ms=now - 60_000)
    stretch = Stretch(start_ms=min(expected.values()), end_ms=now, hour_ms=60_000, is_complete=True)
    findings = verify_topic(reader, expected | {"s1@2026-11-30T10:00:00.000Z": now - 1}, stretch).findings
    reader.close()
    assert (findings.dispatched, findings.lost, findings.repeated) == (len(entries), 1, 0)
    assert (findings.out_of_order, findings.foreign) == (0, 1)


def test_a_topic_that_nobody_made_is_a_sentence(cassandra_stack: LocalStack) -> None:
    with pytest.raises(SettingsError, match="topic nobody-made-it"):
        open_topics(cassandra_stack.sink_url, ["nobody-made-it"], KafkaSecurity())
