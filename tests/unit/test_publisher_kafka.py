"""What both Kafka publishers share, over a client under the test's control."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tocsin.dispatcher.publisher import Outcome, PublisherSettings, Record
from tocsin.dispatcher.publisher_kafka import KafkaPublisher, LookUpFailed, Parcel, TopicView


class Client:
    """Knows the topics it is told of, and answers parcels when it is told to."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicView | Outcome] = {"tea": TopicView(4), "mail": TopicView(4)}
        self.asked: list[str] = []
        self.parcels: list[Parcel] = []
        self.closed = False
        #: Look-ups of this topic wait for `answering`.
        self.slow_topic: str | None = None
        self.answering = threading.Event()

    def start(self) -> None:
        pass

    def look_up(self, topic: str) -> TopicView:
        self.asked.append(topic)
        if topic == self.slow_topic:
            assert self.answering.wait(10)
        known = self.topics.get(topic, Outcome.UNKNOWN_TOPIC)
        if isinstance(known, Outcome):
            raise LookUpFailed(known)
        return known

    def hand_over(self, parcel: Parcel) -> None:
        self.parcels.append(parcel)

    async def close(self) -> None:
        self.closed = True

    async def until_handed_over(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.parcels) < count:  # noqa: ASYNC110 - answers come from a thread through the loop
                await asyncio.sleep(0.001)


class Now:
    """The publisher's clock, in seconds."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
async def publisher(client: Client, now: Now, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KafkaPublisher]:
    monkeypatch.setattr(KafkaPublisher, "_now", staticmethod(now))
    publisher = KafkaPublisher(client, PublisherSettings(unacked_count_max=100))
    await publisher.start()
    yield publisher
    client.answering.set()
    await publisher.close(0)


def records(topic: str, *keys: str) -> list[Record]:
    return [Record(topic, key.encode(), b"", [], key.encode()) for key in keys]


def publish(publisher: KafkaPublisher, batch: list[Record]) -> asyncio.Task[list[Outcome]]:
    return asyncio.create_task(publisher.publish(batch))  # type: ignore[arg-type]


def keys_of(parcels: list[Parcel]) -> list[str]:
    return [record.key.decode() for parcel in parcels for record in parcel.records]


async def test_no_records_have_no_outcomes(publisher: KafkaPublisher) -> None:
    assert await publisher.publish([]) == []


async def test_batches_of_one_topic_go_out_in_the_order_of_their_calls(
    publisher: KafkaPublisher, client: Client
) -> None:
    # The first goes through a task per topic, the second directly: neither may overtake the other.
    first = publish(publisher, records("tea", "a") + records("mail", "b") + records("tea", "c"))
    second = publish(publisher, records("tea", "d"))
    await client.until_handed_over(3)
    assert keys_of([parcel for parcel in client.parcels if parcel.topic == "tea"]) == ["a", "c", "d"]
    for parcel in client.parcels:
        parcel.answer_all(Outcome.ACKED)
    assert await first == [Outcome.ACKED] * 3
    assert await second == [Outcome.ACKED]


async def test_a_slow_look_up_holds_up_no_other_topic_and_is_asked_once(
    publisher: KafkaPublisher, client: Client
) -> None:
    client.slow_topic = "tea"
    waiting = [publish(publisher, records("tea", str(number))) for number in range(5)]
    prompt = publish(publisher, records("mail", "m"))
    await client.until_handed_over(1)
    client.parcels[0].answer_all(Outcome.ACKED)
    assert await prompt == [Outcome.ACKED]

    client.answering.set()
    await client.until_handed_over(6)
    assert keys_of(client.parcels[1:]) == ["0", "1", "2", "3", "4"]
    assert client.asked.count("tea") == 1
    for parcel in client.parcels[1:]:
        parcel.answer_all(Outcome.ACKED)
    await asyncio.gather(*waiting)


async def test_an_unknown_topic_is_asked_again_once_the_answer_is_old(
    publisher: KafkaPublisher, client: Client, now: Now
) -> None:
    for _ in range(3):
        assert await publisher.publish(records("late", "a")) == [Outcome.UNKNOWN_TOPIC]
    assert client.asked == ["late"]
    client.topics["late"] = TopicView(1)
    now.seconds += 1
    found = publish(publisher, records("late", "a"))
    await client.until_handed_over(1)
    client.parcels[0].answer_all(Outcome.ACKED)
    assert await found == [Outcome.ACKED]


async def test_a_topic_we_may_not_write_is_not_handed_over_again_before_the_answer_is_old(
    publisher: KafkaPublisher, client: Client, now: Now
) -> None:
    refused = publish(publisher, records("tea", "a"))
    await client.until_handed_over(1)
    client.parcels[0].answer_all(Outcome.NOT_AUTHORISED)
    assert await refused == [Outcome.NOT_AUTHORISED]
    assert await publisher.publish(records("tea", "b")) == [Outcome.NOT_AUTHORISED]
    assert len(client.parcels) == 1

    now.seconds += 1
    allowed = publish(publisher, records("tea", "c"))
    await client.until_handed_over(2)
    client.parcels[1].answer_all(Outcome.ACKED)
    assert await allowed == [Outcome.ACKED]


async def test_a_topic_that_gained_partitions_is_noticed_without_waiting(
    publisher: KafkaPublisher, client: Client, now: Now
) -> None:
    for expected in (4, 4, 8):
        under_way = publish(publisher, records("tea", "a"))
        await client.until_handed_over(1)
        parcel = client.parcels.pop()
        assert parcel.partition_count == expected
        parcel.answer_all(Outcome.ACKED)
        await under_way
        client.topics["tea"] = TopicView(8)
        now.seconds += 61
        asking = publisher._lanes["tea"].asking
        if asking is not None:
            await asking


@pytest.mark.parametrize(
    ("described", "others_acked", "expected"),
    [
        (Outcome.BROKER_AWAY, False, Outcome.BROKER_AWAY),
        (Outcome.UNKNOWN_TOPIC, False, Outcome.UNKNOWN_TOPIC),
        (TopicView(4, leaderless_count=1), False, Outcome.TOPIC_FAILING),
        (TopicView(4), True, Outcome.TOPIC_FAILING),
        (TopicView(4), False, Outcome.BROKER_AWAY),
    ],
)
async def test_silence_is_the_brokers_fault_unless_the_topic_proves_to_be_failing(
    publisher: KafkaPublisher,
    client: Client,
    now: Now,
    described: TopicView | Outcome,
    others_acked: bool,
    expected: Outcome,
) -> None:
    silent = publish(publisher, records("tea", "a", "b"))
    await client.until_handed_over(1)
    now.seconds += 30
    if others_acked:
        other = publish(publisher, records("mail", "m"))
        await client.until_handed_over(2)
        client.parcels[1].answer_all(Outcome.ACKED)
        assert await other == [Outcome.ACKED]
    client.topics["tea"] = described
    client.parcels[0].answer(0, Outcome.BROKER_AWAY)
    client.parcels[0].answer(1, Outcome.TOO_LARGE)
    assert await silent == [expected, Outcome.TOO_LARGE]


async def test_many_silent_parcels_of_one_topic_cause_one_look_up(
    publisher: KafkaPublisher, client: Client, now: Now
) -> None:
    silent = [publish(publisher, records("tea", str(number))) for number in range(5)]
    await client.until_handed_over(5)
    now.seconds += 30
    client.asked.clear()
    client.slow_topic = "tea"
    for parcel in client.parcels:
        parcel.answer_all(Outcome.BROKER_AWAY)
    async with asyncio.timeout(10):
        while not client.asked:  # noqa: ASYNC110 - it is asked in a thread
            await asyncio.sleep(0.001)
    for _ in range(20):
        await asyncio.sleep(0)
    client.answering.set()
    await asyncio.gather(*silent)
    assert client.asked == ["tea"]


async def test_a_call_that_is_cancelled_lets_the_next_one_go_and_gives_its_room_back(
    publisher: KafkaPublisher, client: Client
) -> None:
    given_up = publish(publisher, records("tea", "a"))
    await client.until_handed_over(1)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert publisher.unacked_count == 1, "the record is under way all the same"

    following = publish(publisher, records("tea", "b"))
    await client.until_handed_over(2)
    for parcel in client.parcels:
        parcel.answer_all(Outcome.ACKED)
    assert await following == [Outcome.ACKED]
    assert publisher.unacked_count == 0


async def test_a_topic_without_answers_fills_its_half_of_the_room_and_no_more(
    publisher: KafkaPublisher, client: Client
) -> None:
    stuck = publish(publisher, records("tea", *(str(number) for number in range(80))))
    await client.until_handed_over(1)
    assert publisher.unacked_count == 50
    other = publish(publisher, records("mail", "m"))
    await client.until_handed_over(2)
    client.parcels[1].answer_all(Outcome.ACKED)
    assert await other == [Outcome.ACKED]

    client.parcels[0].answer_all(Outcome.ACKED)
    await client.until_handed_over(3)
    client.parcels[2].answer_all(Outcome.ACKED)
    assert await stuck == [Outcome.ACKED] * 80


def test_a_users_long_header_counts_towards_the_bound_on_bytes() -> None:
    own = [(f"ce_{number}", b"1") for number in range(13)]
    small = Record("tea", b"k", b"v" * 100, own, b"k")
    large = Record("tea", b"k", b"v" * 100, [*own, ("notes", b"x" * 5_000)], b"k")
    assert small.bytes_unacked >= 100
    assert large.bytes_unacked >= 5_100


async def test_closing_gives_up_what_is_not_answered_in_time(publisher: KafkaPublisher, client: Client) -> None:
    under_way = publish(publisher, records("tea", "a"))
    await client.until_handed_over(1)
    await publisher.close(10)
    assert client.closed
    assert await under_way == [Outcome.BROKER_AWAY]
    assert await publisher.publish(records("tea", "b")) == [Outcome.BROKER_AWAY]
    await publisher.close(10)


async def test_lanes_of_topics_nobody_uses_are_forgotten(
    publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.dispatcher.publisher_kafka.LANES_MAX", 10)
    for number in range(50):
        await publisher.publish(records(f"made-up-{number}", "a"))
    assert len(publisher._lanes) <= 10
