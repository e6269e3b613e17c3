"""What is on a sink, read as any consumer would: the topics of a Kafka cluster, or a file of JSON lines.

    reader = open_topics("kafka://k1:9092", ["mail"], security)   # from the beginning, every partition, no group
    while records := reader.read(): ...

A record's time is the topic's: when the dispatcher sent it, or when the broker appended it where the topic says so
(`message.timestamp.type=LogAppendTime`). Both are clocks of other hosts. Records without the headers of Tocsin are
counted and passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.sink import kafka_servers
from tocsin.loadtest.verdict import Seen
from tocsin.schema.entries import parse_instant
from tocsin.schema.errors import SettingsError

#: Records taken from the client at once, and how long it waits for the first of them.
BATCH: Final = 2_000
POLL_SECONDS: Final = 0.2
#: How long a look-up of topics waits for the cluster.
METADATA_SECONDS: Final = 15


#: A herd shares its instants.
_instant = lru_cache(maxsize=4_096)(parse_instant)


class Arrived(NamedTuple):
    """One record of a topic."""

    seen: Seen
    #: What the record itself says of its due; ms UTC.
    due: int


class TopicReader(Protocol):
    """Reads on from where it stands."""

    #: Records that no dispatcher of Tocsin wrote.
    foreign_count: int

    def read(self) -> Sequence[Arrived]:
        """What has come since, some at most; empty: nothing for the moment."""
        ...

    def close(self) -> None:
        """Give back the connections."""
        ...


def open_topics(
    sink: str, topics: Sequence[str], security: KafkaSecurity, *, from_ms: int | None = None
) -> TopicReader:
    """A reader of a sink's topics.

    Args:
        sink: kafka://host:9092, or jsonl:///path.
        topics: which; of a file none: all.
        security: how Kafka is reached.
        from_ms: skip what is older where the sink can; ms UTC. None: from the beginning.

    Raises:
        SettingsError: the sink cannot be read back, no broker of it answers, or a topic does not exist.
    """
    parts = urlsplit(sink)
    if parts.scheme == "jsonl":
        return LinesReader(Path(unquote(parts.path)), topics)
    if parts.scheme == "kafka":
        return KafkaReader(kafka_servers(parts.netloc), topics, security, from_ms)
    raise SettingsError(f"{sink!r} cannot be read back; name a sink of kafka:// or jsonl://.")


class Line(msgspec.Struct):
    """What is read of a line of a file."""

    key: str
    time: str
    topic: str
    headers: list[tuple[str, str]]


class LinesReader:
    """A file that a jsonl: sink wrote; a line that is not whole yet is read later."""

    def __init__(self, path: Path, topics: Sequence[str]) -> None:
        self.foreign_count = 0
        self._path = path
        self._topics = frozenset(topics)
        self._read_bytes = 0
        self._decoder = msgspec.json.Decoder(Line)

    def read(self) -> Sequence[Arrived]:
        """Whole lines that were written since."""
        if not self._path.exists():
            return ()
        with self._path.open("rb") as sink:
            sink.seek(self._read_bytes)
            whole, newline, _ = sink.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(newline)
        lines = [text for text in whole.split(b"\n") if text]
        return [record for text in lines if (record := self._record(text)) is not None]

    def close(self) -> None:
        """Nothing is held open."""

    def _record(self, text: bytes) -> Arrived | None:
        try:
            line = self._decoder.decode(text)
            due = _instant(dict(line.headers)["ce_time"])
            at_ms = _instant(line.time)
        except (msgspec.MsgspecError, KeyError, ValueError):
            self.foreign_count += 1
            return None
        if self._topics and line.topic not in self._topics:
            return None
        return Arrived(Seen(line.key, at_ms), due)


class KafkaReader:
    """Every partition of some topics, from their beginning or an instant on."""

    def __init__(self, servers: str, topics: Sequence[str], security: KafkaSecurity, from_ms: int | None) -> None:
        from confluent_kafka import Consumer, KafkaException

        from tocsin.dispatcher.publisher_confluent import security_properties

        self.foreign_count = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "tocsin-loadtest",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 65_536,
                "log_level": 0,
                **security_properties(security),
            }
        )
        try:
            self._consumer.assign(self._places(topics, from_ms))
        except KafkaException as error:
            self._consumer.close()
            raise SettingsError(f"no broker of {servers} answers: {error.args[0].str()}; correct the sink.") from error

    def read(self) -> Sequence[Arrived]:
        """What has come since, up to `BATCH` records."""
        return [
            arrived
            for message in self._consumer.consume(BATCH, POLL_SECONDS)
            if not message.error() and (arrived := self._record(message)) is not None
        ]

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()

    def _places(self, topics: Sequence[str], from_ms: int | None) -> list[Any]:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        places = []
        for topic in topics:
            known = self._consumer.list_topics(topic, METADATA_SECONDS).topics[topic]
            if known.error is not None:
                raise SettingsError(f"topic {topic} cannot be read: {known.error.str()}")
            start = OFFSET_BEGINNING if from_ms is None else from_ms
            places += [TopicPartition(topic, number, start) for number in known.partitions]
        return places if from_ms is None else self._consumer.offsets_for_times(places, METADATA_SECONDS)

    def _record(self, message: Any) -> Arrived | None:
        headers = dict(message.headers() or ())
        try:
            due = _instant(headers["ce_time"].decode())
            return Arrived(Seen(message.key().decode(), message.timestamp()[1]), due)
        except (KeyError, AttributeError, ValueError):
            self.foreign_count += 1
            return None
