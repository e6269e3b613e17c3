"""Specs and rows: equal content is equal text, and nothing is lost on the way through it."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.recurrence import AnyRecurrence, Cron, Daily, Every, Gap, Monthly, Once, Overlap, Weekly
from tocsin.schema.schedules import CatchUp, Marker, ScheduleRow, Spec, State, decode_spec, encode_spec

TEN = datetime(2026, 11, 30, 10, tzinfo=UTC)
TEN_MS = int(TEN.timestamp() * 1000)
HOUR_MS = 3_600_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
instants = st.integers(TEN_MS, TEN_MS + 10**10)
recurrences: st.SearchStrategy[AnyRecurrence] = st.sampled_from(
    [
        Once(TEN),
        Every(timedelta(minutes=7), anchor=TEN),
        Daily(time(9, 30), tz="Europe/London", overlap=Overlap.LAST),
        Weekly(("mon", "fri"), time(9), tz="UTC"),
        Monthly(-1, time(0), tz="Asia/Tokyo", gap=Gap.SHIFT),
        Cron("0 9 * * 1-5", tz="America/New_York"),
    ]
)
specs = st.builds(
    Spec,
    recurrence=recurrences,
    topic=texts,
    tenant=texts,
    start=st.none() | instants,
    until=st.none() | instants,
    jitter_ms=st.integers(0, 12 * HOUR_MS),
    catch_up=st.sampled_from(CatchUp),
    max_catch_up=st.integers(1, 10**6),
    expires_after_ms=st.none() | st.integers(1, 10**9),
    exclude=st.lists(texts, max_size=3).map(tuple),
    content_type=st.none() | texts,
    headers=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    partition_key=st.none() | texts,
    definition=st.none() | texts,
)


@given(specs)
def test_a_spec_comes_back_from_its_text(spec: Spec) -> None:
    assert decode_spec(encode_spec(spec)) == spec


@given(specs, specs)
def test_specs_are_equal_exactly_where_their_texts_are(one: Spec, other: Spec) -> None:
    assert (one == other) is (encode_spec(one) == encode_spec(other))


@given(specs)
def test_the_text_of_a_decoded_spec_is_the_same_text(spec: Spec) -> None:
    text = encode_spec(spec)
    assert encode_spec(decode_spec(text)) == text


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"topic":"t"}', b'{"recurrence":{"kind":"daily"},"topic":"t"}', b"\xff"]
)
def test_a_text_that_is_no_spec_is_refused(text: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, InvalidSchedule)):
        decode_spec(text)


@given(specs, st.integers(0, 400 * HOUR_MS))
def test_nominal_times_lie_within_start_and_until_in_order(spec: Spec, after_ms: int) -> None:
    first = TEN_MS + after_ms
    found = list(spec.nominal_times(first, first + 12 * HOUR_MS))
    assert found == sorted(set(found))
    for nominal in found:
        assert max(first, spec.start or 0) <= nominal < first + 12 * HOUR_MS
        assert spec.until is None or nominal <= spec.until
    if found:
        assert spec.first_from(first) == found[0]


@given(specs)
def test_start_and_until_are_inclusive(spec: Spec) -> None:
    nominal = msgspec.structs.replace(spec, start=None, until=None).first_from(TEN_MS)
    assert nominal is not None
    exact = msgspec.structs.replace(spec, start=nominal, until=nominal)
    assert exact.first_from(0) == nominal
    assert exact.next_after(0) == nominal
    assert exact.next_after(nominal) is None


@given(specs, texts)
def test_due_is_never_early_never_behind_the_next_and_always_the_same(spec: Spec, schedule_id: str) -> None:
    nominal = spec.first_from(TEN_MS)
    if nominal is None:
        return
    due = spec.due_of(schedule_id, nominal)
    assert nominal <= due <= nominal + spec.jitter_ms
    assert due == spec.due_of(schedule_id, nominal)
    following = spec.next_after(nominal)
    assert following is None or due < following


def row(replaced: tuple[tuple[int, int], ...]) -> ScheduleRow:
    return ScheduleRow(
        schedule_id="s",
        version=9,
        token=b"t",
        state=State.ACTIVE,
        since=0,
        replaced=replaced,
        spec=b"",
        created_at=0,
        updated_at=0,
    )


def test_a_row_knows_the_ends_of_the_versions_it_replaced() -> None:
    found = row(((8, 80), (7, 0)))
    assert [found.end_of(version) for version in (9, 8, 7, 6)] == [None, 80, 0, None]


def test_a_marker_ends_older_versions_from_its_instant_on() -> None:
    marker = Marker(schedule_id="s", version=5, from_ms=100, until_ms=0, verify=False)
    assert marker.ends(4, 100)
    assert not marker.ends(4, 99)
    assert not marker.ends(5, 100)
    assert not marker.ends(6, 100)
