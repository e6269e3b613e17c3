"""Goal: a cron expression means what its writer meant, or is refused with the place and the reason."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.schema.cron import Cron, parse
from tocsin.schema.errors import InvalidSchedule, NeverOccurs
from tocsin.schema.recurrence import Overlap

CASES = [json.loads(line) for line in Path(__file__).with_name("cron_cases.jsonl").read_text("utf-8").splitlines()]
#: A deadline would measure the machine, not the code.
unhurried = settings(deadline=None)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def dates(expression: str, count: int, start: datetime = NEW_YEAR, **options: Any) -> list[str]:
    """The next dates of a rule, as month-day."""
    runs = itertools.islice(Cron(expression, **options).between(start, start + timedelta(days=12_000)), count)
    return [f"{run:%m-%d}" for run in runs]


def times(expression: str, count: int, **options: Any) -> list[str]:
    """The next times of day of a rule."""
    runs = itertools.islice(Cron(expression, **options).between(NEW_YEAR, NEW_YEAR + timedelta(days=400)), count)
    return [f"{run:%H:%M:%S}" for run in runs]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_known_case_gives_its_right_instants(case: dict[str, Any]) -> None:
    start = datetime.fromisoformat(case["start"])
    if not case["runs"]:
        with pytest.raises(NeverOccurs):
            Cron(case["expression"], tz=case["tz"])
        return
    rule = Cron(case["expression"], tz=case["tz"])
    end = datetime.fromisoformat(case["end"]) if "end" in case else start + timedelta(days=10_000)
    runs = list(itertools.islice(rule.between(start, end), case.get("count")))
    right = [datetime.fromisoformat(run) for run in case["runs"]]
    assert runs == right
    assert [rule.after(run) for run in right[:-1]] == right[1:]


def test_wildcards_run_in_both_passes_only_where_overlap_says_both() -> None:
    start, end = datetime(2024, 11, 3, 5, 30, tzinfo=UTC), datetime(2024, 11, 3, 7, 15, tzinfo=UTC)
    runs = {
        overlap: [
            f"{run:%H:%M}" for run in Cron("*/30 * * * *", tz="America/New_York", overlap=overlap).between(start, end)
        ]
        for overlap in Overlap
    }
    assert runs[Overlap.FIRST] == ["05:30", "07:00"]
    assert runs[Overlap.LAST] == ["06:00", "06:30", "07:00"]
    assert runs[Overlap.BOTH] == ["05:30", "06:00", "06:30", "07:00"]


@pytest.mark.parametrize(
    ("expression", "right"),
    [
        ("0 0 * * 5L", ["01-30", "02-27", "03-27"]),
        ("0 0 * * L5", ["01-30", "02-27", "03-27"]),
        ("0 0 * * FRIL", ["01-30", "02-27", "03-27"]),
        ("0 0 * * 5#3", ["01-16", "02-20", "03-20"]),
        ("0 0 * * fri#5", ["01-30", "05-29", "07-31"]),
        ("0 0 * * 1#1,1#3", ["01-05", "01-19", "02-02"]),
        ("0 0 * * 1,5#3", ["01-05", "01-12", "01-16", "01-19"]),
        ("0 0 15W * *", ["01-15", "02-16", "03-16"]),
        ("0 0 1W * *", ["01-01", "02-02", "03-02", "04-01", "05-01", "06-01", "07-01", "08-03"]),
        ("0 0 28W 2 *", ["02-27", "02-26", "02-28"]),
        ("0 0 LW * *", ["01-30", "02-27", "03-31", "04-30", "05-29"]),
        ("0 0 L,15 * *", ["01-15", "01-31", "02-15", "02-28"]),
        ("0 0 1W,15W * *", ["01-01", "01-15", "02-02", "02-16"]),
        ("0 0 31 * *", ["01-31", "03-31", "05-31"]),
        ("0 0 1 JAN-JAN *", ["01-01", "01-01"]),
        ("0 0 1 NOV-FEB *", ["01-01", "02-01", "11-01", "12-01", "01-01"]),
        ("0 0 * * FRI-MON", ["01-02", "01-03", "01-04", "01-05", "01-09"]),
        ("0 0 * * 6-7", ["01-03", "01-04", "01-10"]),
        ("0 0 * * 7-1", ["01-04", "01-05", "01-11"]),
        ("0 0 * * */2", ["01-01", "01-03", "01-04", "01-06"]),
        ("0 0 15 * 5#3", ["01-15", "01-16", "02-15", "02-20"]),
        ("0 0 15W * 5", ["01-02", "01-09", "01-15", "01-16"]),
        ("0 0 15 * L5", ["01-15", "01-30", "02-15", "02-27"]),
        ("0 0 1-31 * 5", ["01-01", "01-02", "01-03"]),
        ("@monthly", ["01-01", "02-01"]),
        ("@Yearly", ["01-01", "01-01"]),
        ("@weekly", ["01-04", "01-11"]),
    ],
)
def test_day_fields_are_read_as_documented(expression: str, right: list[str]) -> None:
    assert dates(expression, len(right)) == right


@pytest.mark.parametrize(
    ("expression", "right"),
    [
        ("0 0 13 * 5", ["02-13", "03-13", "11-13"]),
        ("0 0 */2 * 1", ["01-05", "01-19", "02-09", "02-23"]),
        ("0 0 15 * 5#3", ["05-15", "01-15"]),
        ("0 0 L * 5L", ["07-31", "04-30"]),
        ("0 0 29 2 1", ["02-29"]),
    ],
)
def test_day_match_both_needs_both_day_fields(expression: str, right: list[str]) -> None:
    assert dates(expression, len(right), day_match="both") == right


@pytest.mark.parametrize(
    ("expression", "options", "right"),
    [
        ("22-2 * * * *", {}, ["00:00:00", "00:01:00", "00:02:00", "00:22:00"]),
        ("0 22-2/2 * * *", {}, ["00:00:00", "02:00:00", "22:00:00", "00:00:00"]),
        ("5,5,5-7,6 0 * * *", {}, ["00:05:00", "00:06:00", "00:07:00", "00:05:00"]),
        ("09 08 * * *", {}, ["08:09:00"]),
        ("@hourly", {}, ["00:00:00", "01:00:00"]),
        ("  */30\t* * * *  ", {}, ["00:00:00", "00:30:00"]),
        ("*/20 * * * * *", {"dialect": "seconds-first"}, ["00:00:00", "00:00:20", "00:00:40", "00:01:00"]),
        ("59 59 23 * * *", {"dialect": "seconds-first"}, ["23:59:59", "23:59:59"]),
        ("30 5/20 12 * * *", {"dialect": "seconds-first"}, ["12:05:30", "12:25:30", "12:45:30", "12:05:30"]),
        ("0 0/15 9 ? * MON-FRI", {"dialect": "quartz"}, ["09:00:00", "09:15:00", "09:30:00", "09:45:00"]),
    ],
)
def test_times_of_day_are_read_as_documented(expression: str, options: dict[str, Any], right: list[str]) -> None:
    assert times(expression, len(right), **options) == right


@pytest.mark.parametrize(
    ("expression", "right"),
    [
        ("0 0 0 ? * 2", ["01-05", "01-12"]),
        ("0 0 0 ? * 1", ["01-04", "01-11"]),
        ("0 0 0 ? * 7", ["01-03", "01-10"]),
        ("0 0 0 ? * 6L", ["01-30", "02-27"]),
        ("0 0 0 ? * 6#3", ["01-16", "02-20"]),
        ("0 0 0 1 1 ? 2030-2040/5", ["01-01", "01-01", "01-01"]),
        ("0 0 0 29 2 ? 2027-2033", ["02-29", "02-29"]),
        ("0 0 0 L * ?", ["01-31", "02-28"]),
    ],
)
def test_quartz_counts_weekdays_from_sunday_as_one_and_knows_years(expression: str, right: list[str]) -> None:
    assert dates(expression, 3, dialect="quartz")[: len(right)] == right


def test_a_year_far_away_is_found() -> None:
    rule = Cron("0 0 0 1 1 ? 2099", dialect="quartz")
    assert rule.after(datetime(1980, 1, 1, tzinfo=UTC)) == datetime(2099, 1, 1, tzinfo=UTC)
    assert rule.after(datetime(2099, 1, 1, tzinfo=UTC)) is None


def test_h_is_the_same_for_one_id_everywhere_and_spreads_over_ids() -> None:
    rule = Cron("H H H * *", tz="Europe/Paris")
    assert rule.bind("invoice-42") == Cron("18 17 7 * *", tz="Europe/Paris")
    bound = [parse(rule.bind(f"id {number}").expression, "unix", "either") for number in range(2_000)]
    assert {minute for cron in bound for minute in cron.times.minutes} == set(range(60))
    assert {hour for cron in bound for hour in cron.times.hours} == set(range(24))
    days = {int(cron.dates.expressions[0].split()[2]) for cron in bound}
    assert days == set(range(1, 29))


@unhurried
@given(st.text(min_size=1, max_size=20))
def test_h_keeps_within_its_range_and_its_step(schedule_id: str) -> None:
    bound = parse(Cron("H(10-19),H(40-49)/3 H/8 * * *").bind(schedule_id).expression, "unix", "either")
    assert not bound.hashed
    tens = [minute for minute in bound.times.minutes if minute < 20]
    forties = [minute for minute in bound.times.minutes if minute >= 40]
    assert 10 <= tens[0] <= 19
    assert forties == list(range(forties[0], 50, 3))
    assert forties[0] < 43
    assert bound.times.hours == tuple(range(bound.times.hours[0], 24, 8))
    assert len(bound.times.hours) == 3


def test_an_h_that_is_not_bound_is_no_rule_yet() -> None:
    with pytest.raises(InvalidSchedule, match=r"bind\(schedule_id\)"):
        Cron("H 9 * * *").after(NEW_YEAR)
    assert Cron("0 9 * * *").bind("any") == Cron("0 9 * * *")
    assert Cron("@hourly").bind("any") == Cron("@hourly")
