"""The judge of real runs can say no: each promise, broken in a made-up run, is told."""

from __future__ import annotations

import base64
from typing import Any, cast

import msgspec
import pytest
from acceptance.evidence import Evidence
from acceptance.processes import Running
from acceptance.records import Received, Topic

from tocsin.schema.entries import format_instant, occurrence_key
from tocsin.schema.instants import to_datetime
from tocsin.schema.levels import Layout
from tocsin.schema.recurrence import Once
from tocsin.schema.schedules import ScheduleRow, Spec, State, encode_spec
from tocsin.schema.store import Settings

CREATED = 1_796_000_000_000
DUE = CREATED + 10_000
END = CREATED + 60_000
VERSION = CREATED * 1000


class Told:
    """Clients and topics, as far as evidence looks at them."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


def row(version: int = VERSION, state: State = State.ACTIVE) -> dict[str, Any]:
    told = ScheduleRow(
        schedule_id="a",
        version=version,
        token=b"t",
        state=state,
        since=CREATED,
        replaced=((VERSION, 0),) if state is State.CANCELLED else (),
        spec=encode_spec(Spec(recurrence=Once(to_datetime(DUE)), topic="t")),
        created_at=CREATED,
        updated_at=version // 1000,
    )
    return {"action": "applied", "row": base64.b64encode(msgspec.msgpack.encode(told)).decode()}


def promise(at_ms: int = CREATED, version: int = VERSION, operation: str = "create", **more: Any) -> dict[str, Any]:
    told = {"action": "acknowledged", "at_ms": at_ms, "operation": operation, "schedule_id": "a", "version": version}
    return {**told, "prevented": False, "uncertain": [], **more}


def record(sent_ms: int = DUE + 20, version: int = VERSION) -> Received:
    headers = {"ce_scheduleid": "a", "ce_scheduledfor": format_instant(DUE), "ce_time": format_instant(DUE)}
    headers |= {"ce_version": str(version), "ce_missed": "0", "ce_kind": "arm"}
    return Received(occurrence_key("a", DUE), sent_ms, headers, b"")


def judged(said: list[dict[str, Any]], records: list[Received]) -> set[str]:
    evidence = Evidence(Settings(genesis=CREATED, shard_ranges=4, layouts=(Layout(0, 16),)))
    evidence.hear([cast("Running", Told(said=said))])
    evidence.read_topic(cast("Topic", Told(records=records)))
    evidence.history.quiet_ms = END - 20_000
    evidence.history.end_ms = END
    return {violation.checker for violation in evidence.violations()}


def test_a_run_that_keeps_its_promises_is_clean() -> None:
    assert judged([promise(), row()], [record()]) == set()


@pytest.mark.parametrize(
    ("said", "records", "told"),
    [
        ([promise(), row()], [], "lost"),
        ([promise(), row()], [record(sent_ms=DUE - 1)], "never early"),
        ([promise(), row()], [record(), record(sent_ms=DUE + 9_000)], "repeated without a fault"),
        ([promise(), row()], [record(), record(version=VERSION + 1)], "never committed"),
        (
            [
                promise(),
                row(),
                promise(CREATED + 5_000, VERSION + 5_000_000, "cancel", prevented=True),
                row(VERSION + 5_000_000, State.CANCELLED),
            ],
            [record()],
            "old version long after the answer",
        ),
    ],
)
def test_a_broken_promise_is_told(said: list[dict[str, Any]], records: list[Received], told: str) -> None:
    assert told in judged(said, records)
