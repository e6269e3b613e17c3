"""Goal: every kind of recurrence answers rightly at its edges, and all keep the same laws."""

from __future__ import annotations

import calendar
import itertools
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.schema import zones
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.recurrence import (
    AnyRecurrence,
    Daily,
    Every,
    Gap,
    Monthly,
    Once,
    Overlap,
    Weekly,
    Yearly,
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


#: A deadline would measure the machine, not the code.
unhurried = settings(deadline=None)


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


@unhurried
@given(
    st.integers(1_000, 10**12).map(lambda period_ms: timedelta(milliseconds=period_ms)),
    st.datetimes(datetime.fromisoformat("1901-01-01"), datetime.fromisoformat("2300-01-01"), timezones=st.just(UTC)),
    st.datetimes(datetime.fromisoformat("1901-01-01"), datetime.fromisoformat("2300-01-01"), timezones=st.just(UTC)),
)
def test_every_answers_the_first_multiple_after_an_instant(
    period: timedelta, anchor: datetime, asked: datetime
) -> None:
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


def test_every_month_of_a_century_has_its_clamped_day() -> None:
    for day in (28, 29, 30, 31, -1, -28):
        found = [run.date() for run in Monthly(day, NINE, tz="UTC").between(utc("2000-01-01"), utc("2100-01-01"))]
        lasts = [(y, m, calendar.monthrange(y, m)[1]) for y in range(2000, 2100) for m in range(1, 13)]
        assert found == [date(y, m, last + 1 + day if day < 0 else min(day, last)) for y, m, last in lasts]
