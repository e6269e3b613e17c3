"""A record as its consumer sees it: `record.py` read backwards, from any Kafka client's own kind of record.

    received = Received.from_record(record)        # confluent-kafka, kafka-python or aiokafka
    received.key                                   # "digest-42@2026-12-01T08:00:00.000Z": what consumers dedupe on

Clients agree on what a record has and differ in how it is asked for: confluent-kafka has methods where the others have
attributes. Nothing here imports any of them. The record must come as the broker had it: a client that was told to
deserialise keys or values has taken the bytes away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from tocsin.schema.entries import Kind, parse_instant
from tocsin.schema.errors import ForeignRecord
from tocsin.schema.instants import to_datetime

_OURS = "ce_"


@dataclass(frozen=True, kw_only=True)
class Received:
    """One occurrence, as its record tells of it. Times are UTC."""

    #: The occurrence key; the same for every copy of the record.
    key: str
    topic: str
    payload: bytes
    #: The user's own, and what others added on the way; bytes that are no UTF-8 are kept as surrogates.
    headers: dict[str, str]
    content_type: str | None
    schedule_id: str
    #: The nominal time, before jitter.
    scheduled_for: datetime
    #: The first instant at which it could be dispatched.
    due: datetime
    #: Which version of the schedule this is an occurrence of.
    version: int
    kind: Kind
    #: How many occurrences before it were left out by the catch-up policy.
    missed: int
    tenant: str
    #: Which definition of the work the payload is for; None: the schedule names none.
    definition: str | None

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """What a record says; `record` is a confluent-kafka Message, or a ConsumerRecord of kafka-python or aiokafka.

        Raises:
            ForeignRecord: Tocsin did not dispatch it, or its client did not leave it as it was.
        """
        topic, value, headers = (_part(record, name) for name in ("topic", "value", "headers"))
        if value is not None and not isinstance(value, bytes):
            raise ForeignRecord(f"its value is a {type(value).__name__}, not bytes; read it without a deserialiser")
        texts = _texts(headers or ())
        try:
            return cls(
                key=texts["ce_id"],
                topic=str(topic),
                payload=value or b"",
                headers={name: text for name, text in texts.items() if not _is_ours(name)},
                content_type=texts.get("content-type"),
                schedule_id=texts["ce_scheduleid"],
                scheduled_for=to_datetime(parse_instant(texts["ce_scheduledfor"])),
                due=to_datetime(parse_instant(texts["ce_time"])),
                version=int(texts["ce_version"]),
                kind=Kind[texts["ce_kind"].upper()],
                missed=int(texts["ce_missed"]),
                tenant=texts["ce_tenant"],
                definition=texts.get("ce_definition"),
            )
        except KeyError as error:
            raise ForeignRecord(f"it lacks or misspells {error}") from error
        except ValueError as error:
            raise ForeignRecord(str(error)) from error


def _part(record: Any, name: str) -> Any:
    """An attribute of a record, or the answer of a method where its client has one in its place."""
    try:
        part = getattr(record, name)
    except AttributeError as error:
        raise ForeignRecord(f"a {type(record).__name__} is no record of a Kafka client") from error
    return part() if callable(part) else part


def _texts(headers: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes]) -> dict[str, str]:
    """Headers as text; of several of one name the first, which is the one that Tocsin wrote."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    texts: dict[str, str] = {}
    for name, value in pairs:
        texts.setdefault(name, (value or b"").decode("utf-8", "surrogateescape"))
    return texts


def _is_ours(name: str) -> bool:
    return name.startswith(_OURS) or name == "content-type"
