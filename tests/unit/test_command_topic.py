"""Reading commands: staying in the group while work goes on, committing what is done, and ending when told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tocsin.deploy import command_topic, ingest
from tocsin.deploy.command_topic import CommandTopic
from tocsin.deploy.ingestion import Delivery
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.schema.errors import SettingsError


class Message:
    """What the client hands out: a record, or something it has to say."""

    def __init__(self, offset: int = 0, error: int | None = None) -> None:
        self._offset = offset
        self._error = None if error is None else KafkaError(error)

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return "commands"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return None

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return [("k", None)] if self._offset else None


class Consumer:
    """A Kafka consumer that does as it is told, and says what it was told."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self.properties = properties
        self.came: list[Message] = []
        self.told: list[Any] = []
        self.commit_fails = False
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def subscribe(self, topics: list[str]) -> None:
        self.told.append(("subscribe", topics))

    def consume(self, count: int, _: float) -> list[Message]:
        came, self.came = self.came[:count], self.came[count:]
        return came

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("commands", 3)]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.told.append("pause")

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.told.append("resume")

    def poll(self, _: float) -> Message | None:
        self._loop.call_soon_threadsafe(self.asked.set)
        return self.came.pop() if self.came else None

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        if self.commit_fails:
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))
        self.told.append([(each.topic, each.partition, each.offset) for each in offsets])

    def close(self) -> None:
        self.told.append("close")


@pytest.fixture
async def topic(monkeypatch: pytest.MonkeyPatch) -> CommandTopic:
    monkeypatch.setattr(command_topic, "Consumer", Consumer)
    monkeypatch.setattr(command_topic, "NEWS_SECONDS", 0.001)
    return CommandTopic("k1:9092", "commands", "group", KafkaSecurity())


def consumer(topic: CommandTopic) -> Consumer:
    found: Any = topic._consumer
    assert isinstance(found, Consumer)
    return found


def delivery(partition: int, offset: int) -> Delivery:
    return Delivery("commands", partition, offset, b"", None)


async def test_offsets_are_ours_and_only_what_a_transaction_committed_is_read(topic: CommandTopic) -> None:
    properties = consumer(topic).properties
    assert properties["enable.auto.commit"] is False
    assert properties["isolation.level"] == "read_committed"
    assert properties["auto.offset.reset"] == "earliest"
    assert consumer(topic).told == [("subscribe", ["commands"])]


async def test_records_are_read_and_what_the_client_has_to_say_is_no_record(topic: CommandTopic) -> None:
    consumer(topic).came = [Message(7), Message(error=KafkaError._ALL_BROKERS_DOWN), Message()]
    assert await topic.read() == [
        Delivery("commands", 3, 7, b"", None, (("k", b""),)),
        Delivery("commands", 3, 0, b"", None, ()),
    ]
    assert await topic.read() == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "no topic commands"),
        (KafkaError._UNKNOWN_TOPIC, "no topic commands"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "cannot be read"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "cannot be read"),
    ],
)
async def test_a_topic_that_cannot_be_read_ends_it(topic: CommandTopic, error: int, said: str) -> None:
    consumer(topic).came = [Message(error=error)]
    with pytest.raises(SettingsError, match=said):
        await topic.read()


async def test_while_work_goes_on_the_group_hears_of_us_and_what_comes_is_kept(topic: CommandTopic) -> None:
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    working = asyncio.create_task(topic.work(work))
    consumer(topic).came = [Message(8)]
    await consumer(topic).asked.wait()
    work.set_result(None)
    await working
    told = consumer(topic).told
    assert told[1] == "pause"
    assert told[-1] == "resume"
    assert [each.offset for each in await topic.read()] == [8]


async def test_the_newest_of_each_partition_is_committed_and_a_group_that_went_on_is_no_error(
    topic: CommandTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    done = [delivery(0, 4), delivery(1, 9), delivery(0, 2)]
    await topic.commit(done)
    assert consumer(topic).told[-1] == [("commands", 0, 5), ("commands", 1, 10)]
    consumer(topic).commit_fails = True
    await topic.commit(done)
    assert "not_committed" in capsys.readouterr().out


async def test_what_was_begun_is_finished_even_if_we_are_told_to_stop(topic: CommandTopic) -> None:
    stopping = asyncio.Event()
    stopping.set()
    assert await ingest._finish(topic, asyncio.ensure_future(asyncio.sleep(0)), stopping) is True


async def test_what_does_not_finish_is_given_up_once_we_are_told_to_stop(
    topic: CommandTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "STOP_SECONDS", 0)
    stopping = asyncio.Event()
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    finishing = asyncio.create_task(ingest._finish(topic, work, stopping))
    await consumer(topic).asked.wait()
    assert not finishing.done()
    stopping.set()
    assert await finishing is False
    assert work.cancelled()


async def test_an_error_of_the_work_is_told(topic: CommandTopic) -> None:
    async def fail() -> None:
        raise SettingsError("no error topic")

    with pytest.raises(SettingsError, match="no error topic"):
        await ingest._finish(topic, asyncio.ensure_future(fail()), asyncio.Event())
