"""What a command must look like, said twice, by the code and by the published schema; and that the two agree."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from typing import Any

import pytest
from command_line import tocsin
from jsonschema import Draft202012Validator

from tocsin import AsyncScheduler, InvalidSchedule, Workbench
from tocsin.deploy.declaration import _KNOWN, _NULLABLE
from tocsin.deploy.ingest import SCHEMA_FILE
from tocsin.deploy.schedule_command import ACTIONS, TYPE_PREFIX, read_command
from tocsin.schema.errors import TocsinError
from tocsin.schema.instants import to_datetime

SCHEMA = json.loads(files("tocsin.deploy").joinpath(SCHEMA_FILE).read_text())
FIELDS = SCHEMA["$defs"]["fields"]["properties"]
START = to_datetime(1_796_032_800_000)

DAILY = {"daily": "09:00", "topic": "t"}
FULL = {
    "weekly": "mon,fri 09:00",
    "tz": "Europe/Berlin",
    "gap": "skip",
    "overlap": "first",
    "topic": "t",
    "payload": "p",
    "content_type": "text/plain",
    "headers": {"k": "v"},
    "partition_key": "c",
    "start": "2036-01-01T00:00Z",
    "until": "2037-01-01T00:00:00+01:00",
    "max_runs": 5,
    "jitter": "1m30s",
    "catch_up": "all",
    "max_catch_up": 10,
    "expires_after": "1h",
    "exclude": [],
    "paused": True,
    "tenant": "x",
    "tags": ["a"],
    "definition": "two",
    "note": "why",
}


def event(action: str, data: Any = None, **attributes: Any) -> dict[str, Any]:
    given = {"specversion": "1.0", "id": "1", "source": "/s", "type": TYPE_PREFIX + action, "subject": "s"}
    return given | ({} if data is None else {"data": data}) | attributes


GOOD = [
    event("create", {"at": "2036-12-24T18:00+01:00", "topic": "t"}),
    event("create", {"every": "5s", "topic": "t", "payload_base64": "AAE="}),
    event("create", {"cron": "0 9 * * *", "dialect": "unix", "day_match": "both", "topic": "t"}),
    event("create", {"monthly": "-1 09:00", "topic": "t", "until": None}),
    event("create", {"yearly": "02-29 09:00", "topic": "t"}),
    event("create", FULL),
    event("create", DAILY, datacontenttype="application/json", time="2036-01-01T00:00:00Z", traceparent="00-1"),
    event("update", {"topic": "other", "until": None, "jitter": "1s"}),
    event("update", {"every": "1m", "payload": "new"}),
    event("pause"),
    event("pause", {"note": "kettle broken"}),
    event("resume", {}),
    event("resume", {"from": "2026-11-01T00:00Z"}),
    event("cancel"),
    event("trigger", {}),
]
BAD = [
    event("explode"),
    event("create", DAILY, type="create"),
    event("create", DAILY, specversion="0.3"),
    event("create", DAILY, id=""),
    event("create", DAILY, source=None),
    event("create", DAILY, subject=7),
    event("create", DAILY, subject="x" * 256),
    event("create", DAILY, datacontenttype="text/xml"),
    event("cancel", data_base64="e30="),
    event("create"),
    event("create", [1]),
    event("create", {"daily": "09:00"}),
    event("create", {"topic": "t"}),
    event("create", DAILY | {"every": "5s"}),
    event("create", DAILY | {"id": "other"}),
    event("create", DAILY | {"colour": "red"}),
    event("create", DAILY | {"payload": "a", "payload_base64": "YQ=="}),
    event("create", DAILY | {"topic": "a topic"}),
    event("create", DAILY | {"topic": None}),
    event("create", DAILY | {"jitter": "soon"}),
    event("create", DAILY | {"until": "2036-01-01"}),
    event("create", DAILY | {"max_runs": 0}),
    event("create", DAILY | {"catch_up": "never"}),
    event("create", DAILY | {"headers": {"k": 1}}),
    event("create", DAILY | {"tags": "red"}),
    event("create", DAILY | {"paused": "yes"}),
    event("update", {"paused": True}),
    event("update", {"every": 5}),
    event("pause", {"reason": "x"}),
    event("pause", {"note": 1}),
    event("resume", {"from": 1}),
    event("cancel", {"note": "x"}),
    event("trigger", {"request_id": "x"}),
]


def taken(command: Any) -> bool:
    """Whether a scheduler does it, for a schedule that is there unless it is to be created."""

    async def do(scheduler: AsyncScheduler) -> bool:
        try:
            parsed = read_command(json.dumps(command).encode())
            await parsed.perform(scheduler)
        except TocsinError as refusal:
            assert isinstance(refusal, InvalidSchedule)  # noqa: PT017 — any other one would be a fault
            return False
        return True

    with Workbench(start=START) as bench:
        if command["type"] != f"{TYPE_PREFIX}create":
            bench.run(read_command(json.dumps(event("create", DAILY)).encode()).perform(bench.asynchronous))
        return bench.run(do(bench.asynchronous))


def test_the_schema_is_a_schema_and_is_what_the_command_prints() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    answer = tocsin("ingest", "--schema")
    assert (answer.code, json.loads(answer.out)) == (0, SCHEMA)


def test_the_schema_names_every_field_and_no_other() -> None:
    assert set(FIELDS) == _KNOWN - {"id"}
    assert {name for name, field in FIELDS.items() if "null" in field.get("type", ())} == _NULLABLE
    assert all(field["description"].endswith(".") or ";" in field["description"] for field in FIELDS.values())
    assert SCHEMA["properties"]["type"]["enum"] == [TYPE_PREFIX + action for action in ACTIONS]


@pytest.mark.parametrize("command", GOOD, ids=lambda command: json.dumps(command.get("data", command["type"]))[:60])
def test_what_the_schema_allows_is_done(command: Any) -> None:
    Draft202012Validator(SCHEMA).validate(command)
    assert taken(command)


@pytest.mark.parametrize("command", BAD, ids=lambda command: json.dumps(command.get("data", command["type"]))[:60])
def test_what_the_schema_forbids_is_refused(command: Any) -> None:
    assert not Draft202012Validator(SCHEMA).is_valid(command)
    assert not taken(command)


def test_a_command_without_one_of_its_attributes_is_refused_by_both() -> None:
    for name in ("specversion", "id", "source", "type", "subject"):
        lacking = copy.deepcopy(GOOD[0])
        del lacking[name]
        assert not Draft202012Validator(SCHEMA).is_valid(lacking)
        with pytest.raises(InvalidSchedule, match=name):
            read_command(json.dumps(lacking).encode())


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"7", b"\xff"])
def test_what_is_no_json_object_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidSchedule, match="value"):
        read_command(value)


def test_a_command_is_named_by_its_source_and_id_together() -> None:
    names = {
        read_command(json.dumps(event("cancel", source=source, id=name)).encode()).name
        for source, name in (("a", "b"), ("a b", ""), ("a,b", "c"), ("a", "b,c"), ("b", "a"))
        if name
    }
    assert len(names) == 4
