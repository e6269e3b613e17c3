"""Goal: every kind of recurrence answers rightly at its edges, and all keep the same laws."""

from __future__ import annotations

import calendar
import itertools
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tocsin.schema import occurrence_rule, zones
from tocsin.schema.errors import InvalidSchedule, NeverOccurs
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
    excluded,
    jitter_ms,
    until_for_max_runs,
)

NINE = time(9)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def utc(text: str) -> datetime:
    """An instant written without its zone."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ms(text: str) -> int:
    """An instant in milliseconds."""
    return int(utc(text).timestamp()) * 1000


def runs(rule: AnyRecurrence, start: str, count: int) -> list[str]:
    """The next runs at or after a start."""
    found = itertools.islice(rule.between(utc(start), utc("2200-01-01")), count)
    return [run.isoformat().removesuffix("+00:00").removesuffix(":00") for run in found]


# Once


def test_once_runs_at_its_instant_and_never_again() -> None:
    rule = Once(datetime(2026, 12, 24, 18, tzinfo=timezone(timedelta(hours=1))))
    assert rule.after(utc("2026-12-24T16:59:59.999")) == utc("2026-12-24T17:00")
    assert rule.after(utc("2026-12-24T17:00")) is None
    assert list(rule.between(utc("2026-12-24T17:00"), utc("2026-12-24T17:01"))) == [utc("2026-12-24T17:00")]
    assert list(rule.between(utc("2026-12-24T16:00"), utc("2026-12-24T17:00"))) == []


def test_once_is_the_same_rule_in_whatever_zone_its_instant_was_written() -> None:
    berlin = Once(datetime(2026, 7, 1, 11, tzinfo=ZoneInfo("Europe/Berlin")))
    assert berlin == Once(utc("2026-07-01T09:00"))
    assert hash(berlin) == hash(Once(utc("2026-07-01T09:00")))


def test_once_refuses_a_local_time_that_does_not_exist_and_lets_fold_decide_a_repeated_one() -> None:
    new_york = zones.zone("America/New_York")
    with pytest.raises(InvalidSchedule, match="does not exist"):
        Once(datetime(2026, 3, 8, 2, 30, tzinfo=new_york))
    assert Once(datetime(2026, 11, 1, 1, 30, tzinfo=new_york)).at == utc("2026-11-01T05:30")
    assert Once(datetime(2026, 11, 1, 1, 30, fold=1, tzinfo=new_york)).at == utc("2026-11-01T06:30")


def test_once_rounds_up_to_a_millisecond_so_that_it_is_never_early() -> None:
    assert Once(utc("2026-01-01T00:00:00.000001")).at == utc("2026-01-01T00:00:00.001")
    assert Once(utc("2026-01-01T00:00:00.001")).at_ms == ms("2026-01-01T00:00") + 1


@pytest.mark.parametrize(
    "at",
    [
        NEW_YEAR.replace(tzinfo=None),
        date(2026, 1, 1),
        "2026-01-01T00:00Z",
        None,
        1_700_000_000,
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=12))),
    ],
)
def test_once_refuses_what_is_no_aware_instant_within_reach(at: Any) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        Once(at)
    assert refused.value.field == "at"


# Every


@pytest.mark.parametrize(
    ("anchor", "following"),
    [("2026-03-08T06:30", "2026-03-08T08:30"), ("2026-11-01T04:30", "2026-11-01T06:30")],
)
def test_every_counts_elapsed_time_across_a_clock_change(anchor: str, following: str) -> None:
    local = utc(anchor).astimezone(zones.zone("America/Toronto"))
    assert Every(timedelta(hours=2), anchor=local).after(local) == utc(following)


def test_every_day_is_24_hours_while_daily_keeps_the_clock() -> None:
    start = datetime(2026, 3, 7, 9, tzinfo=zones.zone("America/New_York"))
    assert Every(DAY, anchor=start).after(start) == utc("2026-03-08T14:00")
    assert Daily(NINE, tz="America/New_York").after(start) == utc("2026-03-08T13:00")


def test_every_has_nothing_before_its_anchor_and_the_anchor_itself() -> None:
    rule = Every(timedelta(minutes=10), anchor=utc("2026-01-01T00:03"))
    assert rule.after(utc("1990-01-01")) == utc("2026-01-01T00:03")
    assert runs(rule, "2026-01-01T00:04", 2) == ["2026-01-01T00:13", "2026-01-01T00:23"]


def test_every_without_an_anchor_takes_the_start_when_its_schedule_is_made() -> None:
    rule = Every(timedelta(seconds=5))
    with pytest.raises(InvalidSchedule, match="resolve"):
        rule.after(NEW_YEAR)
    assert rule.resolve("any", ms("2026-01-01T00:00:03")) == Every(
        timedelta(seconds=5), anchor=utc("2026-01-01T00:00:03")
    )
    anchored = Every(timedelta(seconds=5), anchor=NEW_YEAR)
    assert anchored.resolve("any", ms("2027-01-01T00:00")) == anchored


@pytest.mark.parametrize(
    "period",
    [
        timedelta(0),
        -timedelta(seconds=5),
        timedelta(seconds=0.5),
        timedelta(seconds=1, microseconds=1),
        timedelta(seconds=10**12),
        float("nan"),
        5,
        None,
        True,
    ],
)
def test_every_refuses_a_period_that_would_spin_or_never_end(period: Any) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        Every(period)
    assert refused.value.field == "period"


@given(
    st.timedeltas(timedelta(seconds=1), timedelta(days=36_000)),
    st.datetimes(datetime.fromisoformat("1901-01-01"), datetime.fromisoformat("2300-01-01"), timezones=st.just(UTC)),
    st.datetimes(datetime.fromisoformat("1901-01-01"), datetime.fromisoformat("2300-01-01"), timezones=st.just(UTC)),
)
def test_every_answers_the_first_multiple_after_an_instant(
    period: timedelta, anchor: datetime, asked: datetime
) -> None:
    assume(not period % timedelta(milliseconds=1))
    rule = Every(period, anchor=anchor)
    assert rule.anchor is not None
    found = rule.after(asked)
    assert found is not None
    assert not (found - rule.anchor) % period
    assert found > asked
    assert found - period <= asked or found == rule.anchor


# Daily, Weekly, Monthly, Yearly


def test_the_31st_clamps_to_the_last_day_from_the_anchor_each_time() -> None:
    rule = Monthly(31, NINE, tz="UTC", anchor=date(2027, 1, 31))
    assert runs(rule, "2027-01-31", 5) == [
        "2027-01-31T09:00",
        "2027-02-28T09:00",
        "2027-03-31T09:00",
        "2027-04-30T09:00",
        "2027-05-31T09:00",
    ]
    assert runs(rule, "2028-02-01", 2) == ["2028-02-29T09:00", "2028-03-31T09:00"]


def test_the_last_day_is_minus_one_and_the_last_but_one_minus_two() -> None:
    assert runs(Monthly(-1, NINE, tz="UTC"), "2028-02-01", 2) == ["2028-02-29T09:00", "2028-03-31T09:00"]
    assert runs(Monthly(-2, NINE, tz="UTC"), "2027-02-01", 2) == ["2027-02-27T09:00", "2027-03-30T09:00"]


def test_29_february_clamps_in_common_years() -> None:
    rule = Yearly(2, 29, NINE, tz="UTC")
    found = ["2027-02-28T09:00", "2028-02-29T09:00", "2029-02-28T09:00", "2030-02-28T09:00", "2031-02-28T09:00"]
    assert runs(rule, "2027-01-01", 5) == found
    assert runs(rule, "2100-01-01", 1) == ["2100-02-28T09:00"]


def test_every_second_day_week_month_and_year_counts_from_its_anchor() -> None:
    anchor = date(2026, 1, 7)
    options: dict[str, Any] = {"tz": "UTC", "every": 2, "anchor": anchor}
    assert runs(Daily(NINE, **options), "2025-01-01", 3) == [
        "2026-01-07T09:00",
        "2026-01-09T09:00",
        "2026-01-11T09:00",
    ]
    assert runs(Weekly(("mon", "thu"), NINE, **options), "2025-01-01", 4) == [
        "2026-01-08T09:00",
        "2026-01-19T09:00",
        "2026-01-22T09:00",
        "2026-02-02T09:00",
    ]
    assert runs(Monthly(5, NINE, **options), "2025-01-01", 2) == ["2026-03-05T09:00", "2026-05-05T09:00"]
    assert runs(Monthly(7, NINE, **options), "2025-01-01", 2) == ["2026-01-07T09:00", "2026-03-07T09:00"]
    assert runs(Yearly(1, 1, NINE, **options), "2025-01-01", 2) == ["2028-01-01T09:00", "2030-01-01T09:00"]


def test_a_rule_of_every_second_needs_an_anchor_and_takes_the_local_date_of_the_start() -> None:
    rule = Daily(NINE, tz="Pacific/Kiritimati", every=2)
    with pytest.raises(InvalidSchedule, match="every=2 counts from a date"):
        rule.after(NEW_YEAR)
    resolved = rule.resolve("any", ms("2026-01-01T12:00"))
    assert resolved.anchor == date(2026, 1, 2)
    assert resolved.after(utc("2026-01-01T12:00")) == utc("2026-01-01T19:00")
    once_a_day = Daily(NINE, tz="UTC")
    assert once_a_day.resolve("any", ms("2026-01-01T12:00")) == once_a_day


def test_local_time_is_kept_on_the_days_around_a_change() -> None:
    rule = Daily(time(20), tz="Europe/Paris")
    assert runs(rule, "2022-10-29", 3) == ["2022-10-29T18:00", "2022-10-30T19:00", "2022-10-31T19:00"]


def test_each_policy_decides_a_skipped_and_a_repeated_time_of_day() -> None:
    def spring(gap: Gap) -> list[str]:
        return runs(Daily(time(2, 30), tz="America/New_York", gap=gap), "2026-03-08", 2)

    def autumn(overlap: Overlap) -> list[str]:
        return runs(Daily(time(1, 30), tz="America/New_York", overlap=overlap), "2026-11-01", 3)

    assert spring(Gap.SKIP) == ["2026-03-09T06:30", "2026-03-10T06:30"]
    assert spring(Gap.SHIFT) == ["2026-03-08T07:30", "2026-03-09T06:30"]
    assert autumn(Overlap.FIRST) == ["2026-11-01T05:30", "2026-11-02T06:30", "2026-11-03T06:30"]
    assert autumn(Overlap.LAST) == ["2026-11-01T06:30", "2026-11-02T06:30", "2026-11-03T06:30"]
    assert autumn(Overlap.BOTH) == ["2026-11-01T05:30", "2026-11-01T06:30", "2026-11-02T06:30"]


def test_a_day_that_a_country_skipped_has_no_run_or_shifts_into_the_next() -> None:
    noon = time(12)
    skip = Daily(noon, tz="Pacific/Apia")
    assert runs(skip, "2011-12-29", 3) == ["2011-12-29T22:00", "2011-12-30T22:00", "2011-12-31T22:00"]
    shift = Monthly(30, noon, tz="Pacific/Apia", gap=Gap.SHIFT)
    assert runs(shift, "2011-12-01", 2) == ["2011-12-30T22:00", "2012-01-29T22:00"]
    assert runs(Monthly(30, noon, tz="Pacific/Apia"), "2011-12-01", 1) == ["2012-01-29T22:00"]


def test_milliseconds_of_a_time_of_day_are_kept() -> None:
    rule = Daily(time(9, 0, 0, 250_000), tz="UTC")
    assert rule.after(utc("2026-01-01T09:00:00.249")) == utc("2026-01-01T09:00:00.250")
    assert rule.after(utc("2026-01-01T09:00:00.250")) == utc("2026-01-02T09:00:00.250")


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Daily("09:00", tz="UTC"), "at"),
        (lambda: Daily(time(9, tzinfo=UTC), tz="UTC"), "at"),
        (lambda: Daily(time(9, 0, 0, 1), tz="UTC"), "at"),
        (lambda: Daily(NINE, tz="Mars/Base"), "tz"),
        (lambda: Daily(NINE, tz="UTC", every=0), "every"),
        (lambda: Daily(NINE, tz="UTC", every=True), "every"),
        (lambda: Daily(NINE, tz="UTC", every=2.0), "every"),
        (lambda: Daily(NINE, tz="UTC", every=1001), "every"),
        (lambda: Daily(NINE, tz="UTC", anchor=NEW_YEAR), "anchor"),
        (lambda: Daily(NINE, tz="UTC", anchor=date(9999, 12, 31)), "anchor"),
        (lambda: Daily(NINE, tz="UTC", gap="shift"), "gap"),
        (lambda: Weekly((), NINE, tz="UTC"), "days"),
        (lambda: Weekly("mon", NINE, tz="UTC"), "days"),
        (lambda: Weekly(("monday",), NINE, tz="UTC"), "days"),
        (lambda: Weekly((0,), NINE, tz="UTC"), "days"),
        (lambda: Monthly(0, NINE, tz="UTC"), "day"),
        (lambda: Monthly(32, NINE, tz="UTC"), "day"),
        (lambda: Monthly(-29, NINE, tz="UTC"), "day"),
        (lambda: Yearly(2, 30, NINE, tz="UTC"), "day"),
        (lambda: Yearly(4, 31, NINE, tz="UTC"), "day"),
        (lambda: Yearly(0, 1, NINE, tz="UTC"), "month"),
        (lambda: Yearly(13, 1, NINE, tz="UTC"), "month"),
        (lambda: Yearly(1, 1, NINE, tz="UTC", every=51), "every"),
    ],
)
def test_a_wrong_field_is_refused_by_name(make: Any, field: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        make()
    assert refused.value.field == field


# Laws of all kinds

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


@given(RULES, INSTANTS, INSTANTS)
def test_a_later_question_never_has_an_earlier_answer(rule: AnyRecurrence, one: datetime, other: datetime) -> None:
    early, late = (rule.after(asked) for asked in sorted([one, other]))
    assert late is None or (early is not None and early <= late)


@given(RULES, INSTANTS, st.integers(0, 200))
def test_between_is_repeated_after_with_the_start_and_without_the_end(
    rule: AnyRecurrence, start: datetime, count: int
) -> None:
    walked, position = [], start - timedelta(microseconds=1)
    while len(walked) <= count and (found := rule.after(position)) is not None:
        walked.append(found)
        position = found
    end = walked[-1] if walked else start + DAY
    assert list(rule.between(start, end)) == [run for run in walked if run < end]


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


# Jitter, max_runs, excluded dates


@given(st.text(min_size=1), st.integers(0, 2**42), st.integers(0, 10**8), st.none() | st.integers(0, 10**8))
def test_jitter_is_stable_late_only_and_within_the_gap_to_the_next(
    schedule_id: str, scheduled_for: int, most: int, gap: int | None
) -> None:
    jitter = jitter_ms(schedule_id, scheduled_for, most, gap)
    width = most if gap is None else min(most, gap)
    assert jitter == jitter_ms(schedule_id, scheduled_for, most, gap)
    assert jitter == 0 if width == 0 else 0 <= jitter < width


def test_jitter_spreads_evenly_over_ids_and_over_the_runs_of_one_id() -> None:
    for jitters in (
        [jitter_ms(f"id {n}", 1_700_000_000_000, 10_000, None) for n in range(10_000)],
        [jitter_ms("id", 1_700_000_000_000 + 60_000 * n, 10_000, 60_000) for n in range(10_000)],
    ):
        tenths = [sum(low <= jitter < low + 1_000 for jitter in jitters) for low in range(0, 10_000, 1_000)]
        assert min(tenths) > 850
        assert max(tenths) < 1_150
    assert jitter_ms("tea", 1_700_000_000_000, 30_000, None) == 4_161


def test_max_runs_is_the_time_of_the_last_run_counted_from_the_start() -> None:
    daily = Daily(NINE, tz="UTC")
    assert until_for_max_runs(daily, ms("2026-01-01T09:00"), 1) == ms("2026-01-01T09:00")
    assert until_for_max_runs(daily, ms("2026-01-01T09:00"), 3) == ms("2026-01-03T09:00")
    assert until_for_max_runs(Monthly(31, NINE, tz="UTC"), ms("2027-01-31T00:00"), 2) == ms("2027-02-28T09:00")
    assert until_for_max_runs(Once(NEW_YEAR), ms("2025-01-01T00:00"), 5) == ms("2026-01-01T00:00")
    every = Every(timedelta(seconds=1), anchor=NEW_YEAR)
    assert until_for_max_runs(every, ms("2026-01-01T00:00"), 1_000_000) == ms("2026-01-12T13:46:39")


@given(LOCAL_RULES, INSTANTS, st.integers(1, 40))
def test_a_schedule_until_its_max_runs_runs_that_many_times(rule: Any, start: datetime, count: int) -> None:
    start_ms = int(start.timestamp()) * 1000
    until = until_for_max_runs(rule, start_ms, count)
    seen, found = 0, rule.after_ms(start_ms - 1)
    while found is not None and found <= until:
        seen, found = seen + 1, rule.after_ms(found)
    assert seen == count


@pytest.mark.parametrize("count", [0, -1, 1.0, True, 10_001, None])
def test_max_runs_refuses_what_it_cannot_count(count: Any) -> None:
    with pytest.raises(InvalidSchedule, match="max_runs"):
        until_for_max_runs(Daily(NINE, tz="UTC"), 0, count)


def test_max_runs_of_a_rule_that_is_over_never_occurs() -> None:
    with pytest.raises(NeverOccurs):
        until_for_max_runs(Once(NEW_YEAR), ms("2027-01-01T00:00"), 1)


def test_excluded_dates_are_those_of_the_rules_own_zone() -> None:
    christmas = frozenset({date(2026, 12, 25)})
    assert excluded(christmas, ms("2026-12-24T10:00"), "Pacific/Kiritimati")
    assert not excluded(christmas, ms("2026-12-25T10:00"), "Pacific/Kiritimati")
    assert excluded(christmas, ms("2026-12-25T23:59"), "UTC")
    assert not excluded(christmas, ms("2026-12-24T10:00"), "UTC")
    assert Daily(NINE, tz="Pacific/Kiritimati").zone_name == "Pacific/Kiritimati"
    assert Once(NEW_YEAR).zone_name == Every(DAY).zone_name == "UTC"


def test_every_month_of_a_century_has_its_clamped_day() -> None:
    for day in (28, 29, 30, 31, -1, -28):
        found = [run.date() for run in Monthly(day, NINE, tz="UTC").between(utc("2000-01-01"), utc("2100-01-01"))]
        lasts = [(y, m, calendar.monthrange(y, m)[1]) for y in range(2000, 2100) for m in range(1, 13)]
        assert found == [date(y, m, last + 1 + day if day < 0 else min(day, last)) for y, m, last in lasts]
