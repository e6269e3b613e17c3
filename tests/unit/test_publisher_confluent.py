"""librdkafka's errors in our words, and a producer beyond repair; over a producer under the test's control."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tocsin.dispatcher import publisher_confluent
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher import Outcome, PublisherSettings, Record
from tocsin.dispatcher.publisher_confluent import ConfluentClient, configuration, outcome_of
from tocsin.dispatcher.publisher_kafka import Parcel

Report = Callable[[KafkaError | None, object], None]


class Producer:
    """Takes records, and reports on them when it is polled."""

    made: list[Producer]
    #: Raised by `produce` of the next producers made.
    refusal: Exception | None = None

    def __init__(self, properties: dict[str, Any], **_: object) -> None:
        self.properties = properties
        self.refusal = type(self).refusal
        self.answer: KafkaError | None = None
        self.taken: list[Report] = []
        self.closed = False
        self.made.append(self)

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, report: Report, **_: object) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.taken.append(report)

    def poll(self, _: float) -> int:
        taken, self.taken = self.taken, []
        for report in taken:
            report(self.answer, None)
        return len(taken)

    def purge(self, *, blocking: bool) -> None:
        assert not blocking
        self.answer = KafkaError(KafkaError._PURGE_QUEUE)

    def close(self) -> bool:
        assert threading.current_thread() is not threading.main_thread(), "closing blocks"
        self.closed = True
        return True

    def __len__(self) -> int:
        return len(self.taken)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Producer]]:
    Producer.made, Producer.refusal = [], None
    monkeypatch.setattr(publisher_confluent, "Producer", Producer)
    return Producer.made


@pytest.fixture
def client() -> ConfluentClient:
    properties = configuration("broker:9092", PublisherSettings(), KafkaSecurity())
    return ConfluentClient(properties, metadata_timeout_ms=1_000)


def parcel_of(count: int) -> Parcel:
    return Parcel("tea", [Record("tea", b"k", b"v", [], b"p") for _ in range(count)], 4, 0.0)


async def outcomes_of(client: ConfluentClient, parcel: Parcel) -> list[Outcome]:
    client.hand_over(parcel)
    async with asyncio.timeout(10):
        await parcel.finished
    return parcel.outcomes


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaError._MSG_TIMED_OUT, Outcome.BROKER_AWAY),
        (KafkaError._TRANSPORT, Outcome.BROKER_AWAY),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Outcome.BROKER_AWAY),
        (KafkaError.MSG_SIZE_TOO_LARGE, Outcome.TOO_LARGE),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Outcome.NOT_AUTHORISED),
        (KafkaError._UNKNOWN_TOPIC, Outcome.UNKNOWN_TOPIC),
        (KafkaError.TOPIC_EXCEPTION, Outcome.INVALID),
        (KafkaError._UNKNOWN_PARTITION, Outcome.TOPIC_FAILING),
        (KafkaError.NOT_ENOUGH_REPLICAS, Outcome.TOPIC_FAILING),
        (KafkaError.KAFKA_STORAGE_ERROR, Outcome.TOPIC_FAILING),
    ],
)
def test_every_error_has_its_outcome(code: int, outcome: Outcome) -> None:
    assert outcome_of(KafkaError(code)) is outcome


def test_every_error_we_name_exists_in_librdkafka() -> None:
    known = {KafkaError(getattr(KafkaError, name)).name() for name in dir(KafkaError) if name.strip("_").isupper()}
    assert set(publisher_confluent._OUTCOMES) | publisher_confluent._REFUSED_TOGETHER <= known


async def test_reports_are_fetched_without_anybody_asking(made: list[Producer], client: ConfluentClient) -> None:
    client.start()
    assert await outcomes_of(client, parcel_of(3)) == [Outcome.ACKED] * 3
    await client.close()
    assert [producer.closed for producer in made] == [True]


@pytest.mark.parametrize(
    ("refusal", "outcome"),
    [
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), Outcome.TOO_LARGE),
        (BufferError("Local: Queue full"), Outcome.BROKER_AWAY),
        (TypeError("headers"), Outcome.INVALID),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), Outcome.INVALID),
    ],
)
async def test_a_record_refused_at_once_is_answered_like_any_other(
    made: list[Producer], client: ConfluentClient, refusal: Exception, outcome: Outcome
) -> None:
    Producer.refusal = refusal
    client.start()
    assert await outcomes_of(client, parcel_of(2)) == [outcome] * 2
    await client.close()


async def test_records_refused_together_are_produced_again_one_by_one(
    made: list[Producer], client: ConfluentClient
) -> None:
    client.start()
    made[0].answer = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    assert await outcomes_of(client, parcel_of(3)) == [Outcome.ACKED] * 3
    assert [producer.properties.get("batch.num.messages") for producer in made] == [None, 1]
    await client.close()


@pytest.mark.parametrize("seen_by", ["produce", "error_cb"])
async def test_a_producer_beyond_repair_is_replaced_and_its_records_are_not_known(
    made: list[Producer], client: ConfluentClient, seen_by: str
) -> None:
    client.start()
    fatal = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost", True)
    made[0].answer = KafkaError(KafkaError._PURGE_INFLIGHT)
    if seen_by == "produce":
        made[0].refusal = KafkaException(KafkaError(KafkaError._FATAL, "lost", True))
    else:
        made[0].properties["error_cb"](fatal)
    assert Outcome.ACKED not in await outcomes_of(client, parcel_of(2))
    assert len(made) == 2
    assert await outcomes_of(client, parcel_of(2)) == [Outcome.ACKED] * 2
    await client.close()
    assert [producer.closed for producer in made] == [True, True]
