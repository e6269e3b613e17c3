"""One suite for both Kafka clients, on a real broker: whatever a publisher promises, each of them keeps."""

from __future__ import annotations

import asyncio
import gc
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from tocsin.deploy.stack import LocalStack
from tocsin.dispatcher.partitioning import partition_hash
from tocsin.dispatcher.publisher import Outcome, PublisherSettings, Record
from tocsin.dispatcher.publisher_kafka import KafkaPublisher
from tocsin.dispatcher.sink import KAFKA_CLIENTS, open_publisher

pytestmark = [
    pytest.mark.kafka,
    # kafka-python leaves the socket of a refused connection to the garbage collector; see `publisher_with`.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PARTITION_COUNT = 4
HEADERS = [("ce_specversion", b"1.0"), ("ce_id", b"tea@2026-11-30T10:00:00.000Z"), ("trace", "ü".encode())]

OpenPublisher = Callable[..., Any]


class Broker:
    """The run's broker, which a test may stop and start."""

    def __init__(self, stack: LocalStack) -> None:
        self.servers = stack.kafka_bootstrap
        self._stack = stack

    def stop(self) -> None:
        self._stack.stop_kafka(gently=False)

    def start(self) -> None:
        self._stack.start_kafka()


@pytest.fixture
def broker(cassandra_stack: LocalStack) -> Broker:
    return Broker(cassandra_stack)


@pytest.fixture
def disturbed_broker(disturbed_stack: LocalStack) -> Broker:
    return Broker(disturbed_stack)


def record(topic: str, partition_key: str = "tea", value: bytes = b"hot", run: int = 0) -> Record:
    return Record(topic, f"{partition_key}@{run}".encode(), value, HEADERS, partition_key.encode())


@pytest.fixture(params=KAFKA_CLIENTS)
async def publisher_with(request: pytest.FixtureRequest, broker: Broker) -> AsyncIterator[OpenPublisher]:
    opened: list[KafkaPublisher] = []

    async def open_with(**settings: Any) -> KafkaPublisher:
        publisher = open_publisher(
            f"kafka://{broker.servers}", settings=PublisherSettings(**settings), kafka_client=request.param
        )
        assert isinstance(publisher, KafkaPublisher)
        await publisher.start()
        opened.append(publisher)
        return publisher

    yield open_with
    for publisher in opened:
        await publisher.close(5_000)
    opened.clear()
    gc.collect()  # while this module's filter for kafka-python's forgotten sockets holds


@pytest.fixture
async def publisher(publisher_with: OpenPublisher) -> KafkaPublisher:
    opened: KafkaPublisher = await publisher_with()
    return opened


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.servers)
    yield admin
    admin.close()


def create_topic(admin: KafkaAdminClient, name: str | None = None, **configs: str) -> str:
    """A topic that the broker already shows to whoever asks."""
    name = name or f"publisher-{uuid.uuid4().hex}"
    wanted = {"num_partitions": PARTITION_COUNT, "replication_factor": 1, "configs": configs}
    admin.create_topics({name: wanted}, wait_for_metadata=True)
    return name


@pytest.fixture
def topic(admin: KafkaAdminClient) -> str:
    return create_topic(admin)


def read_back(servers: str, topic: str) -> list[Any]:
    """Everything the topic holds, by a plain consumer of another library than the default publisher's."""
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITION_COUNT)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        consumer.seek_to_beginning()
        records: list[Any] = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for found in consumer.poll(timeout_ms=1_000).values():
                records.extend(found)
        return records
    finally:
        consumer.close()


def keys_of(records: Iterable[Any]) -> list[bytes]:
    return [found.key for found in records]


async def longest_pause_s(awaited: Any) -> float:
    """The longest time for which the event loop did nothing else while this was awaited."""
    longest, task = 0.0, asyncio.ensure_future(awaited)
    while not task.done():
        before = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - before)
    await task
    return longest


async def test_a_record_comes_back_as_it_was_handed_over(publisher: KafkaPublisher, topic: str, broker: Broker) -> None:
    before_ms = time.time_ns() // 1_000_000
    assert await publisher.publish([record(topic)]) == [Outcome.ACKED]

    (found,) = await asyncio.to_thread(read_back, broker.servers, topic)
    assert (found.key, found.value, list(found.headers)) == (b"tea@0", b"hot", HEADERS)
    assert found.timestamp_type == 0, "the record's time is not its CreateTime"
    assert before_ms <= found.timestamp <= time.time_ns() // 1_000_000


async def test_the_partition_is_the_one_kafkas_java_producer_would_choose(
    publisher: KafkaPublisher, topic: str, broker: Broker
) -> None:
    # "foobar" and "abc" hash to -790332482 and 479470107 in Kafka's own tests.
    records = [record(topic, name) for name in ("foobar", "abc", *(f"schedule-{number}" for number in range(50)))]
    assert set(await publisher.publish(records)) == {Outcome.ACKED}

    found = {one.key: one.partition for one in await asyncio.to_thread(read_back, broker.servers, topic)}
    assert found[b"foobar@0"] == (-790332482 & 0x7FFFFFFF) % PARTITION_COUNT
    assert found[b"abc@0"] == 479470107 % PARTITION_COUNT
    assert found == {one.key: partition_hash(one.partition_key) % PARTITION_COUNT for one in records}


async def test_records_of_one_partition_key_keep_their_order_across_batches_under_way(
    publisher: KafkaPublisher, topic: str, broker: Broker
) -> None:
    batches = [
        [record(topic, f"s{key}", run=run) for key in range(20) for run in (2 * n, 2 * n + 1)] for n in range(30)
    ]
    outcomes = await asyncio.gather(*(publisher.publish(batch) for batch in batches))
    assert {outcome for batch in outcomes for outcome in batch} == {Outcome.ACKED}

    runs = defaultdict(list)
    for key in keys_of(await asyncio.to_thread(read_back, broker.servers, topic)):
        schedule, _, run = key.partition(b"@")
        runs[schedule].append(int(run))
    assert dict(runs) == {f"s{key}".encode(): list(range(60)) for key in range(20)}


async def test_outcomes_come_in_the_order_of_their_records_whatever_their_topics(
    publisher: KafkaPublisher, topic: str, admin: KafkaAdminClient
) -> None:
    other = create_topic(admin)
    mixed = [record((topic, "no-such-topic", other)[number % 3], f"s{number}") for number in range(300)]
    outcomes = await publisher.publish(mixed)
    assert outcomes == [(Outcome.ACKED, Outcome.UNKNOWN_TOPIC, Outcome.ACKED)[number % 3] for number in range(300)]


async def test_a_record_beyond_our_own_limit_is_too_large_and_its_neighbours_arrive(
    publisher_with: OpenPublisher, topic: str
) -> None:
    publisher = await publisher_with(record_bytes_max=50_000)
    outcomes = await publisher.publish([record(topic), record(topic, value=b"x" * 80_000), record(topic)])
    assert outcomes == [Outcome.ACKED, Outcome.TOO_LARGE, Outcome.ACKED]


async def test_a_record_beyond_the_topics_limit_takes_no_neighbour_with_it(
    publisher: KafkaPublisher, admin: KafkaAdminClient, broker: Broker
) -> None:
    topic = create_topic(admin, **{"max.message.bytes": "20000"})
    records = [record(topic, run=run) for run in range(40)]
    records[20] = record(topic, value=b"x" * 50_000, run=20)
    outcomes = await publisher.publish(records)

    assert [run for run, outcome in enumerate(outcomes) if outcome is not Outcome.ACKED] == [20]
    assert outcomes[20] is Outcome.TOO_LARGE
    found = keys_of(await asyncio.to_thread(read_back, broker.servers, topic))
    assert sorted(found) == sorted(one.key for run, one in enumerate(records) if run != 20)


async def test_an_unknown_topic_is_answered_at_once_and_found_when_it_is_created_later(
    publisher: KafkaPublisher, admin: KafkaAdminClient, broker: Broker
) -> None:
    name = f"late-{uuid.uuid4().hex}"
    before = time.monotonic()
    assert await publisher.publish([record(name)]) == [Outcome.UNKNOWN_TOPIC]
    assert time.monotonic() - before < 5

    create_topic(admin, name)
    await until_acked(publisher, [record(name)])
    assert keys_of(await asyncio.to_thread(read_back, broker.servers, name)) == [b"tea@0"]


async def test_a_name_no_topic_can_have_is_invalid(publisher: KafkaPublisher) -> None:
    assert await publisher.publish([record("no topic is called so!")]) == [Outcome.INVALID]


async def test_a_deleted_topic_is_unknown_and_holds_up_no_other(
    publisher_with: OpenPublisher, topic: str, admin: KafkaAdminClient
) -> None:
    publisher = await publisher_with(request_timeout_ms=2_000, delivery_timeout_ms=8_000)
    other = create_topic(admin)
    assert await publisher.publish([record(topic), record(other)]) == [Outcome.ACKED] * 2
    admin.delete_topics([topic])

    doomed = asyncio.ensure_future(publisher.publish([record(topic, run=run) for run in range(200)]))
    for run in range(20):
        before = time.monotonic()
        assert await publisher.publish([record(other, run=run)]) == [Outcome.ACKED]
        assert time.monotonic() - before < 3
    assert set(await doomed) <= {Outcome.UNKNOWN_TOPIC, Outcome.TOPIC_FAILING}
    assert set(await publisher.publish([record(topic)])) == {Outcome.UNKNOWN_TOPIC}


@pytest.mark.parametrize(
    "bound", [{"unacked_count_max": 300}, {"unacked_bytes_max": 40_000, "record_bytes_max": 20_000}]
)
async def test_unacked_records_stay_within_their_bounds(
    publisher_with: OpenPublisher, topic: str, bound: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = await publisher_with(**bound)
    seen: list[tuple[int, int]] = []
    hand_over = publisher._client.hand_over

    def watched(parcel: Any) -> None:
        hand_over(parcel)
        seen.append((publisher.unacked_count, publisher.unacked_bytes))

    monkeypatch.setattr(publisher._client, "hand_over", watched)
    batches = [[record(topic, f"s{n}", run=run, value=b"x" * 200) for run in range(100)] for n in range(20)]
    outcomes = await asyncio.gather(*(publisher.publish(batch) for batch in batches))

    assert {outcome for batch in outcomes for outcome in batch} == {Outcome.ACKED}
    assert max(count for count, _ in seen) <= bound.get("unacked_count_max", 2_000)
    assert max(size_bytes for _, size_bytes in seen) <= bound.get("unacked_bytes_max", 10**9)
    assert (publisher.unacked_count, publisher.unacked_bytes) == (0, 0)


async def test_closing_waits_for_the_answers_under_way(
    publisher_with: OpenPublisher, topic: str, broker: Broker
) -> None:
    publisher = await publisher_with(linger_ms=500)
    under_way = asyncio.ensure_future(publisher.publish([record(topic, run=run) for run in range(100)]))
    async with asyncio.timeout(20):
        while not publisher.unacked_count:  # noqa: ASYNC110 - the publisher has no signal for it, nor needs one
            await asyncio.sleep(0)
    await publisher.close(20_000)
    assert set(await under_way) == {Outcome.ACKED}
    assert len(await asyncio.to_thread(read_back, broker.servers, topic)) == 100


async def test_while_the_broker_is_away_nothing_blocks_and_afterwards_nothing_is_lost(
    publisher_with: OpenPublisher, topic: str, disturbed_broker: Broker
) -> None:
    publisher = await publisher_with(request_timeout_ms=1_000, delivery_timeout_ms=3_000, metadata_timeout_ms=2_000)
    records = [record(topic, f"s{run % 7}", run=run) for run in range(500)]
    assert set(await publisher.publish(records[:100])) == {Outcome.ACKED}

    await asyncio.to_thread(disturbed_broker.stop)
    try:
        known = asyncio.ensure_future(publisher.publish(records[100:]))
        unheard_of = asyncio.ensure_future(publisher.publish([record("never-looked-up")]))
        assert await longest_pause_s(asyncio.gather(known, unheard_of)) < 1
        assert set(known.result()) == {Outcome.BROKER_AWAY}
        assert unheard_of.result() == [Outcome.BROKER_AWAY]
        assert publisher.unacked_count == 0
    finally:
        await asyncio.to_thread(disturbed_broker.start)
    await until_acked(publisher, records[100:])
    found = set(keys_of(await asyncio.to_thread(read_back, disturbed_broker.servers, topic)))
    assert found == {one.key for one in records}


async def test_a_restart_within_the_delivery_timeout_repeats_nothing_and_keeps_the_order(
    publisher_with: OpenPublisher, topic: str, disturbed_broker: Broker
) -> None:
    publisher = await publisher_with(request_timeout_ms=5_000, delivery_timeout_ms=60_000)
    records = [record(topic, f"s{run % 7}", run=run) for run in range(400)]
    assert set(await publisher.publish(records[:100])) == {Outcome.ACKED}
    await asyncio.to_thread(disturbed_broker.stop)
    try:
        under_way = asyncio.gather(*(publisher.publish(records[start : start + 50]) for start in range(100, 400, 50)))
    finally:
        await asyncio.to_thread(disturbed_broker.start)
    assert {outcome for batch in await under_way for outcome in batch} == {Outcome.ACKED}

    runs = defaultdict(list)
    for key in keys_of(await asyncio.to_thread(read_back, disturbed_broker.servers, topic)):
        schedule, _, run = key.partition(b"@")
        runs[schedule].append(int(run))
    assert dict(runs) == {f"s{key}".encode(): list(range(key, 400, 7)) for key in range(7)}


async def until_acked(publisher: KafkaPublisher, records: Sequence[Record], *, within_s: float = 60) -> None:
    """Publish what is not acknowledged again, as the dispatcher would, until everything is."""
    async with asyncio.timeout(within_s):
        while records:
            outcomes = await publisher.publish(records)
            records = [one for one, outcome in zip(records, outcomes, strict=True) if outcome is not Outcome.ACKED]
            await asyncio.sleep(0.05 if records else 0)
