"""What a consumer reads of a record, whichever client brought it; and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord as AiokafkaRecord
from kafka.consumer.fetcher import ConsumerRecord as KafkaPythonRecord

from tests.unit.manual_clock import START_MS
from tocsin import Daily, ForeignRecord, Kind, NewSchedule, Received, Workbench
from tocsin.dispatcher.publisher import Record
from tocsin.dispatcher.record import record_of
from tocsin.schema.entries import Entry
from tocsin.schema.schedules import Spec

AT = datetime(2026, 11, 30, 10, tzinfo=UTC)
DEFINED: dict[str, Any] = {"tenant": "tea", "definition": "brew-2", "content_type": "text/plain", "headers": {"é": "ü"}}


class ConfluentMessage:
    """A confluent-kafka Message: methods where the others have attributes."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def topic(self) -> str:
        return self._record.topic

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self._record.headers or None


def _kafka_python(record: Record) -> KafkaPythonRecord:
    place = dict.fromkeys(KafkaPythonRecord._fields, None)
    given = {"topic": record.topic, "key": record.key, "value": record.value, "headers": record.headers}
    return KafkaPythonRecord(**place | given)


def _aiokafka(record: Record) -> AiokafkaRecord[bytes, bytes]:
    return AiokafkaRecord(
        record.topic, 0, 0, 0, 0, record.key, record.value, 0, len(record.key), len(record.value), tuple(record.headers)
    )


CLIENTS: list[Callable[[Record], Any]] = [ConfluentMessage, _kafka_python, _aiokafka, lambda record: record]


def dispatched(kind: Kind = Kind.ARM, **defined: Any) -> Record:
    new = NewSchedule(schedule_id="a@b", recurrence=Daily(time(10), tz="UTC"), topic="mail", **defined)
    spec: Spec = new.spec(START_MS)
    request = "r" if kind is Kind.TRIGGER else ""
    entry = Entry("a@b", START_MS, START_MS + 1500, 42, kind=kind, request=request, payload=b"\x00hot")
    return record_of(entry, spec, missed=3)


@pytest.mark.parametrize("of_client", CLIENTS)
def test_everything_that_was_dispatched_is_received(of_client: Callable[[Record], Any]) -> None:
    assert Received.from_record(of_client(dispatched(**DEFINED))) == Received(
        key="a@b@2026-11-30T10:00:00.000Z",
        topic="mail",
        payload=b"\x00hot",
        headers={"é": "ü"},
        content_type="text/plain",
        schedule_id="a@b",
        scheduled_for=AT,
        due=AT + timedelta(seconds=1.5),
        version=42,
        kind=Kind.ARM,
        missed=3,
        tenant="tea",
        definition="brew-2",
    )


@pytest.mark.parametrize("kind", [Kind.ARM, Kind.TIMER, Kind.TRIGGER, Kind.BACKFILL])
def test_each_kind_is_known_and_what_is_not_given_is_none(kind: Kind) -> None:
    received = Received.from_record(dispatched(kind))
    assert (received.kind, received.definition, received.content_type, received.headers) == (kind, None, None, {})
    assert received.key.endswith("!r") is (kind is Kind.TRIGGER)


def test_headers_that_others_add_on_the_way_are_kept_and_change_nothing_of_ours() -> None:
    record = dispatched()
    record.headers.extend([("trace", b"\xff\x00"), ("ce_id", b"forged"), ("k", None)])  # type: ignore[list-item]
    received = Received.from_record(record)
    assert received.key == "a@b@2026-11-30T10:00:00.000Z"
    assert received.headers == {"trace": "\udcff\x00", "k": ""}


@pytest.mark.parametrize("name", ["ce_id", "ce_time", "ce_scheduleid", "ce_scheduledfor", "ce_version", "ce_kind"])
@pytest.mark.parametrize("value", [None, b"\xff never"])
def test_a_record_that_is_not_ours_is_refused(name: str, value: bytes | None) -> None:
    if name in {"ce_id", "ce_scheduleid"} and value is not None:
        return  # Any text may be an id.
    record = dispatched()
    record.headers[:] = [header for header in record.headers if header[0] != name]
    if value is not None:
        record.headers.append((name, value))
    with pytest.raises(ForeignRecord, match="no record that Tocsin dispatched"):
        Received.from_record(record)


@pytest.mark.parametrize("record", [None, b"bytes", object(), ConfluentMessage(Record("t", b"", b"", [], b""))])
def test_what_is_no_record_at_all_is_refused(record: object) -> None:
    with pytest.raises(ForeignRecord):
        Received.from_record(record)


def test_a_value_that_a_client_has_deserialised_is_refused_with_what_to_do() -> None:
    place = dict.fromkeys(KafkaPythonRecord._fields, None)
    record = KafkaPythonRecord(**place | {"topic": "t", "value": {"cup": 1}, "headers": dispatched().headers})
    with pytest.raises(ForeignRecord, match="without a deserialiser"):
        Received.from_record(record)


def test_a_consumer_can_ask_whether_an_occurrence_is_of_the_current_version() -> None:
    with Workbench(start=AT) as bench:
        bench.scheduler.create("s", Daily(time(11), tz="UTC"), topic="t")
        bench.scheduler.send_at("t", at=AT + timedelta(hours=1), timer_id="timer")
        timer, received = sorted(bench.advance(timedelta(hours=1)), key=lambda each: each.schedule_id, reverse=True)
        assert bench.scheduler.is_current(received)
        bench.scheduler.update("s", payload=b"new")
        assert not bench.scheduler.is_current(received)
        bench.scheduler.pause("s")
        bench.scheduler.trigger("s")
        (triggered,) = bench.dispatch_due() or bench.advance(timedelta(seconds=5))
        assert bench.scheduler.is_current(triggered)
        bench.scheduler.cancel("s")
        assert not bench.scheduler.is_current(triggered)
        assert bench.scheduler.is_current(timer)
