"""Schedules as people declare them in files: TOML for sets, JSON lines for many.

    [defaults]                          # what every schedule of the file has, unless it says otherwise
    topic = "mail"
    tz = "Europe/London"

    [[schedule]]
    id = "brief"
    cron = "0 9 * * 1-5"
    payload = '{"kind": "brief"}'

The names are those of the options of `tocsin create`, and mean the same; `tags`, `exclude` and `headers` are lists and
a table. A payload that is no text is written as `payload_base64`. Times and instants may be TOML's own.
"""

from __future__ import annotations

import base64
import binascii
import json
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, BinaryIO, Final

from tocsin.deploy.reading import why
from tocsin.deploy.recurrence_options import Unreadable, Written, read_duration, read_instant
from tocsin.producer.definition import NewSchedule
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.recurrence import AnyRecurrence, Gap, Overlap
from tocsin.schema.schedules import CatchUp

#: Fields that mean what they say.
_PLAIN: Final = (
    "topic",
    "content_type",
    "headers",
    "partition_key",
    "max_runs",
    "max_catch_up",
    "exclude",
    "paused",
    "tenant",
    "tags",
    "definition",
    "note",
)
_RULE: Final = ("cron", "every", "daily", "weekly", "monthly", "yearly", "at", "tz", "dialect", "day_match")
_ENUMS: Final = {"gap": Gap, "overlap": Overlap, "catch_up": CatchUp}
_DURATIONS: Final = ("jitter", "expires_after")
_INSTANTS: Final = ("start", "until")
#: Fields that a schedule need not have.
_NULLABLE: Final = frozenset(
    {"content_type", "headers", "partition_key", "start", "until", "max_runs", "expires_after", "exclude", "definition"}
)
_KNOWN: Final = frozenset(
    {"id", "payload", "payload_base64", *_PLAIN, *_RULE, *_ENUMS, *_DURATIONS, *_INSTANTS},
)


def read_set(path: Path) -> list[NewSchedule]:
    """The schedules of a TOML file.

    Raises:
        InvalidSchedule: the file or a schedule in it is refused; the field says which.
    """
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise InvalidSchedule("file", str(path), f"{path} cannot be read: {why(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSchedule("file", str(path), f"{path} is not TOML: {error}") from error
    unknown = sorted(set(content) - {"defaults", "schedule"})
    if unknown:
        raise InvalidSchedule(unknown[0], content[unknown[0]], "is unknown; a file holds [defaults] and [[schedule]]")
    schedules, defaults = content.get("schedule", []), content.get("defaults", {})
    if not isinstance(schedules, list) or not isinstance(defaults, dict):
        raise InvalidSchedule("schedule", None, "write [[schedule]] for each schedule, and [defaults] once")
    return [read_schedule(defaults | fields, f"schedule {number}") for number, fields in enumerate(schedules, 1)]


def read_lines(file: BinaryIO) -> Iterator[tuple[str, NewSchedule | InvalidSchedule]]:
    """Each line that is not empty: its place, and the schedule that it says as JSON, or why it says none."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            yield place, read_schedule(json.loads(line), place)
        except InvalidSchedule as error:
            yield place, error
        except ValueError as error:
            yield place, InvalidSchedule(place, None, f"is not JSON: {error}")


def read_schedule(fields: Any, place: str) -> NewSchedule:
    """One schedule from its fields. Raises InvalidSchedule, with the place before the field."""
    if not isinstance(fields, Mapping):
        raise InvalidSchedule(place, None, "is not a table of fields")
    name = f"{place} ({fields['id']})" if isinstance(fields.get("id"), str) else place
    try:
        return _schedule(fields)
    except InvalidSchedule as error:
        # What a file says wrongly is refused; only the command line itself is malformed.
        kind = InvalidSchedule if isinstance(error, Unreadable) else type(error)
        raise kind(f"{name}: {error.field}", error.value, error.reason) from error


def read_changes(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What an update names, by the fields of NewSchedule; null takes away what may be missing.

    Raises:
        InvalidSchedule: a field is unknown, malformed, or none that an update changes.
    """
    for fixed in ("id", "paused"):
        if fixed in fields:
            raise InvalidSchedule(fixed, fields[fixed], "is not changed by an update")
    changes = _given(fields)
    if any(name in fields for name in _RULE):
        changes["recurrence"] = _rule(fields)
    if "payload" in fields or "payload_base64" in fields:
        changes["payload"] = _payload(fields)
    return changes


def _schedule(fields: Mapping[str, Any]) -> NewSchedule:
    given = {"topic": None} | _given(fields)
    return NewSchedule(schedule_id=fields.get("id"), recurrence=_rule(fields), payload=_payload(fields), **given)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Every field that is named, but for the id, the rule and the payload."""
    for key in fields:
        if key not in _KNOWN:
            raise InvalidSchedule(key, fields[key], f"is no field of a schedule; known are {', '.join(sorted(_KNOWN))}")
    nulls = {name: None for name, value in fields.items() if value is None and name in _NULLABLE}
    fields = {name: value for name, value in fields.items() if name not in nulls}
    given: dict[str, Any] = nulls | {name: fields[name] for name in _PLAIN if name in fields}
    given |= {name: read_duration(name, _text(name, fields[name])) for name in _DURATIONS if name in fields}
    given |= {name: read_instant(name, _text(name, fields[name])) for name in _INSTANTS if name in fields}
    if "catch_up" in fields:
        given["catch_up"] = _choice("catch_up", fields)
    return given


def _rule(fields: Mapping[str, Any]) -> AnyRecurrence:
    rule: dict[str, Any] = {name: _text(name, fields[name]) for name in _RULE if name in fields}
    rule |= {name: _choice(name, fields) for name in ("gap", "overlap") if name in fields}
    return Written(**rule).recurrence()


def _text(name: str, value: Any) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if not isinstance(value, str):
        raise InvalidSchedule(name, value, f"must be text, not {type(value).__name__}")
    return value


def _choice(name: str, fields: Mapping[str, Any]) -> Any:
    kind = _ENUMS[name]
    try:
        return kind(fields[name])
    except ValueError as error:
        known = ", ".join(each.value for each in kind)
        raise InvalidSchedule(name, fields[name], f"is one of {known}") from error


def _payload(fields: Mapping[str, Any]) -> bytes:
    if "payload_base64" not in fields:
        return _text("payload", fields.get("payload", "")).encode("utf-8", "surrogateescape")
    if "payload" in fields:
        raise InvalidSchedule("payload", None, "is given twice; write payload or payload_base64")
    try:
        return base64.b64decode(_text("payload_base64", fields["payload_base64"]), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidSchedule("payload_base64", None, f"is not base64: {error}") from error
