"""Goal: a cron expression means what its writer meant, or is refused with the place and the reason."""

from __future__ import annotations

import calendar
import contextlib
import itertools
import json
import random
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.schema.cron import Cron, parse
from tocsin.schema.errors import InvalidSchedule, NeverOccurs
from tocsin.schema.recurrence import Overlap

CASES = [json.loads(line) for line in Path(__file__).with_name("cron_cases.jsonl").read_text("utf-8").splitlines()]
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


REFUSED = [
    ("61 9 * * *", 0, 2, "61 is not a valid minute"),
    ("0 24 * * *", 2, 4, "24 is not a valid hour"),
    ("0 9 0 * *", 4, 5, "0 is not a valid day"),
    ("0 9 32 * *", 4, 6, "32 is not a valid day"),
    ("0 9 * 13 *", 6, 8, "13 is not a valid month"),
    ("0 9 * * 8", 8, 9, "8 is not a valid weekday"),
    ("0 9 * * FOO", 8, 11, "FOO is not a valid weekday"),
    ("0 9 * JANUARY *", 6, 13, "JANUARY is not"),
    ("0 MON * * *", 2, 5, "MON is not a valid hour"),
    ("0,61 9 * * *", 2, 4, "61 is not a valid minute"),
    ("0,,5 9 * * *", 0, 4, "empty place"),
    (",5 9 * * *", 0, 2, "empty place"),
    ("*/0 9 * * *", 0, 3, "step of 0"),
    ("*/90 9 * * *", 0, 4, "leaves only the first value"),
    ("1-5/10 9 * * *", 0, 6, "leaves only the first value"),
    ("5/15 9 * * *", 0, 4, "write 5-59/15"),
    ("*,5 9 * * *", 0, 1, "cannot be one of a list"),
    ("-5 9 * * *", 0, 2, "negative"),
    ("5- 9 * * *", 0, 2, "5- is not a valid minute"),
    ("1-2-3 9 * * *", 0, 5, "1-2-3 is not"),
    ("1/2/3 9 * * *", 0, 5, "1/2/3 is not"),
    ("1.5 9 * * *", 0, 3, "1.5 is not"),
    ("0 9 20-10 * *", 4, 9, "runs backwards"),
    ("0 9 31W * *", 4, 7, "write LW"),
    ("0 9 W * *", 4, 5, "W is not"),
    ("0 9 L-3 * *", 4, 7, "days before the last"),
    ("0 9 * * L", 8, 9, "needs a weekday"),
    ("0 9 * * 5LL", 8, 11, "is not a valid weekday"),
    ("0 9 * * L5L", 8, 11, "is not a valid weekday"),
    ("0 9 * * 5#6", 8, 11, "# is followed by 1 to 5"),
    ("0 9 * * 5#0", 8, 11, "# is followed by 1 to 5"),
    ("0 9 * * #3", 8, 10, "nothing is not a valid weekday"),
    ("L 9 * * *", 0, 1, "no such meaning"),
    ("? 9 * * *", 0, 1, "write * for any"),
    ("0 9 ? * *", 4, 5, "write * for any"),
    ("R 9 * * *", 0, 1, "random on each host"),
    ("H(5 9 * * *", 0, 3, "H is written"),
    ("H(0-99) 9 * * *", 0, 7, "within 0-59"),
    ("H(9-3) 9 * * *", 0, 6, "within 0-59"),
    ("0 9 H(20-31) * *", 4, 12, "within 1-28"),
    ("H/90 9 * * *", 0, 4, "step after H"),
    ("H/0 9 * * *", 0, 3, "step after H"),
    ("0 9 */2 * 1", 4, 7, "1-31/2"),
    ("0 9 1 * */2", 8, 11, "0-6/2"),
    ("0 9 */1 * 1", 4, 7, "AND or as OR"),
    ("0 9 * *", 8, 9, "4 fields"),
    ("", 1, 2, "0 fields"),
    ("0 0 9 * * *", 10, 11, "name the dialect"),
    ("@reboot", 0, 7, "no reboot"),
    ("@every 5m", 0, 9, "Every(period)"),
    ("@fortnightly", 0, 12, "@hourly"),
    ("\u0665 9 * * *", 0, 1, "does not belong"),
    ("\uff15 9 * * *", 0, 1, "does not belong"),
    ("0 9\u00a0* * *", 3, 4, "does not belong"),
    ("0 9 * * *\n", 9, 10, "does not belong"),
    ("0 9 * * \0", 8, 9, "does not belong"),
]


@pytest.mark.parametrize(("expression", "start", "end", "reason"), REFUSED)
def test_a_wrong_expression_is_refused_with_a_caret_under_the_wrong_part(
    expression: str, start: int, end: int, reason: str
) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        Cron(expression)
    text, shown, caret = str(refused.value).split("\n")
    assert reason in text
    assert refused.value.field == "expression"
    assert refused.value.value == expression
    assert len(shown) == len(expression) + 4
    assert caret == " " * (4 + start) + "^" * (end - start)


@pytest.mark.parametrize(
    ("expression", "options", "reason"),
    [
        ("0 0 0 1 * 2", {"dialect": "quartz"}, "leaves one of the two day fields open"),
        ("0 0 0 H * ? H", {"dialect": "quartz"}, "H would choose a year"),
        ("0 0 0 1 1 ? 2100", {"dialect": "quartz"}, "2100 is not a valid year"),
        ("0 0 0 1 1 ? 2030-2020", {"dialect": "quartz"}, "runs backwards"),
        ("0 9 * * *", {"dialect": "seconds-first"}, "5 fields"),
        ("0 9 * * *", {"dialect": "vixie"}, "unix, seconds-first, quartz"),
        ("0 9 * * *", {"dialect": ["unix"]}, "unix, seconds-first, quartz"),
        ("0 9 * * *", {"day_match": "any"}, "either, both"),
        ("0 9 15W * 1", {"day_match": "both"}, "W moves the day"),
        ("0 9 * * *", {"tz": "Europe/Lodnon"}, "Europe/London"),
        ("0 9 * * *", {"tz": "../etc/passwd"}, "no zone"),
        ("0 9 * * *", {"tz": None}, "must be the name of a zone"),
        ("0 9 * * *", {"gap": "jump"}, "Gap.SKIP"),
        ("0 9 * * *", {"overlap": None}, "Overlap.FIRST"),
        (None, {}, "must be a string"),
        (["0 9 * * *"], {}, "must be a string"),
        (b"0 9 * * *", {}, "must be a string"),
    ],
)
def test_a_wrong_option_is_refused_by_name(expression: Any, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidSchedule, match=reason):
        Cron(expression, **options)


@pytest.mark.parametrize(
    ("expression", "options"),
    [
        ("0 0 30 2 *", {}),
        ("0 0 30,31 2 *", {}),
        ("0 0 31 2,4,6,9,11 *", {}),
        ("0 0 1-7 * 1#5", {"day_match": "both"}),
        ("0 0 1-7 * 1#5,2L", {"day_match": "both"}),
        ("0 0 0 29 2 ? 2023", {"dialect": "quartz"}),
        ("0 0 0 29 2 ? 2097-2099", {"dialect": "quartz"}),
    ],
)
def test_dates_that_never_come_are_refused(expression: str, options: dict[str, Any]) -> None:
    with pytest.raises(NeverOccurs, match="no date matches"):
        Cron(expression, **options)


def test_a_rule_that_the_clock_always_skips_is_refused_when_its_schedule_is_made() -> None:
    rule = Cron("30 2 * 3 0#2", tz="America/New_York")
    assert rule.after(NEW_YEAR) is None
    with pytest.raises(NeverOccurs, match="skips"):
        rule.resolve("s", int(NEW_YEAR.timestamp() * 1000))


HOSTILE = [
    "0" * 10_000,
    "* " * 5_000,
    "1," * 500 + "1 0 * * *",
    "*/1," * 240 + "*/2 0 * * *",
    "0 0 " + "LW," * 320 + "1W * *",
    "0 0 " + ",".join(f"{day}W" for day in range(1, 29)) + ",LW * *",
    "0 0 * * " + "1#1," * 240 + "2#2",
    "0 0 1-7 * 1#5,2#5,3#5,6",
    "0 0 * * " + ",".join(f"{day}#{nth}" for day in range(8) for nth in range(1, 6)),
    "1/1/1/1/1/1/1/1 * * * *",
    "9" * 1_000 + " * * * *",
    "0-" * 500 + "1 * * * *",
    "H(" * 300 + " * * * *",
    "\u0663" * 1_000,
    "\0" * 1_000,
    "\ud800 * * * *",
    "* * * * * " * 100,
    "0 0 30 2 *",
]


@pytest.mark.parametrize("day_match", ["either", "both"])
@pytest.mark.parametrize("expression", HOSTILE, ids=range(len(HOSTILE)))
def test_no_expression_takes_more_than_fifty_milliseconds(expression: str, day_match: Any) -> None:
    def ask() -> None:
        parse.cache_clear()
        with contextlib.suppress(InvalidSchedule):
            Cron(expression, day_match=day_match).after(NEW_YEAR)

    assert min(cpu_seconds(ask) for _ in range(2)) < 0.05


def cpu_seconds(work: Callable[[], None]) -> float:
    """What a call costs, whoever else is using the machine."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


@given(st.text(alphabet=" *,-/#?@0123456789HLWRMONJAN()", max_size=40))
def test_any_text_is_a_rule_or_refused_and_a_rule_moves_on(text: str) -> None:
    try:
        rule = Cron(text).bind("some id")
    except InvalidSchedule:
        return
    first = rule.after(NEW_YEAR)
    assert first is not None
    assert first > NEW_YEAR
    assert rule.after(first) > first


def test_h_is_the_same_for_one_id_everywhere_and_spreads_over_ids() -> None:
    rule = Cron("H H H * *", tz="Europe/Paris")
    assert rule.bind("invoice-42") == Cron("18 17 7 * *", tz="Europe/Paris")
    bound = [parse(rule.bind(f"id {number}").expression, "unix", "either") for number in range(2_000)]
    assert {minute for cron in bound for minute in cron.times.minutes} == set(range(60))
    assert {hour for cron in bound for hour in cron.times.hours} == set(range(24))
    days = {int(cron.dates.expressions[0].split()[2]) for cron in bound}
    assert days == set(range(1, 29))


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


def nearest_weekday(year: int, month: int, day: int) -> int:
    """The day itself, or the Friday or Monday beside it within the month."""
    days = [
        other
        for other in range(1, calendar.monthrange(year, month)[1] + 1)
        if date(year, month, other).isoweekday() <= 5
    ]
    return min(days, key=lambda other: abs(other - day))


def test_w_is_the_weekday_nearest_to_its_day_in_every_month_of_28_years() -> None:
    for day in (1, 2, 15, 27, 28):
        right = {date(y, m, nearest_weekday(y, m, day)) for y in range(2000, 2028) for m in range(1, 13)}
        runs = Cron(f"0 0 {day}W * *").between(datetime(2000, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC))
        assert {run.date() for run in runs} == right


def special_items(draw: random.Random, day: date) -> list[tuple[str, str, bool]]:
    """Day and weekday items with whether they match a date, by definition."""
    last = calendar.monthrange(day.year, day.month)[1]
    weekday, nth = draw.randrange(7), draw.randint(1, 5)
    is_weekday = day.isoweekday() % 7 == weekday
    last_weekday = max(d for d in range(1, last + 1) if date(day.year, day.month, d).isoweekday() <= 5)
    number = draw.randint(1, 28)
    return [
        ("day", "L", day.day == last),
        ("day", "LW", day.day == last_weekday),
        ("day", f"{number}W", day.day == nearest_weekday(day.year, day.month, number)),
        ("day", str(number), day.day == number),
        ("weekday", str(weekday), is_weekday),
        ("weekday", f"{weekday}#{nth}", is_weekday and (day.day - 1) // 7 + 1 == nth),
        ("weekday", f"{weekday}L", is_weekday and day.day > last - 7),
    ]


def test_special_days_agree_with_their_definition_on_thousands_of_dates() -> None:
    draw = random.Random(8)
    for _ in range(3_000):
        day = date(1990, 1, 1) + timedelta(days=draw.randrange(40_000))
        chosen = draw.sample(special_items(draw, day), draw.randint(1, 4))
        days = [text for kind, text, _ in chosen if kind == "day"]
        weekdays = [text for kind, text, _ in chosen if kind == "weekday"]
        rule = Cron(f"0 0 {','.join(days) or '*'} * {','.join(weekdays) or '*'}")
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        runs = bool(list(rule.between(midnight, midnight + timedelta(days=1))))
        assert runs == any(matches for _, _, matches in chosen), (rule, day)
