"""How fast records leave by each Kafka client, as a ratio to a bare loop over the same client in the same run.

The bare loop is the least a program can do: produce every record with its headers and partition, count the answers,
wait for the last. What the publisher adds is order per topic, bounds, outcomes and awaiting. Rounds of both alternate,
so that a machine that others use too slows both alike; each figure is the median of five rounds.

Run it with `python -m tocsin.loadtest.bench_publish HOST:PORT`; it creates a topic and deletes it afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

from tocsin.dispatcher import publisher_confluent, publisher_kafka_python
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher import Outcome, PublisherSettings, Record
from tocsin.dispatcher.record import record_of
from tocsin.dispatcher.sink import open_publisher
from tocsin.schema.entries import Entry
from tocsin.schema.instants import to_datetime
from tocsin.schema.recurrence import Once
from tocsin.schema.schedules import Spec

ROUNDS = 5
#: Records of one round, by client; a round takes about a second.
RECORDS = {"confluent-kafka": 100_000, "kafka-python": 10_000}
#: Records of one publish call, as in a dispatcher's batch.
BATCH = 500
PARTITION_COUNT = 8
PAYLOAD = b"x" * 200
NOON_MS = 1_796_040_000_000


class PublishFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one client reached, in records a second."""

    kafka_client: str
    rate: float
    bare_rate: float
    ratio: float
    #: Processor time of this process for one published record, all threads, in microseconds.
    processor_us: float


@contextlib.contextmanager
def fresh_topic(servers: str) -> Iterator[str]:
    """A topic for one benchmark."""
    admin = AdminClient({"bootstrap.servers": servers})
    name = f"bench-publish-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, PARTITION_COUNT, 1)])[name].result(30)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(30)


def make_records(topic: str, count: int) -> list[Record]:
    """Records as a dispatcher makes them."""
    spec = Spec(recurrence=Once(to_datetime(NOON_MS)), topic=topic, content_type="application/octet-stream")
    entries = (Entry(f"bench-{n}", NOON_MS, NOON_MS, NOON_MS * 1_000, payload=PAYLOAD) for n in range(count))
    return [record_of(entry, spec) for entry in entries]


def bare_confluent(servers: str, records: Sequence[Record]) -> float:
    """The bare loop's rate."""
    properties = publisher_confluent.configuration(servers, PublisherSettings(), KafkaSecurity())
    producer = Producer(properties | {"queue.buffering.max.messages": 2 * len(records)})
    producer.list_topics(records[0].topic, 10)
    answered = 0

    def count(_error: object, _message: object) -> None:
        nonlocal answered
        answered += 1

    began = time.perf_counter()
    produce: Callable[..., None] = producer.produce
    for index, record in enumerate(records):
        partition = record.partition(PARTITION_COUNT)
        produce(record.topic, record.value, record.key, partition, count, headers=record.headers)
        if index % BATCH == 0:
            producer.poll(0)
    while answered < len(records):
        producer.poll(0.01)
    rate = len(records) / (time.perf_counter() - began)
    producer.close()
    return rate


def bare_kafka_python(servers: str, records: Sequence[Record]) -> float:
    """The bare loop's rate."""
    arguments = publisher_kafka_python.producer_configuration(servers, PublisherSettings(), KafkaSecurity())
    producer = KafkaProducer(**arguments)
    producer.partitions_for(records[0].topic)
    all_answered, unanswered = threading.Event(), iter(range(len(records) - 1, -1, -1))

    def count(_metadata: object) -> None:
        if not next(unanswered):
            all_answered.set()

    began = time.perf_counter()
    for record in records:
        partition = record.partition(PARTITION_COUNT)
        future = producer.send(record.topic, record.value, record.key, record.headers, partition)
        future.add_callback(count)
    all_answered.wait()
    rate = len(records) / (time.perf_counter() - began)
    producer.close()
    return rate


BARE_LOOPS = {"confluent-kafka": bare_confluent, "kafka-python": bare_kafka_python}


async def published(servers: str, kafka_client: str, records: Sequence[Record]) -> tuple[float, float]:
    """The publisher's rate, and its processor time per record in µs."""
    publisher = open_publisher(f"kafka://{servers}", kafka_client=kafka_client)
    await publisher.start()
    await publisher.publish(records[:1])
    began, processor_began = time.perf_counter(), time.process_time()
    batches = (records[start : start + BATCH] for start in range(0, len(records), BATCH))
    outcomes = await asyncio.gather(*(publisher.publish(batch) for batch in batches))
    rate = len(records) / (time.perf_counter() - began)
    processor_us = 1e6 * (time.process_time() - processor_began) / len(records)
    await publisher.close(10_000)
    lost = sum(outcome is not Outcome.ACKED for batch in outcomes for outcome in batch)
    if lost:
        raise RuntimeError(f"{lost} records were not acknowledged; the figures would mean nothing.")
    return rate, processor_us


def measure(servers: str, kafka_client: str) -> PublishFigures:
    """The figures of one client."""
    bare_rates, rates, processor_us = [], [], []
    with fresh_topic(servers) as topic:
        records = make_records(topic, RECORDS[kafka_client])
        for _ in range(ROUNDS):
            bare_rates.append(BARE_LOOPS[kafka_client](servers, records))
            rate, cost_us = asyncio.run(published(servers, kafka_client, records))
            rates.append(rate)
            processor_us.append(cost_us)
    rate, bare_rate = statistics.median(rates), statistics.median(bare_rates)
    return PublishFigures(
        kafka_client=kafka_client,
        rate=round(rate),
        bare_rate=round(bare_rate),
        ratio=round(rate / bare_rate, 2),
        processor_us=round(statistics.median(processor_us), 1),
    )


def main() -> None:
    """Measure both clients against the broker named on the command line; one JSON object a line."""
    for kafka_client in RECORDS:
        sys.stdout.write(msgspec.json.encode(measure(sys.argv[1], kafka_client)).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
