"""What a caller says of a schedule: each field's bad values are refused by name, and nothing good is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.producer.definition import NewSchedule, check_occurs, redefined
from tocsin.producer.wishes import Create
from tocsin.schema.errors import InstantInPast, InvalidSchedule, NeverOccurs, PayloadTooLarge
from tocsin.schema.recurrence import Cron, Every, Once
from tocsin.schema.schedules import CatchUp, ScheduleRow, State, encode_spec

TEN = datetime(2026, 11, 30, 10, tzinfo=UTC)
TEN_MS = int(TEN.timestamp() * 1000)
NAIVE = datetime(2026, 11, 30, 10)  # noqa: DTZ001 — what is refused
MINUTELY = Every(timedelta(minutes=1))


def new(**fields: Any) -> NewSchedule:
    return NewSchedule(**({"schedule_id": "s", "recurrence": MINUTELY, "topic": "t"} | fields))


REFUSED: list[tuple[str, Any]] = [
    ("schedule_id", ""),
    ("schedule_id", "x" * 256),
    ("schedule_id", "tab\there"),
    ("schedule_id", "line\nbreak"),
    ("schedule_id", "separator\u2028"),
    ("schedule_id", "lone surrogate \ud800"),
    ("schedule_id", "nul\0"),
    ("schedule_id", 42),
    ("schedule_id", b"bytes"),
    ("recurrence", "* * * * *"),
    ("recurrence", timedelta(minutes=1)),
    ("recurrence", None),
    ("topic", ""),
    ("topic", "."),
    ("topic", ".."),
    ("topic", "a b"),
    ("topic", "ü"),
    ("topic", "a/b"),
    ("topic", "t" * 250),
    ("topic", None),
    ("payload", "text"),
    ("payload", bytearray(b"x")),
    ("payload", None),
    ("content_type", ""),
    ("content_type", 1),
    ("content_type", "text/plain\n"),
    ("headers", "text"),
    ("headers", [("a", "b")]),
    ("headers", {"": "x"}),
    ("headers", {"a": b"x"}),
    ("headers", {1: "x"}),
    ("headers", {"a": None}),
    ("headers", {"a": "x\ny"}),
    ("headers", {"ce_id": "x"}),
    ("headers", {"CE_type": "x"}),
    ("headers", {"Content-Type": "x"}),
    ("headers", {"a": "x" * 8193}),
    ("headers", {f"name{number}": "x" * 200 for number in range(50)}),
    ("partition_key", ""),
    ("partition_key", b"k"),
    ("start", NAIVE),
    ("start", TEN.date()),
    ("start", TEN_MS),
    ("until", NAIVE),
    ("until", "2026-11-30"),
    ("max_runs", 0),
    ("max_runs", -1),
    ("max_runs", 1.0),
    ("max_runs", True),
    ("jitter", -timedelta(milliseconds=1)),
    ("jitter", timedelta(hours=12, milliseconds=1)),
    ("jitter", 30),
    ("catch_up", "latest"),
    ("catch_up", None),
    ("max_catch_up", 0),
    ("max_catch_up", 1_000_001),
    ("max_catch_up", "10"),
    ("expires_after", timedelta(0)),
    ("expires_after", timedelta(days=367)),
    ("expires_after", 60),
    ("exclude", "holidays"),
    ("exclude", [""]),
    ("exclude", [None]),
    ("exclude", [[]]),
    ("exclude", 5),
    ("tenant", ""),
    ("tenant", None),
    ("tenant", "t" * 129),
    ("tags", "billing"),
    ("tags", [""]),
    ("tags", [1]),
    ("tags", [["nested"]]),
    ("tags", [f"tag{number}" for number in range(65)]),
    ("tags", None),
    ("definition", ""),
    ("definition", 7),
    ("note", None),
    ("note", "x" * 4097),
    ("note", "bell\a"),
    ("paused", "yes"),
    ("paused", None),
]


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_a_bad_value_is_refused_by_the_name_of_its_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidSchedule) as raised:
        new(**{field: value})
    assert raised.value.field == field
    assert raised.value.reason in str(raised.value)


def test_a_payload_beyond_the_limit_is_its_own_error() -> None:
    new(payload=b"x" * 65_536)
    with pytest.raises(PayloadTooLarge, match="65537 bytes"):
        new(payload=b"x" * 65_537)


def test_until_may_be_start_but_not_before_it() -> None:
    new(start=TEN, until=TEN)
    with pytest.raises(InvalidSchedule, match="before start"):
        new(start=TEN, until=TEN - timedelta(milliseconds=1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schedule_id", "x" * 255),
        ("schedule_id", "order@42 / ü 日本 🫖"),
        ("topic", "a.B_c-9"),
        ("topic", "t" * 249),
        ("headers", {"trace": ""}),
        ("note", "two\nlines\tand a tab"),
        ("tags", {"a", "b"}),
        ("tags", ["a", "a"]),
        ("exclude", None),
        ("jitter", timedelta(minutes=1) - timedelta(milliseconds=1)),
        ("expires_after", timedelta(milliseconds=1)),
        ("payload", b""),
    ],
)
def test_values_at_the_edge_are_taken(field: str, value: Any) -> None:
    new(**{field: value})


def test_names_from_a_generator_are_kept() -> None:
    schedule = new(tags=(tag for tag in ("b", "a")), exclude=(name for name in ("easter",)))
    assert schedule.spec(TEN_MS).exclude == ("easter",)
    draft = Create(schedule, 60_000).draft(None, TEN_MS)
    assert draft is not None
    assert draft.tags == {"a", "b"}


def test_a_mapping_that_is_changed_later_changes_nothing_here() -> None:
    headers = {"a": "1"}
    schedule = new(headers=headers)
    headers["a"] = "2"
    assert schedule.spec(TEN_MS).headers == (("a", "1"),)


def test_equal_requests_give_equal_texts_whatever_order_they_were_written_in() -> None:
    one = new(headers={"a": "1", "b": "2"}, exclude=["x", "y"])
    other = new(headers={"b": "2", "a": "1"}, exclude=["y", "x"])
    assert encode_spec(one.spec(TEN_MS)) == encode_spec(other.spec(TEN_MS))


def test_instants_and_durations_are_rounded_so_that_nothing_is_early() -> None:
    spec = new(start=TEN + timedelta(microseconds=1), jitter=timedelta(microseconds=1)).spec(TEN_MS)
    assert spec.start == TEN_MS + 1
    assert spec.jitter_ms == 1


def test_what_was_left_open_is_settled_by_id_and_start() -> None:
    assert new().spec(TEN_MS).recurrence == Every(timedelta(minutes=1), anchor=TEN)
    later = TEN + timedelta(days=1)
    assert new(start=later).spec(TEN_MS).recurrence == Every(timedelta(minutes=1), anchor=later)
    hashed = new(recurrence=Cron("H * * * *")).spec(TEN_MS).recurrence
    assert hashed == new(recurrence=Cron("H * * * *")).spec(TEN_MS + 5).recurrence
    assert hashed != new(schedule_id="other", recurrence=Cron("H * * * *")).spec(TEN_MS).recurrence


@given(st.integers(1, 1_000))
def test_max_runs_is_stated_as_until(runs: int) -> None:
    spec = new(max_runs=runs).spec(TEN_MS)
    assert len(list(spec.nominal_times(TEN_MS, TEN_MS + 2_000 * 60_000))) == runs


def test_the_earlier_of_until_and_max_runs_wins() -> None:
    until = TEN + timedelta(minutes=3)
    assert new(max_runs=10, until=until).spec(TEN_MS).until == TEN_MS + 3 * 60_000
    assert new(max_runs=2, until=until).spec(TEN_MS).until == TEN_MS + 60_000


def test_a_single_instant_may_lie_in_the_grace_and_no_further_back() -> None:
    spec = new(recurrence=Once(TEN)).spec(TEN_MS)
    check_occurs(spec, TEN_MS, TEN_MS + 60_000, 60_000)
    with pytest.raises(InstantInPast):
        check_occurs(spec, TEN_MS, TEN_MS + 60_001, 60_000)


def test_a_rule_without_any_occurrence_in_its_bounds_is_refused() -> None:
    yearly = new(recurrence=Cron("0 0 1 1 *"), until=TEN + timedelta(days=1))
    with pytest.raises(NeverOccurs):
        check_occurs(yearly.spec(TEN_MS), TEN_MS, TEN_MS, 60_000)


# Redefining


def stored(**fields: Any) -> ScheduleRow:
    schedule = new(**fields)
    return ScheduleRow(
        schedule_id="s",
        version=1,
        token=b"",
        state=State.ACTIVE,
        since=TEN_MS,
        spec=encode_spec(schedule.spec(TEN_MS)),
        payload=schedule.payload,
        tenant=schedule.tenant,
        tags=frozenset(schedule.tags),
        created_at=TEN_MS,
        updated_at=TEN_MS,
        note=schedule.note,
    )


EVERYTHING: dict[str, Any] = {
    "payload": b"p",
    "content_type": "text/plain",
    "headers": {"a": "1"},
    "partition_key": "k",
    "start": TEN,
    "until": TEN + timedelta(days=9),
    "jitter": timedelta(seconds=3),
    "catch_up": CatchUp.ALL,
    "max_catch_up": 7,
    "expires_after": timedelta(hours=1),
    "exclude": ("easter",),
    "tenant": "acme",
    "tags": frozenset({"x"}),
    "definition": "v2",
    "note": "n",
}


def test_redefining_without_a_change_gives_the_same_content() -> None:
    row = stored(**EVERYTHING)
    same = redefined(row, {})
    assert encode_spec(same.spec(TEN_MS + 999)) == row.spec
    assert (same.payload, frozenset(same.tags), same.note) == (b"p", {"x"}, "n")


@pytest.mark.parametrize("field", EVERYTHING)
def test_redefining_changes_the_named_field_and_no_other(field: str) -> None:
    row = stored(**{name: value for name, value in EVERYTHING.items() if name != field})
    assert redefined(row, {field: EVERYTHING[field]}).spec(TEN_MS) == new(**EVERYTHING).spec(TEN_MS)


@pytest.mark.parametrize("field", ["schedule_id", "paused", "colour"])
def test_what_an_update_cannot_change_is_refused(field: str) -> None:
    with pytest.raises(InvalidSchedule) as raised:
        redefined(stored(), {field: "x"})
    assert raised.value.field == field
