"""What the dispatcher asks of whatever carries its records away: one protocol, three implementations.

A batch of records goes in, one outcome per record comes out, in the same order. The publisher never raises for what
happens on the way; it says what became of each record and the dispatcher decides what follows:

    ACKED            every in-sync replica has it: the occurrence is dispatched
    BROKER_AWAY      nobody answered in time. Whether the record arrived is not known, so it is published again: this
                     is where "at least once" comes from. Stop reading, back off, dead-letter nothing
    TOPIC_FAILING    the cluster answers, this topic does not take records now: park its occurrences
    the others       will not change by themselves: dead letter. For UNKNOWN_TOPIC the dispatcher first grants a
                     grace, for the topic may be created late; each further attempt asks the cluster again

Order: two records of one topic and partition key reach Kafka in the order in which they were handed over, across
batches too, as long as both are acknowledged. Records of different topics overtake each other freely, so that a topic
whose metadata is slow delays nobody else.

Back-pressure: `publish` waits while the records handed over and not yet answered are at the bound, by count or by
bytes. So the caller may start as many batches at once as it likes, and memory stays flat while the broker is away.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from tocsin.dispatcher.partitioning import partition_hash
from tocsin.schema.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What a codec is called by both Kafka clients.
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Headers of our own on a record, at most, and what one takes on average.
ATTRIBUTES_MAX = 13
ATTRIBUTE_BYTES = 40


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record on its way to a topic; built once per occurrence, so it is kept cheap to build."""

    topic: str
    key: bytes  # the occurrence key; what consumers dedupe on
    value: bytes
    headers: list[tuple[str, bytes]]
    partition_key: bytes  # decides the partition; see partitioning.py
    partition_hash: int = -1  # of the partition key, where there was time to compute it ahead; -1: not yet
    size_bytes: int = -1  # about what it holds while it is un-acked, likewise

    @property
    def bytes_unacked(self) -> int:
        """About what it holds while it is un-acked."""
        return self.size_bytes if self.size_bytes >= 0 else size_of(self.key, self.value, self.headers)

    def partition(self, partition_count: int) -> int:
        """Where it goes in a topic of so many partitions."""
        hashed = self.partition_hash
        return (hashed if hashed >= 0 else partition_hash(self.partition_key)) % partition_count


def size_of(key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]]) -> int:
    """About the bytes a record holds while it is un-acked; exact where a user's headers may be long."""
    if len(headers) <= ATTRIBUTES_MAX:
        return len(key) + len(value) + len(headers) * ATTRIBUTE_BYTES
    return len(key) + len(value) + sum(len(name) + len(text) for name, text in headers)


class Outcome(enum.Enum):
    """What became of one record; the value is the reason a dead letter shows."""

    ACKED = "acked"
    BROKER_AWAY = "broker_away"
    TOPIC_FAILING = "topic_failing"
    TOO_LARGE = "too_large"
    NOT_AUTHORISED = "not_authorised"
    #: Not by the broker's word but by ours: the topic is on no list of this dispatcher.
    NOT_ALLOWED = "not_allowed"
    UNKNOWN_TOPIC = "unknown_topic"
    INVALID = "invalid"

    permanent: bool

    def __init__(self, reason: str) -> None:
        self.permanent = reason not in {"acked", "broker_away", "topic_failing"}


class Publisher(Protocol):
    """Carries records away and says what became of each."""

    async def start(self) -> None:
        """Make ready; does not wait for a broker, which may be away now and back later."""

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Hand all records over, wait for every answer, return one outcome per record in the same order.

        Many calls may be under way at once; they are handed over in the order in which they were made. Waits for room
        while the un-acked records are at their bound.
        """

    async def close(self, timeout_ms: int) -> None:
        """Wait up to `timeout_ms` for the answers in flight, then give up what is left as BROKER_AWAY."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublisherSettings:
    """Bounds and times of a Kafka publisher; the same meaning for both clients.

    Raises:
        SettingsError: a value is out of range or contradicts another one.
    """

    #: Records handed over and not yet answered. No topic may hold more than half of it.
    unacked_count_max: int = 100_000
    #: Their keys, values and headers, in bytes. No topic may hold more than half of it.
    unacked_bytes_max: int = 64 * 1024 * 1024
    #: After this long without an acknowledgement a record is BROKER_AWAY or TOPIC_FAILING.
    delivery_timeout_ms: int = 30_000
    #: How long one request waits for the broker's answer before it is sent again.
    request_timeout_ms: int = 10_000
    #: How long a record waits for company. Herds fill batches at once; this is what a lone record pays.
    linger_ms: int = 5
    compression: str = "none"
    #: The largest record, keys and headers included; keep it at the broker's message.max.bytes.
    record_bytes_max: int = 1_000_000
    #: How long a look-up of a topic waits for the cluster.
    metadata_timeout_ms: int = 5_000
    #: The age at which a topic's partition count is asked again.
    metadata_refresh_ms: int = 60_000

    def __post_init__(self) -> None:
        for name in ("unacked_count_max", "unacked_bytes_max", "record_bytes_max", "metadata_timeout_ms"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.compression not in COMPRESSIONS:
            raise SettingsError(f"compression is {self.compression!r}; choose one of {', '.join(COMPRESSIONS)}.")
        if self.linger_ms < 0 or self.delivery_timeout_ms < self.request_timeout_ms + self.linger_ms:
            raise SettingsError(
                f"delivery_timeout_ms ({self.delivery_timeout_ms}) must be at least request_timeout_ms + linger_ms "
                f"({self.request_timeout_ms} + {self.linger_ms}): one whole attempt has to fit."
            )
        if self.unacked_bytes_max < 2 * self.record_bytes_max:
            raise SettingsError(
                f"unacked_bytes_max ({self.unacked_bytes_max}) must be at least twice record_bytes_max "
                f"({self.record_bytes_max}): a topic may hold half, and one record has to fit."
            )
