"""A producer of kafka-python that is stuck is left behind, and every record has exactly one answer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import structlog.testing
from kafka import errors as kafka_errors
from kafka.future import Future

from tocsin.dispatcher import publisher_kafka_python
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher import Outcome, PublisherSettings, Record
from tocsin.dispatcher.publisher_kafka import Parcel
from tocsin.dispatcher.publisher_kafka_python import KafkaPythonClient, client


class Producer:
    """Takes records and answers none by itself."""

    made: ClassVar[list[Producer]] = []
    #: Raised where one is to be made.
    lacking: ClassVar[Exception | None] = None

    def __init__(self, **_: Any) -> None:
        if Producer.lacking is not None:
            raise Producer.lacking
        self.futures: list[Future] = []
        self.closed = threading.Event()
        self._sender = self
        Producer.made.append(self)

    def send(self, *_: Any, **__: Any) -> Future:
        self.futures.append(Future())
        return self.futures[-1]

    def force_close(self) -> None: ...

    def join(self) -> None: ...

    def close(self, timeout: int = 0) -> None:
        self.closed.set()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Producer]]:
    monkeypatch.setattr(publisher_kafka_python, "KafkaProducer", Producer)
    Producer.made, Producer.lacking = [], None
    yield Producer.made
    Producer.lacking = None


@pytest.fixture
async def python(made: list[Producer]) -> KafkaPythonClient:
    made_client = client("h:1", PublisherSettings(), KafkaSecurity())
    made_client.start()
    return made_client


def parcel(count: int) -> Parcel:
    records = [Record("t", b"k%d" % number, b"v", [], b"p") for number in range(count)]
    return Parcel("t", records, 1, 0.0)


async def until_sent(made: list[Producer], producers: int, records: int) -> Producer:
    async with asyncio.timeout(10):
        while len(made) < producers or len(made[-1].futures) < records:  # noqa: ASYNC110 - another thread's work
            await asyncio.sleep(0)
    return made[-1]


async def test_with_the_first_timeout_all_that_is_unanswered_is_and_a_fresh_producer_goes_on(
    python: KafkaPythonClient, made: list[Producer]
) -> None:
    first, second = parcel(4), parcel(1)
    python.hand_over(first)
    stuck = await until_sent(made, 1, 4)
    stuck.futures[0].success(None)
    stuck.futures[1].failure(kafka_errors.KafkaTimeoutError())
    async with asyncio.timeout(10):
        await first.finished
    assert first.outcomes == [Outcome.ACKED, *[Outcome.BROKER_AWAY] * 3]

    stuck.futures[2].success(None)
    stuck.futures[3].failure(kafka_errors.KafkaTimeoutError())
    python.hand_over(second)
    fresh = await until_sent(made, 2, 1)
    fresh.futures[0].success(None)
    await second.finished
    assert second.outcomes == [Outcome.ACKED]
    assert (first.outcomes[2:], first.pending) == ([Outcome.BROKER_AWAY] * 2, 0)
    assert await asyncio.to_thread(stuck.closed.wait, 10)
    assert len(made) == 2
    await python.close()
    assert fresh.closed.is_set()


async def test_what_kafka_python_reports_is_said_now_and_then_and_what_it_logs_below_is_not(
    python: KafkaPythonClient,
) -> None:
    logger = logging.getLogger("kafka.net.manager")
    with structlog.testing.capture_logs() as said:
        for _ in range(5):
            logger.error("Connection failed: %s", "SaslAuthenticationFailedError")
        logger.error("Bootstrap failed: %s", "nobody there")
        logger.debug("a request with its payload")
    assert [(line["action"], line["event"]) for line in said] == [
        ("kafka_error", "The Kafka client reports: Connection failed: SaslAuthenticationFailedError"),
        ("kafka_error", "The Kafka client reports: Bootstrap failed: nobody there"),
    ]
    assert not logger.isEnabledFor(logging.DEBUG)
    await python.close()
    with structlog.testing.capture_logs() as said:
        logger.error("after its end")
    assert said == []


async def test_where_no_producer_can_be_made_a_parcel_is_answered_at_once(
    python: KafkaPythonClient, made: list[Producer]
) -> None:
    Producer.lacking = kafka_errors.KafkaConnectionError("nobody there")
    first = parcel(500)
    python.hand_over(first)
    async with asyncio.timeout(10):
        await first.finished
    assert set(first.outcomes) == {Outcome.BROKER_AWAY}
    assert made == []
    await python.close()
