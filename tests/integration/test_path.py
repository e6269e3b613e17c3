"""The whole path on real parts: a schedule in, a Kafka record out, read by a consumer that knows nothing of Tocsin.

A dispatcher runs beside all tests, on three Cassandra nodes; each test has a topic of its own. That something does not
come is known once a later occurrence of the same shard range has come: an owner dispatches in the order of dues.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import pytest
import pytest_asyncio
from kafka import KafkaConsumer, TopicPartition
from kafka.partitioner import murmur2

from tests.conftest import MakeTopic
from tocsin import AsyncScheduler, Every, Once
from tocsin.deploy.stack import LocalStack
from tocsin.dispatcher.fleet import make_dispatcher
from tocsin.dispatcher.observers import Observers
from tocsin.dispatcher.sink import open_publisher
from tocsin.producer.results import Change, ChangeOutcome
from tocsin.producer.timers import NewTimer
from tocsin.schema.clock import SystemClock
from tocsin.schema.entries import occurrence_key, parse_instant
from tocsin.schema.errors import ScheduleExists
from tocsin.schema.instants import ceil_ms
from tocsin.schema.levels import Layout, Levels
from tocsin.schema.open_store import open_store
from tocsin.schema.schedules import ScheduleRow, State
from tocsin.schema.store import Settings, Store
from tocsin.schema.timing import Timing

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka, pytest.mark.asyncio(loop_scope="module")]

PARTITIONS = 4
SECOND = timedelta(seconds=1)
#: How long a record may take to come, on a machine that is busy with everything else.
PATIENCE_SECONDS = 60
TIMING = Timing()
SHARD_RANGES, LAYOUTS = 4, (Layout(0, 16),)
LEVELS = Levels(TIMING, SHARD_RANGES, LAYOUTS)


class Arrived(NamedTuple):
    key: str
    value: bytes
    partition: int
    timestamp_ms: int
    headers: dict[str, str]


class Consumer:
    """kafka-python's own consumer, at the beginning of a topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.records: list[Arrived] = []
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
        self._consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])

    @property
    def keys(self) -> list[str]:
        return [record.key for record in self.records]

    async def until(self, holds: Callable[[list[Arrived]], bool]) -> list[Arrived]:
        """Everything on the topic, once it holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds(self.records):
                await asyncio.to_thread(self._poll)
        return self.records

    async def until_key(self, key: str) -> list[Arrived]:
        """Everything on the topic, once this occurrence is there."""
        return await self.until(lambda records: any(record.key == key for record in records))

    def close(self) -> None:
        self._consumer.close()

    def _poll(self) -> None:
        for records in self._consumer.poll(timeout_ms=200).values():
            for record in records:
                headers = {name: value.decode() for name, value in record.headers}
                self.records.append(
                    Arrived(record.key.decode(), record.value, record.partition, record.timestamp, headers)
                )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store_url(cassandra_stack: LocalStack, keyspace: str) -> str:
    """A store of four ranges on three nodes."""
    url = cassandra_stack.store_url(keyspace)
    store = open_store(url)
    settings = Settings(genesis=SystemClock().wall_ms(), shard_ranges=SHARD_RANGES, layouts=LAYOUTS)
    await store.initialise(settings)
    await store.close()
    return url


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def dispatcher(cassandra_stack: LocalStack, store_url: str) -> AsyncIterator[None]:
    """One dispatcher, in this process."""
    store = open_store(store_url)
    dispatcher = make_dispatcher(
        store,
        await store.open(),
        open_publisher(cassandra_stack.sink_url),
        dispatcher_id="integration",
        observer=Observers(),
        timing=TIMING,
        clock=SystemClock(),
        new_id=lambda: uuid.uuid4().bytes,
    )
    running = asyncio.create_task(dispatcher.run())
    yield
    dispatcher.stop()
    await running
    await store.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scheduler(store_url: str) -> AsyncIterator[AsyncScheduler]:
    async with AsyncScheduler(store_url) as scheduler:
        yield scheduler


@pytest.fixture
def consumer(cassandra_stack: LocalStack, topic: MakeTopic) -> Iterator[Consumer]:
    """A topic, and its consumer."""
    consumer = Consumer(cassandra_stack.kafka_bootstrap, topic(partitions=PARTITIONS))
    yield consumer
    consumer.close()


def fresh_id(like: str | None = None) -> str:
    """An id nobody has used; in the shard range of another one, where given."""
    candidates = (f"path-{uuid.uuid4().hex[:8]}" for _ in itertools.count())
    return next(each for each in candidates if like is None or LEVELS.shard_range(each) == LEVELS.shard_range(like))


def one_of_each_range(schedule_ids: Iterable[str]) -> Iterable[str]:
    return {LEVELS.shard_range(schedule_id): schedule_id for schedule_id in schedule_ids}.values()


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def key_of(schedule_id: str, at: datetime) -> str:
    return occurrence_key(schedule_id, ceil_ms(at))


def keys_of(schedule_id: str, anchor: datetime, count: int) -> list[str]:
    """The first keys of a schedule that occurs every second."""
    return [key_of(schedule_id, anchor + number * SECOND) for number in range(count)]


async def later_in_the_same_range(
    scheduler: AsyncScheduler, consumer: Consumer, schedule_id: str, at: datetime, partition_key: str | None = None
) -> str:
    """The key of a timer that is due shortly after an instant, in the shard range and partition of a schedule."""
    at, timer_id = at + timedelta(seconds=0.3), fresh_id(schedule_id)
    return await scheduler.send_at(consumer.topic, at=at, timer_id=timer_id, partition_key=partition_key or schedule_id)


async def test_a_record_has_the_key_partition_headers_and_payload_that_consumers_rely_on(
    scheduler: AsyncScheduler, consumer: Consumer
) -> None:
    schedule_id, at = fresh_id(), soon(1)

    created = await scheduler.create(
        schedule_id,
        Once(at),
        topic=consumer.topic,
        payload=b'{"cup": 1}',
        content_type="application/json",
        headers={"kitchen": "left"},
        tenant="tea",
        definition="brew-2",
    )
    (record,) = await consumer.until(lambda records: len(records) == 1)

    key = key_of(schedule_id, at)
    assert (record.key, record.value) == (key, b'{"cup": 1}')
    assert record.partition == (murmur2(schedule_id.encode()) & 0x7FFFFFFF) % PARTITIONS
    assert record.timestamp_ms >= ceil_ms(at)
    instant = key.rpartition("@")[2]
    assert record.headers == {
        "ce_specversion": "1.0",
        "ce_id": key,
        "ce_time": instant,
        "ce_source": "/tocsin",
        "ce_type": "tocsin.occurrence",
        "ce_scheduleid": schedule_id,
        "ce_scheduledfor": instant,
        "ce_version": str(created.version),
        "ce_kind": "arm",
        "ce_missed": "0",
        "ce_tenant": "tea",
        "ce_definition": "brew-2",
        "content-type": "application/json",
        "kitchen": "left",
    }


async def test_a_partition_key_decides_the_partition(scheduler: AsyncScheduler, consumer: Consumer) -> None:
    keys = [f"customer-{number}" for number in range(8)]
    for partition_key in keys:
        payload = partition_key.encode()
        await scheduler.create(
            fresh_id(), Once(soon(0.5)), topic=consumer.topic, payload=payload, partition_key=partition_key
        )

    records = await consumer.until(lambda records: len(records) == len(keys))

    found = {record.value.decode(): record.partition for record in records}
    assert found == {key: (murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS for key in keys}


async def test_every_second_comes_each_second_from_its_anchor_on(scheduler: AsyncScheduler, consumer: Consumer) -> None:
    schedule_id, anchor = fresh_id(), soon(1)

    await scheduler.create(schedule_id, Every(SECOND, anchor=anchor), topic=consumer.topic, start=anchor)
    records = await consumer.until(lambda records: len(records) >= 4)
    await scheduler.cancel(schedule_id)

    assert [record.key for record in records[:4]] == [
        key_of(schedule_id, anchor + number * SECOND) for number in range(4)
    ]
    assert all(record.timestamp_ms >= parse_instant(record.headers["ce_time"]) for record in records)


async def test_a_cancel_five_seconds_ahead_is_prevented_and_no_record_comes(
    scheduler: AsyncScheduler, consumer: Consumer
) -> None:
    schedule_id, at = fresh_id(), soon(5)
    await scheduler.create(schedule_id, Once(at), topic=consumer.topic)

    change = await scheduler.cancel(schedule_id)
    later = await later_in_the_same_range(scheduler, consumer, schedule_id, at)

    assert (change.outcome, change.uncertain) == (ChangeOutcome.PREVENTED, ())
    await consumer.until_key(later)
    assert consumer.keys == [later]
    assert (await scheduler.get(schedule_id)).state is State.CANCELLED


async def test_the_same_create_twice_is_one_schedule_and_one_record(
    scheduler: AsyncScheduler, consumer: Consumer
) -> None:
    schedule_id, at = fresh_id(), soon(1.5)

    first = await scheduler.create(schedule_id, Once(at), topic=consumer.topic, payload=b"same")
    again = await scheduler.create(schedule_id, Once(at), topic=consumer.topic, payload=b"same")
    with pytest.raises(ScheduleExists) as refused:
        await scheduler.create(schedule_id, Once(at), topic=consumer.topic, payload=b"other")

    later = await later_in_the_same_range(scheduler, consumer, schedule_id, at)
    records = await consumer.until_key(later)
    assert first == again
    assert schedule_id in str(refused.value)
    assert [(record.key, record.value) for record in records if record.key != later] == [
        (key_of(schedule_id, at), b"same")
    ]


async def test_an_update_takes_over_where_the_old_version_ends(scheduler: AsyncScheduler, consumer: Consumer) -> None:
    schedule_id, anchor = fresh_id(), soon(0.5)
    await scheduler.create(
        schedule_id, Every(SECOND, anchor=anchor), topic=consumer.topic, start=anchor, payload=b"old"
    )
    await consumer.until(lambda records: len(records) >= 2)

    change = await scheduler.update(schedule_id, payload=b"new")
    records = await consumer.until(lambda records: [record.value for record in records].count(b"new") >= 3)
    await scheduler.cancel(schedule_id)

    # What the old version may have dispatched just before, the new one dispatches in its own name.
    repeated = [key for key, count in Counter(record.key for record in records).items() if count > 1]
    assert set(repeated) <= set(change.uncertain)
    keys = list(dict.fromkeys(record.key for record in records))
    assert keys == keys_of(schedule_id, anchor, len(keys))
    values = [record.value for record in records]
    assert values == sorted(values, reverse=True)
    versions = {record.headers["ce_version"] for record in records if record.value == b"new"}
    assert versions == {str(change.schedule.version)}


async def test_nothing_comes_between_pause_and_resume(scheduler: AsyncScheduler, consumer: Consumer) -> None:
    schedule_id, anchor = fresh_id(), soon(0.5)
    await scheduler.create(schedule_id, Every(SECOND, anchor=anchor), topic=consumer.topic, start=anchor)
    await consumer.until(lambda records: len(records) >= 2)

    paused = await scheduler.pause(schedule_id)
    paused_at = ceil_ms(datetime.now(UTC))
    await consumer.until_key(await later_in_the_same_range(scheduler, consumer, schedule_id, soon(3)))
    resumed_at = ceil_ms(datetime.now(UTC))
    resumed = await scheduler.resume(schedule_id)
    records = await consumer.until(
        lambda records: sum(record.headers["ce_version"] == str(resumed.schedule.version) for record in records) >= 2
    )
    await scheduler.cancel(schedule_id)

    assert (paused.schedule.state, resumed.schedule.state) == (State.PAUSED, State.ACTIVE)
    own = [each for each in records if each.headers["ce_scheduleid"] == schedule_id]
    dues = [parse_instant(each.headers["ce_time"]) for each in own]
    between = [each.key for each, due in zip(own, dues, strict=True) if paused_at < due < resumed_at]
    assert set(between) <= set(paused.uncertain)
    assert dues == sorted(set(dues))


async def test_timers_come_once_and_a_recalled_one_does_not(scheduler: AsyncScheduler, consumer: Consumer) -> None:
    at = soon(6)
    timers = [NewTimer(timer_id=fresh_id(), topic=consumer.topic, at=soon(1), payload=b"many") for _ in range(50)]
    regretted = await scheduler.send_at(consumer.topic, b"never", at=at, timer_id=fresh_id())

    sent = [result.key async for result in scheduler.send_many(timers)]
    again = [result.key async for result in scheduler.send_many(timers[:10])]
    recall = await scheduler.recall(regretted)
    last = await later_in_the_same_range(scheduler, consumer, regretted.rpartition("@")[0], at)
    records = await consumer.until_key(last)

    assert recall.outcome is ChangeOutcome.PREVENTED
    assert again == sent[:10]
    assert sorted(record.key for record in records) == sorted([*filter(None, sent), last])
    assert {record.headers["ce_kind"] for record in records} == {"timer"}


async def test_what_a_cancel_around_the_due_instant_calls_prevented_is_not_dispatched_after_it(
    store_url: str, consumer: Consumer
) -> None:
    clock = SystemClock()
    inner = open_store(store_url)
    first = soon(4)
    dues = {fresh_id(): first + timedelta(milliseconds=25 * number) for number in range(120)}
    committing: dict[str, int] = {}

    class Watched:
        """The store, and when each conditional write began."""

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        async def replace_schedule(self, row: ScheduleRow, expected_version: int) -> ScheduleRow | None:
            committing.setdefault(row.schedule_id, clock.wall_ms())
            return await inner.replace_schedule(row, expected_version)

    async def cancel(scheduler: AsyncScheduler, schedule_id: str, at: datetime, offset_ms: int) -> Change:
        # The instant is what is tried here: from 60 ms before the due to 60 ms after it.
        await clock.sleep_ms(ceil_ms(at) + offset_ms - clock.wall_ms())
        return await scheduler.cancel(schedule_id)

    async with AsyncScheduler(cast("Store", Watched())) as scheduler:
        await asyncio.gather(
            *(scheduler.create(each, Once(at), topic=consumer.topic, partition_key="race") for each, at in dues.items())
        )
        calls = (cancel(scheduler, *due, number % 13 * 10 - 60) for number, due in enumerate(dues.items()))
        changes = await asyncio.gather(*calls)
        for schedule_id in one_of_each_range(dues):
            await consumer.until_key(await later_in_the_same_range(scheduler, consumer, schedule_id, soon(0), "race"))
    await inner.close()

    sent = {record.key: record.timestamp_ms for record in consumer.records}
    assert len(sent) == len(consumer.records)
    for change in changes:
        schedule_id = change.schedule.schedule_id
        key = key_of(schedule_id, dues[schedule_id])
        assert (change.outcome is ChangeOutcome.PREVENTED) == (change.uncertain == ())
        assert set(change.uncertain) <= {key}
        if change.outcome is ChangeOutcome.PREVENTED and key in sent:
            assert sent[key] < committing[schedule_id]


async def test_two_hundred_created_zero_to_ten_seconds_ahead_all_come_once_and_none_early(
    scheduler: AsyncScheduler, consumer: Consumer
) -> None:
    begun = datetime.now(UTC)
    dues = {fresh_id(): begun + timedelta(seconds=number / 20) for number in range(200)}
    room = asyncio.Semaphore(20)

    async def create(schedule_id: str, at: datetime) -> None:
        async with room:
            await scheduler.create(schedule_id, Once(at), topic=consumer.topic)

    await asyncio.gather(*itertools.starmap(create, dues.items()))
    records = await consumer.until(lambda records: len({record.key for record in records}) == len(dues))

    assert sorted(consumer.keys) == sorted(key_of(schedule_id, at) for schedule_id, at in dues.items())
    assert [each for each in records if each.timestamp_ms < parse_instant(each.headers["ce_time"])] == []
