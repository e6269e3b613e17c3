"""What a caller says of a schedule, checked at the edge before anything is written.

Times are timezone-aware, periods are timedeltas, payload is bytes; a naive time is refused because nobody can know
which instant it means. Every refusal is an InvalidSchedule with the field, the value and the reason.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

from tocsin.schema.entries import format_instant
from tocsin.schema.errors import InstantInPast, InvalidSchedule, NeverOccurs, PayloadTooLarge
from tocsin.schema.instants import checked_ms, to_datetime
from tocsin.schema.recurrence import MAX_RUNS, AnyRecurrence, Every, Once, until_for_max_runs
from tocsin.schema.schedules import CatchUp, ScheduleFilter, ScheduleRow, Spec, State, decode_spec, encode_spec

#: Characters of a schedule id at most.
SCHEDULE_ID_LENGTH_MAX = 255
#: Bytes of a payload at most, unless a setting raises it.
PAYLOAD_BYTES_MAX = 64 * 1024
#: Bytes a setting may raise it to: a record has to pass Kafka's default of 1 MiB.
PAYLOAD_BYTES_LIMIT = 900 * 1024
#: The longest jitter.
JITTER_MAX = timedelta(hours=12)
#: Missed occurrences of one schedule that `all` catches up with at most: they are counted on the dispatcher's loop.
MAX_CATCH_UP_LIMIT = 10_000
#: Runs of an Every at most; of other rules recurrence.MAX_RUNS, for those are counted out.
MAX_RUNS_LIMIT = 1_000_000
#: Bytes of all headers of a schedule at most.
HEADERS_BYTES_MAX = 8 * 1024
#: Kafka's limit for the name of a topic.
TOPIC_LENGTH_MAX = 249
#: Characters that turn the direction of text: with them an id can look like another one.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_TOPIC_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, kw_only=True)
class NewSchedule:
    """A schedule to create; the arguments of `Scheduler.create`.

    Raises:
        InvalidSchedule: a field has the wrong type, is out of range or contradicts another one.
    """

    #: None: one is generated when it is created.
    schedule_id: str | None
    #: When it occurs.
    recurrence: AnyRecurrence
    #: Where its occurrences go.
    topic: str
    #: The value of its records, at most 64 KiB.
    payload: bytes = b""
    #: The payload's media type.
    content_type: str | None = None
    #: Its records' headers, beside those of CloudEvents.
    headers: Mapping[str, str] | None = None
    #: What decides the partition; None: the schedule id, so that its occurrences keep their order.
    partition_key: str | None = None
    #: No occurrence before it; timezone-aware.
    start: datetime | None = None
    #: No occurrence after it; inclusive, timezone-aware.
    until: datetime | None = None
    #: How many occurrences there are in all; those that `exclude` drops count too.
    max_runs: int | None = None
    #: How much later than nominal they may be due, the same for one occurrence each time.
    jitter: timedelta = timedelta(0)
    #: What is done with missed ones.
    catch_up: CatchUp = CatchUp.LATEST
    #: How many missed ones `all` runs at most; above it the newest.
    max_catch_up: int = 1000
    #: Later than this an occurrence is never dispatched.
    expires_after: timedelta | None = None
    #: Calendars on whose dates it does not run.
    exclude: Iterable[str] | None = None
    #: Whether it waits for a resume.
    paused: bool = False
    #: Whom it belongs to.
    tenant: str = "default"
    #: Words to find it by.
    tags: Iterable[str] = ()
    #: Which definition of the work the payload is for; a consumer may insist on one.
    definition: str | None = None
    #: Why it exists.
    note: str = ""

    def __post_init__(self) -> None:
        if self.schedule_id is not None:
            check_schedule_id(self.schedule_id)
        check_topic(self.topic)
        _check_payload(self.payload)
        for name in ("content_type", "partition_key", "definition"):
            _check_text(name, getattr(self, name), length_max=1024, optional=True)
        _check_text("tenant", self.tenant, length_max=128)
        check_note(self.note)
        _check_duration("jitter", self.jitter, timedelta(0), JITTER_MAX)
        if self.expires_after is not None:
            _check_duration("expires_after", self.expires_after, timedelta(milliseconds=1), timedelta(days=366))
        _check_count("max_catch_up", self.max_catch_up, most=MAX_CATCH_UP_LIMIT)
        if not isinstance(self.recurrence, get_args(AnyRecurrence)):
            reason = "must be Once, Every, Daily, Weekly, Monthly, Yearly or Cron"
            raise InvalidSchedule("recurrence", self.recurrence, reason)
        if isinstance(self.recurrence, Every) and self.jitter >= self.recurrence.period:
            reason = f"must be shorter than the period, {self.recurrence.period}; no occurrence is later than the next"
            raise InvalidSchedule("jitter", self.jitter, reason)
        if self.max_runs is not None:
            # An Every's last run is computed, that of any other rule is found by counting.
            most = MAX_RUNS_LIMIT if isinstance(self.recurrence, Every) else MAX_RUNS
            _check_count("max_runs", self.max_runs, most=most)
        if not isinstance(self.catch_up, CatchUp):
            raise InvalidSchedule("catch_up", self.catch_up, "must be a CatchUp: LATEST, ALL, EARLIEST or SKIP")
        start, until = instant_of("start", self.start), instant_of("until", self.until)
        if start is not None and until is not None and start > until:
            raise InvalidSchedule("until", self.until, "lies before start")
        if not isinstance(self.paused, bool):
            raise InvalidSchedule("paused", self.paused, "must be True or False")
        # Copies: a generator can be read only once, and what the caller does to a collection later is not meant here.
        object.__setattr__(self, "headers", dict(header_pairs(self.headers)))
        object.__setattr__(self, "tags", names_of("tags", self.tags))
        object.__setattr__(self, "exclude", names_of("exclude", () if self.exclude is None else self.exclude))

    def spec(self, created_at: int) -> Spec:
        """What is stored, for a schedule created then (ms UTC).

        Equal requests give equal specs for one instant of creation: that is how a repeated create is recognised.
        """
        assert self.schedule_id is not None  # noqa: S101 — generated before anything is made of it
        start = instant_of("start", self.start)
        recurrence = self.recurrence.resolve(self.schedule_id, created_at if start is None else start)
        until = instant_of("until", self.until)
        if self.max_runs is not None:
            last = until_for_max_runs(recurrence, created_at if start is None else start, self.max_runs)
            until = last if until is None else min(until, last)
        return Spec(
            recurrence=recurrence,
            topic=self.topic,
            tenant=self.tenant,
            start=start,
            until=until,
            jitter_ms=_milliseconds(self.jitter),
            catch_up=self.catch_up,
            max_catch_up=self.max_catch_up,
            expires_after_ms=None if self.expires_after is None else _milliseconds(self.expires_after),
            exclude=tuple(sorted(self.exclude or ())),
            content_type=self.content_type,
            headers=header_pairs(self.headers),
            partition_key=self.partition_key,
            definition=self.definition,
        )


#: What an update may not change.
_FIXED = frozenset({"schedule_id", "paused"})


def redefined(row: ScheduleRow, changes: Mapping[str, Any]) -> NewSchedule:
    """The definition of a stored schedule with some fields changed; `max_runs` counts from the update on.

    Raises:
        InvalidSchedule: a name is not one of a field that can change, or its value is refused.
    """
    for name in changes:
        if name in _FIXED or name not in NewSchedule.__dataclass_fields__:
            raise InvalidSchedule(name, changes[name], "is not a field that an update can change")
    spec = decode_spec(row.spec)
    fields: dict[str, Any] = {
        "recurrence": spec.recurrence,
        "topic": spec.topic,
        "payload": row.payload,
        "content_type": spec.content_type,
        "headers": dict(spec.headers) or None,
        "partition_key": spec.partition_key,
        "start": None if spec.start is None else to_datetime(spec.start),
        "until": None if spec.until is None else to_datetime(spec.until),
        "jitter": timedelta(milliseconds=spec.jitter_ms),
        "catch_up": spec.catch_up,
        "max_catch_up": spec.max_catch_up,
        "expires_after": None if spec.expires_after_ms is None else timedelta(milliseconds=spec.expires_after_ms),
        "exclude": spec.exclude,
        "tenant": spec.tenant,
        "tags": row.tags,
        "definition": spec.definition,
        "note": row.note,
    }
    return NewSchedule(schedule_id=row.schedule_id, **{**fields, **changes})


def check_occurs(spec: Spec, since: int, now: int, grace_ms: int) -> None:
    """Refuse a spec without any occurrence from `since` on, and a single one that is long past.

    Raises:
        NeverOccurs: there is no occurrence.
        InstantInPast: a `Once` lies more than `grace_ms` before now.
    """
    recurrence = spec.recurrence
    first = spec.first_from(since)
    if isinstance(recurrence, Once):
        check_not_past("recurrence", recurrence, recurrence.at_ms if first is None else first, now, grace_ms)
    if first is None:
        raise NeverOccurs("recurrence", recurrence, "has no occurrence within start and until")


def check_not_past(field: str, value: Any, instant: int, now: int, grace_ms: int) -> None:
    """Refuse a single instant that lies more than `grace_ms` before now; all ms UTC."""
    if instant < now - grace_ms:
        raise InstantInPast(field, value, f"{format_instant(instant)} has passed; choose a later instant")


def encoded(spec: Spec) -> bytes:
    """The spec as stored. Raises InvalidSchedule where it cannot be written as JSON text."""
    try:
        return encode_spec(spec)
    except (UnicodeEncodeError, ValueError) as error:
        raise InvalidSchedule("spec", None, f"cannot be written as JSON text: {error}") from error


def check_schedule_id(schedule_id: Any, *, field: str = "schedule_id") -> None:
    """Refuse what is not 1–255 printable characters."""
    _check_text(field, schedule_id, length_max=SCHEDULE_ID_LENGTH_MAX)


def check_note(note: Any) -> None:
    """Refuse what is no text, or one longer than 4,096 characters."""
    _check_text("note", note, length_max=4096, printable=False)


def check_version(version: Any) -> None:
    """Refuse what cannot be the version of a schedule."""
    if version is not None and type(version) is not int:
        raise InvalidSchedule("expected_version", version, f"must be a whole number, not {type(version).__name__}")


def check_name(field: str, name: Any) -> None:
    """Refuse what cannot be the name of a tag, a calendar or an owner: 1–128 printable characters."""
    _check_text(field, name, length_max=128)


def schedule_filter(*, tenant: Any, tag: Any, state: Any, topic: Any) -> ScheduleFilter:
    """A filter of these fields; None restricts nothing. Raises InvalidSchedule for what no schedule can have."""
    for field, value in (("tenant", tenant), ("tag", tag)):
        if value is not None:
            check_name(field, value)
    if topic is not None:
        check_topic(topic)
    if state is not None and not isinstance(state, State):
        raise InvalidSchedule("state", state, "must be a State: ACTIVE, PAUSED or CANCELLED")
    return ScheduleFilter(tenant=tenant, tag=tag, state=state, topic=topic)


def check_topic(topic: Any) -> None:
    """Refuse what Kafka would not take for the name of a topic."""
    _check_text("topic", topic, length_max=TOPIC_LENGTH_MAX)
    if topic in {".", ".."} or not _TOPIC_CHARACTERS.issuperset(topic):
        raise InvalidSchedule("topic", topic, "may hold letters, digits, '.', '_' and '-' only, and not be '.' or '..'")


def instant_of(field: str, value: datetime | None) -> int | None:
    """A timezone-aware datetime as ms UTC, rounded up: never early.

    Raises:
        InvalidSchedule: it is naive, or lies beyond the years that rules answer for.
    """
    return None if value is None else checked_ms(value, field=field)


def header_pairs(headers: Any) -> tuple[tuple[str, str], ...]:
    """Headers as stored. `ce_` and `content-type` are CloudEvents' own."""
    if headers is None:
        return ()
    if not isinstance(headers, Mapping):
        raise InvalidSchedule("headers", headers, "must be a mapping of text to text")
    for name, value in headers.items():
        _check_text("headers", name, length_max=255)
        _check_text("headers", value, length_max=HEADERS_BYTES_MAX, empty=True)
        if name.lower().startswith("ce_") or name.lower() == "content-type":
            raise InvalidSchedule("headers", name, "'ce_…' and 'content-type' are set by Tocsin; choose another name")
    pairs = tuple(sorted(headers.items()))
    if sum(len(name.encode()) + len(value.encode()) for name, value in pairs) > HEADERS_BYTES_MAX:
        raise InvalidSchedule("headers", None, f"are larger than {HEADERS_BYTES_MAX} bytes in all")
    return pairs


def names_of(field: str, names: Any) -> frozenset[str]:
    """A set of short names, tags or calendars."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise InvalidSchedule(field, names, "must be a collection of texts")
    listed = list(itertools.islice(names, 65))
    for name in listed:
        check_name(field, name)
    found = frozenset(listed)
    if len(listed) > 64:
        raise InvalidSchedule(field, None, "holds more than 64 names")
    return found


def _check_payload(payload: Any) -> None:
    if not isinstance(payload, bytes):
        raise InvalidSchedule("payload", None, f"must be bytes, not {type(payload).__name__}; encode it first")
    if len(payload) > PAYLOAD_BYTES_MAX:
        reason = f"has {len(payload)} bytes, allowed are {PAYLOAD_BYTES_MAX}; store it elsewhere and send a reference"
        raise PayloadTooLarge("payload", None, reason)


def _check_text(
    field: str, value: Any, *, length_max: int, optional: bool = False, printable: bool = True, empty: bool = False
) -> None:
    if optional and value is None:
        return
    if not isinstance(value, str):
        raise InvalidSchedule(field, value, f"must be text, not {type(value).__name__}")
    if not value and not empty and printable:
        raise InvalidSchedule(field, value, "is empty")
    if len(value) > length_max:
        raise InvalidSchedule(field, value[:40] + "…", f"has {len(value)} characters, allowed are {length_max}")
    for character in value:
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} and (printable or character not in "\n\t"):
            raise InvalidSchedule(field, value, f"holds the control character U+{ord(character):04X}; remove it")
        if printable and character in _TURNING:
            raise InvalidSchedule(field, value, f"holds U+{ord(character):04X}, which turns text round; remove it")


def _check_duration(field: str, value: Any, least: timedelta, most: timedelta) -> None:
    if not isinstance(value, timedelta):
        raise InvalidSchedule(field, value, f"must be a timedelta, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidSchedule(field, value, f"must lie between {least} and {most}")


def _check_count(field: str, value: Any, *, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidSchedule(field, value, f"must be a whole number from 1 to {most:,}")


def _milliseconds(duration: timedelta) -> int:
    return -(-duration // timedelta(milliseconds=1))
