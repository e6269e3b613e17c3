"""Goal: all kinds of recurrence keep the same laws, whatever is asked of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tocsin.schema import cron_days, occurrence_rule, zones
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.recurrence import (
    AnyRecurrence,
    Cron,
    Daily,
    Every,
    Gap,
    Monthly,
    Once,
    Overlap,
    Weekly,
    Yearly,
    until_for_max_runs,
)

NINE = time(9)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
#: A deadline would measure the machine, not the code.
unhurried = settings(deadline=None)


def utc(text: str) -> datetime:
    """An instant written without its zone."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ms(text: str) -> int:
    """An instant in milliseconds."""
    return int(utc(text).timestamp()) * 1000


ALL_ZONES = st.sampled_from(
    ["UTC", "America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "Asia/Kathmandu", "Africa/Casablanca"]
)
TIMES = st.times(timezones=st.none()).map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))
ANCHORS = st.dates(date(1990, 1, 1), date(2050, 1, 1))
EXPRESSIONS = [
    "*/15 * * * *",
    "0 9 * * 1-5",
    "30 2 * * *",
    "0 0 L * *",
    "0 12 15W * 5#2",
    "59 23 29 2 *",
    "* 1-3 * * 7",
]
INSTANTS = st.datetimes(
    datetime.fromisoformat("1980-01-01"), datetime.fromisoformat("2060-01-01"), timezones=st.just(UTC)
)
LOCAL = {
    "tz": ALL_ZONES,
    "gap": st.sampled_from(Gap),
    "overlap": st.sampled_from(Overlap),
}
CALENDAR = {**LOCAL, "every": st.integers(1, 5), "anchor": ANCHORS}
DAYS = st.one_of(st.integers(1, 28), st.integers(-28, -1))
LOCAL_RULES: st.SearchStrategy[Any] = st.one_of(
    st.builds(Daily, TIMES, **CALENDAR),
    st.builds(Weekly, st.sets(st.sampled_from(["mon", "wed", "sat", "sun"]), min_size=1), TIMES, **CALENDAR),
    st.builds(Monthly, st.one_of(DAYS, st.integers(29, 31)), TIMES, **CALENDAR),
    st.builds(Yearly, st.integers(1, 12), DAYS, TIMES, **CALENDAR),
    st.builds(Cron, st.sampled_from(EXPRESSIONS), **LOCAL),
    st.builds(Cron, st.just("*/20 5 * * * *"), dialect=st.just("seconds-first"), **LOCAL),
)
PERIODS = st.integers(1_000, 10**9).map(lambda period_ms: timedelta(milliseconds=period_ms))
RULES: st.SearchStrategy[Any] = st.one_of(
    LOCAL_RULES, st.builds(Every, PERIODS, anchor=INSTANTS), st.builds(Once, INSTANTS)
)


@unhurried
@given(RULES, INSTANTS)
def test_the_next_time_lies_strictly_after_and_nothing_lies_between(rule: AnyRecurrence, asked: datetime) -> None:
    found = rule.after(asked)
    if found is None:
        return
    assert found > asked
    assert found.tzinfo is UTC
    just_before = found - timedelta(milliseconds=1)
    assert rule.after(just_before) == found
    halfway = asked + (found - asked) / 2
    assert halfway >= just_before or rule.after(halfway) == found


@unhurried
@given(RULES, INSTANTS, INSTANTS)
def test_a_later_question_never_has_an_earlier_answer(rule: AnyRecurrence, one: datetime, other: datetime) -> None:
    early, late = (rule.after(asked) for asked in sorted([one, other]))
    assert late is None or (early is not None and early <= late)


@unhurried
@given(RULES, INSTANTS, st.integers(0, 40))
def test_between_is_repeated_after_with_the_start_and_without_the_end(
    rule: AnyRecurrence, start: datetime, count: int
) -> None:
    walked, position = [], start - timedelta(microseconds=1)
    while len(walked) <= count and (found := rule.after(position)) is not None:
        walked.append(found)
        position = found
    end = walked[-1] if walked else start + DAY
    assert list(rule.between(start, end)) == [run for run in walked if run < end]


@unhurried
@given(LOCAL_RULES, INSTANTS)
def test_every_answer_reads_as_a_matching_time_on_the_zones_clock(rule: Any, asked: datetime) -> None:
    found = rule.after(asked)
    assume(found is not None)
    local_times = rule.local_times()
    local = found.astimezone(zones.zone(rule.tz))
    naive = (local.replace(tzinfo=None) - datetime.fromisoformat("1970-01-01")) // timedelta(milliseconds=1)
    if local_times.local_from(naive) == naive:
        return
    assert rule.gap is Gap.SHIFT
    span = zones.span_at(rule.tz, int(found.timestamp() * 1000))
    assert found.timestamp() * 1000 < span.shifted_until_ms
    shifted = naive - span.offset_ms + span.offset_before_ms
    assert local_times.local_from(shifted) == shifted


@unhurried
@given(RULES)
def test_a_rule_survives_json_as_an_equal_rule(rule: AnyRecurrence) -> None:
    text = msgspec.json.encode(rule)
    decoded = msgspec.json.decode(text, type=AnyRecurrence)
    assert decoded == rule
    assert hash(decoded) == hash(rule)
    assert msgspec.json.encode(decoded) == text


@pytest.mark.parametrize(
    "text",
    [
        b'{"kind":"cron","expression":"61 * * * *"}',
        b'{"kind":"cron","expression":5}',
        b'{"kind":"every","period":"PT0S"}',
        b'{"kind":"once","at":"2026-01-01T00:00:00"}',
        b'{"kind":"daily","at":"09:00:00"}',
        b'{"kind":"weekly","days":["mo"],"at":"09:00:00","tz":"UTC"}',
        b'{"kind":"hourly"}',
    ],
)
def test_a_stored_rule_that_is_none_is_refused_when_it_is_read(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=AnyRecurrence)


@pytest.mark.parametrize("rule", [Daily(NINE, tz="Europe/London"), Cron("0 9 * * *"), Monthly(31, NINE, tz="UTC")])
def test_the_ends_of_time_are_answered_and_do_not_overflow(rule: AnyRecurrence) -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert rule.after(first) == rule.after(utc("1899-12-31"))
    assert rule.after(last) is None
    tail = list(rule.between(utc("9899-12-01"), last))
    assert tail
    assert tail[-1] < utc("9900-01-01")


@pytest.mark.parametrize("asked", [NEW_YEAR.replace(tzinfo=None), date(2026, 1, 1), "2026-01-01", None, 0])
def test_a_question_about_no_aware_instant_is_refused(asked: Any) -> None:
    rule = Daily(NINE, tz="UTC")
    with pytest.raises(InvalidSchedule, match="instant"):
        rule.after(asked)
    with pytest.raises(InvalidSchedule, match="start"):
        list(rule.between(asked, NEW_YEAR))


def test_a_herd_of_schedules_costs_one_computation_per_distinct_rule() -> None:
    occurrence_rule._after_minute.cache_clear()
    now = ms("2026-06-01T10:00")
    for number in range(100_000):
        distinct = number % 500
        rule = Cron(f"{distinct % 60} {distinct % 24} * * *", tz=["Europe/London", "UTC"][distinct // 250])
        assert rule.after_ms(now) is not None
    computed = occurrence_rule._after_minute.cache_info().misses
    assert computed == len({(d % 60, d % 24, d // 250) for d in range(500)})


@unhurried
@given(LOCAL_RULES, INSTANTS, st.integers(1, 40))
def test_a_schedule_until_its_max_runs_runs_that_many_times(rule: Any, start: datetime, count: int) -> None:
    start_ms = int(start.timestamp()) * 1000
    until = until_for_max_runs(rule, start_ms, count)
    seen, found = 0, rule.after_ms(start_ms - 1)
    while found is not None and found <= until:
        seen, found = seen + 1, rule.after_ms(found)
    assert seen == count


def test_threads_that_ask_one_rule_get_the_answers_of_one_alone() -> None:
    rule = Cron("0 9 LW,15W * 2#2,5L", tz="Europe/Paris")
    asked = [NEW_YEAR + timedelta(days=11 * step) for step in range(400)]
    alone = [rule.after(instant) for instant in asked]
    occurrence_rule._after_minute.cache_clear()
    cron_days._first_date.cache_clear()
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(rule.after, asked)) == alone
