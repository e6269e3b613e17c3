"""An occurrence as a CloudEvent in a Kafka record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tocsin.dispatcher.partitioning import partition_hash
from tocsin.dispatcher.record import record_of
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.recurrence import Once
from tocsin.schema.schedules import Spec

NOON_MS = 1_796_040_000_000


def spec(**changes: Any) -> Spec:
    return Spec(recurrence=Once(datetime(2026, 11, 30, 12, tzinfo=UTC)), topic="mail", **changes)


def entry(**changes: Any) -> Entry:
    fields = {"schedule_id": "r42", "scheduled_for": NOON_MS, "due": NOON_MS, "version": 7, "payload": b"\x00hot"}
    return Entry(**(fields | changes))


def test_the_attributes_of_an_occurrence_are_headers_and_its_payload_the_untouched_value() -> None:
    record = record_of(entry(due=NOON_MS + 1_500), spec(definition="mail-v2", content_type="text/plain"), missed=2)
    assert (record.topic, record.value) == ("mail", b"\x00hot")
    assert record.key == b"r42@2026-11-30T12:00:00.000Z"
    assert dict(record.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": b"r42@2026-11-30T12:00:00.000Z",
        "ce_source": b"/tocsin",
        "ce_type": b"tocsin.occurrence",
        "ce_time": b"2026-11-30T12:00:01.500Z",
        "ce_scheduleid": b"r42",
        "ce_scheduledfor": b"2026-11-30T12:00:00.000Z",
        "ce_version": b"7",
        "ce_kind": b"arm",
        "ce_missed": b"2",
        "ce_tenant": b"default",
        "ce_definition": b"mail-v2",
        "content-type": b"text/plain",
    }


def test_what_is_not_set_has_no_header() -> None:
    names = [name for name, _ in record_of(entry(), spec()).headers]
    assert "ce_definition" not in names
    assert "content-type" not in names


def test_user_headers_follow_last_in_their_order() -> None:
    headers = (("trace", "ü"), ("trace", "2"))
    assert record_of(entry(), spec(headers=headers)).headers[-2:] == [("trace", "ü".encode()), ("trace", b"2")]


def test_the_partition_follows_the_schedule_id_unless_a_partition_key_is_set() -> None:
    assert record_of(entry(), spec()).partition_key == b"r42"
    keyed = record_of(entry(), spec(partition_key="customer-7"))
    assert (keyed.partition_key, keyed.partition_hash) == (b"customer-7", partition_hash(b"customer-7"))
    assert keyed.key.startswith(b"r42@")


def test_a_trigger_carries_its_request_in_the_key_and_its_kind() -> None:
    record = record_of(entry(kind=Kind.TRIGGER, request="again"), spec())
    assert record.key == b"r42@2026-11-30T12:00:00.000Z!again"
    assert dict(record.headers)["ce_kind"] == b"trigger"
