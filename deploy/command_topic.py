"""The topic that commands come from, read by confluent-kafka; offsets are committed when we say so.

Only what a transaction has committed is read, so a caller may send its command in a Kafka transaction. While commands
are being done the client still has to be asked for news within `max.poll.interval.ms`, else the group takes our
partitions away: they are paused then, and what comes all the same is kept for the next reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tocsin.deploy.ingestion import Delivery
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher_confluent import security_properties
from tocsin.schema.errors import SettingsError

#: Records of one reading at most, and how long to wait for the first of them.
READ_COUNT_MAX: Final = 500
READ_SECONDS: Final = 0.5
#: How often the client is asked for news while commands are being done.
NEWS_SECONDS: Final = 30.0

_log = structlog.get_logger("tocsin.ingest")


class CommandTopic:
    """A member of a consumer group, for one event loop."""

    def __init__(self, servers: str, topic: str, group: str, security: KafkaSecurity) -> None:
        self.topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "client.id": "tocsin-ingest",
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 2,
                **security_properties(security),
            }
        )
        self._ahead: list[Message] = []
        self._consumer.subscribe([topic])

    async def read(self) -> list[Delivery]:
        """What has come, in order for each partition; empty where nothing has for a moment.

        Raises:
            SettingsError: there is no such topic, or we may not read it.
        """
        messages, self._ahead = self._ahead, []
        if not messages:
            messages = await asyncio.to_thread(self._consumer.consume, READ_COUNT_MAX, READ_SECONDS)
        return [_delivery(message) for message in messages if not self._is_news(message)]

    async def work(self, work: asyncio.Future[None]) -> None:
        """Wait for work that is being done on what was read, and stay in the group meanwhile. Raises what it raises."""
        while not (await asyncio.wait([work], timeout=NEWS_SECONDS))[0]:
            await asyncio.to_thread(self._ask_for_news)
        await asyncio.to_thread(lambda: self._consumer.resume(self._consumer.assignment()))
        await work

    async def commit(self, deliveries: Iterable[Delivery]) -> None:
        """Everything up to these is done. Where the group has gone on without us, others find it done."""
        ends: dict[int, int] = {}
        for delivery in deliveries:
            ends[delivery.partition] = max(ends.get(delivery.partition, 0), delivery.offset + 1)
        offsets = [TopicPartition(self.topic, partition, offset) for partition, offset in ends.items()]
        try:
            await asyncio.to_thread(self._consumer.commit, offsets=offsets, asynchronous=False)
        except KafkaException as error:
            _log.warning(f"Offsets were not committed ({error}); what is read again is told.", action="not_committed")

    async def close(self) -> None:
        """Leave the group at once, so that others need not wait."""
        await asyncio.to_thread(self._consumer.close)

    def _ask_for_news(self) -> None:
        self._consumer.pause(self._consumer.assignment())
        message = self._consumer.poll(0)
        if message is not None:
            self._ahead.append(message)

    def _is_news(self, message: Message) -> bool:
        """Whether this is no record but something the client has to say."""
        error: Any = message.error()
        if error is None:
            return False
        if error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:  # noqa: SLF001 — public
            raise SettingsError(f"there is no topic {self.topic}; make it, or name another by --topic.")
        if error.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}:
            raise SettingsError(f"the topic {self.topic} cannot be read: {error.str()}; ask its operators.")
        _log.warning(f"Kafka: {error.str()}", action="kafka")
        return True


def _delivery(message: Message) -> Delivery:
    headers: Any = message.headers() or ()
    return Delivery(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.key() or b"",
        message.value(),
        tuple((name, value or b"") for name, value in headers),
    )
