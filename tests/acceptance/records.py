"""What is on a topic, read as any consumer would."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition

from tocsin.loadtest.verdict import Seen

#: Records taken from the client at once, and how long it waits for the first of them.
BATCH, POLL_SECONDS = 500, 0.25
#: Of every topic here.
PARTITIONS = 4


class Received(NamedTuple):
    """One record."""

    key: str
    #: When the dispatcher sent it; ms UTC.
    sent_ms: int
    headers: dict[str, str]
    payload: bytes


class Topic:
    """Everything on a topic, from its beginning on."""

    def __init__(self, bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.records: list[Received] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "acceptance",
                "enable.auto.commit": False,
                # A topic that was just made is not known to every part of the broker yet: ask again soon.
                "topic.metadata.refresh.interval.ms": 1_000,
                # Its own log is about brokers that a test stops.
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])

    @property
    def keys(self) -> set[str]:
        """The occurrence keys that are there."""
        return {record.key for record in self.records}

    @property
    def seen(self) -> list[Seen]:
        """The records as verdicts take them."""
        return [Seen(record.key, record.sent_ms) for record in self.records]

    def until(self, holds: Callable[[Topic], bool], *, seconds: float) -> bool:
        """Read on until it holds, or for so long in vain; returns whether it holds."""
        give_up = time.monotonic() + seconds
        while not holds(self):
            if time.monotonic() > give_up:
                return False
            self.read()
        return True

    def read(self) -> int:
        """Take what has come; returns how many records that was."""
        messages = [message for message in self._consumer.consume(BATCH, POLL_SECONDS) if not message.error()]
        for message in messages:
            kind, sent_ms = message.timestamp()
            assert kind == TIMESTAMP_CREATE_TIME
            headers = {name: value.decode() for name, value in message.headers() or ()}
            self.records.append(Received(message.key().decode(), sent_ms, headers, message.value()))
        return len(messages)

    def until_written(self, count: int, *, seconds: float) -> None:
        """Return the moment the broker has so many records, without reading them."""
        give_up = time.monotonic() + seconds
        while self._written() < count:
            assert time.monotonic() < give_up, f"{self.name} has {self._written()} of {count} records"

    def _written(self) -> int:
        return sum(self._consumer.get_watermark_offsets(each)[1] for each in self._consumer.assignment())

    def close(self) -> None:
        """Give back the connections."""
        self._consumer.close()
