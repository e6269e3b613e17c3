"""Goal: L, W, LW and # are the days their definitions name, in every month."""

from __future__ import annotations

import calendar
import random
from datetime import UTC, date, datetime, timedelta

from tocsin.schema.cron import Cron


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
