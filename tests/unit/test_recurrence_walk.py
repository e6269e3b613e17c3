"""Goal: cron over zones is right in every minute around clock changes, whatever expression and policy.

Method: an evaluator that shares nothing with the code under test. It walks each UTC minute of a window, reads the
local time off the zone, and looks which local times came once, twice or never; the policies are then applied to that
table by their definition. Expressions are drawn as sets of values together with their text, so it parses nothing.
"""

from __future__ import annotations

import calendar
import functools
import itertools
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from tocsin.schema import zones
from tocsin.schema.errors import NeverOccurs
from tocsin.schema.recurrence import Cron, Gap, Overlap

MINUTE = timedelta(minutes=1)
MARGIN = timedelta(hours=30)
#: Every date of 28 years: after them the weekdays of a date come round again.
LEAP_CYCLE = [datetime.fromisoformat("2000-01-01") + timedelta(days=day) for day in range(28 * 366)]

#: Zone, and an instant near which its clock changes: at midnight, by 30 minutes, 2, 3 and 24 hours, negative summer
#: time, moves of the base offset, changes on other weekdays, and far in the future.
CHANGES = [
    ("America/New_York", "2024-03-10T07:00Z"),
    ("America/New_York", "2024-11-03T06:00Z"),
    ("America/New_York", "2059-03-09T07:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("America/Sao_Paulo", "2019-02-17T02:00Z"),
    ("Asia/Beirut", "2023-03-25T22:00Z"),
    ("Africa/Cairo", "2024-04-25T22:00Z"),
    ("Atlantic/Azores", "2024-10-27T01:00Z"),
    ("Australia/Lord_Howe", "2024-10-05T15:30Z"),
    ("Australia/Lord_Howe", "2024-04-06T15:00Z"),
    ("Antarctica/Troll", "2024-03-31T01:00Z"),
    ("Antarctica/Troll", "2024-10-27T01:00Z"),
    ("Antarctica/Casey", "2010-03-04T15:00Z"),
    ("Antarctica/Casey", "2009-10-17T18:00Z"),
    ("Antarctica/Vostok", "2023-12-17T19:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("Pacific/Kwajalein", "1993-08-21T12:00Z"),
    ("Pacific/Easter", "2024-04-07T03:00Z"),
    ("Pacific/Chatham", "2024-09-28T14:00Z"),
    ("Pacific/Norfolk", "2015-10-03T15:30Z"),
    ("Europe/Dublin", "2024-10-27T01:00Z"),
    ("Africa/Casablanca", "2024-03-10T02:00Z"),
    ("Africa/Casablanca", "2024-04-14T02:00Z"),
    ("America/Caracas", "2016-05-01T07:00Z"),
    ("Asia/Pyongyang", "2015-08-14T15:00Z"),
    ("Asia/Almaty", "2024-02-29T18:00Z"),
    ("Asia/Kathmandu", "2024-05-05T00:00Z"),
    ("America/Nuuk", "2024-03-31T01:00Z"),
    ("Africa/Monrovia", "1972-01-07T00:45Z"),
    ("UTC", "2024-12-31T23:59Z"),
]


class Drawn(NamedTuple):
    """An expression and what it means, both drawn together."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    day_match: str
    last_day: bool
    nth: tuple[int, int] | None

    def matches(self, local: datetime) -> bool:
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and local.month in self.months
            and self.matches_day(local)
        )

    def matches_day(self, local: datetime) -> bool:
        by_day = self.days is not None and (
            local.day in self.days or (self.last_day and local.day == calendar.monthrange(local.year, local.month)[1])
        )
        weekday = local.isoweekday() % 7
        by_weekday = self.weekdays is not None and (
            weekday in self.weekdays or (weekday, (local.day - 1) // 7 + 1) == self.nth
        )
        if self.days is None and self.weekdays is None:
            return True
        if self.days is None or self.weekdays is None:
            return by_day or by_weekday
        return by_day and by_weekday if self.day_match == "both" else by_day or by_weekday


def draw_field(draw: random.Random, low: int, high: int, near: list[int]) -> tuple[str, frozenset[int]]:
    """One field near the values that matter: a star, step, range, list or single value."""
    kind = draw.choice(["star", "step", "range", "range-step", "list", "one", "near"])
    if kind == "star":
        return "*", frozenset(range(low, high + 1))
    if kind == "step":
        step = draw.randint(1, (high - low) // 2)
        return f"*/{step}", frozenset(range(low, high + 1, step))
    if kind in {"range", "range-step"}:
        first, last = sorted(draw.sample(range(low, high + 1), 2))
        step = draw.randint(1, last - first) if kind == "range-step" else 1
        return f"{first}-{last}" + (f"/{step}" if kind == "range-step" else ""), frozenset(range(first, last + 1, step))
    source = near if kind == "near" else list(range(low, high + 1))
    chosen = draw.sample(source, min(len(source), 1 if kind == "one" else 3))
    return ",".join(map(str, chosen)), frozenset(chosen)


def draw_expression(draw: random.Random, local: datetime) -> Drawn:
    """An expression that has something to do with the local time of a change."""
    around = [(local.hour + hours) % 24 for hours in (-2, -1, 0, 1, 2)]
    minutes_text, minutes = draw_field(draw, 0, 59, [0, 15, 29, 30, 31, 45, 59])
    hours_text, hours = draw_field(draw, 0, 23, around)
    days_text, days = draw_field(draw, 1, 31, [local.day, min(local.day + 1, 31), max(local.day - 1, 1)])
    months_text, months = draw.choice([("*", frozenset(range(1, 13))), (str(local.month), frozenset({local.month}))])
    weekdays_text, weekdays = draw_field(draw, 0, 6, [local.isoweekday() % 7])
    day_match = draw.choice(["either", "both"])
    if draw.random() < 0.5 or (day_match == "either" and days_text.startswith("*/")):
        days_text, days = "*", frozenset(range(1, 32))
    if draw.random() < 0.5 or (day_match == "either" and weekdays_text.startswith("*/")):
        weekdays_text, weekdays = "*", frozenset(range(7))
    last_day = days_text[0] != "*" and draw.random() < 0.3
    nth = (draw.randrange(7), draw.randint(1, 5)) if weekdays_text[0] != "*" and draw.random() < 0.3 else None
    text = " ".join(
        [
            minutes_text,
            hours_text,
            days_text + (",L" if last_day else ""),
            months_text,
            weekdays_text + (f",{nth[0]}#{nth[1]}" if nth else ""),
        ]
    )
    free_days, free_weekdays = days_text == "*", weekdays_text == "*"
    return Drawn(
        text,
        minutes,
        hours,
        None if free_days else days,
        months,
        None if free_weekdays else weekdays,
        day_match,
        last_day,
        nth,
    )


class Walk(NamedTuple):
    """What every minute of a window showed."""

    #: Local time: the instants that showed it, in order.
    shown: dict[datetime, list[datetime]]
    #: Local times that no clock showed: where they would have run without the change.
    skipped: dict[datetime, datetime]


@functools.cache
def walk(tz: str, around: datetime) -> Walk:
    """Read the clock of a zone in each minute of some days."""
    zone = zones.zone(tz)
    shown: dict[datetime, list[datetime]] = defaultdict(list)
    previous, skipped = None, {}
    for minute in range(-2 * 30 * 60, 2 * 30 * 60):
        instant = around + minute * MINUTE
        # A clock whose offset has seconds shows its whole minute within ours, unless it changes just then.
        instant += timedelta(seconds=-instant.astimezone(zone).second % 60)
        local = instant.astimezone(zone).replace(tzinfo=None)
        if local.second:
            continue
        shown[local].append(instant)
        if previous is not None:
            missing = previous[0] + MINUTE
            while missing < local:
                skipped[missing] = previous[1] + (missing - previous[0])
                missing += MINUTE
        previous = local, instant
    return Walk(shown, skipped)


def expected(drawn: Drawn, walked: Walk, gap: Gap, overlap: Overlap) -> list[datetime]:
    """The instants at which the drawn rule runs, by definition of the policies."""
    runs: set[datetime] = set()
    for local, instants in walked.shown.items():
        if drawn.matches(local):
            chosen = {Overlap.FIRST: instants[:1], Overlap.LAST: instants[-1:], Overlap.BOTH: instants}[overlap]
            runs.update(chosen)
    if gap is Gap.SHIFT:
        runs.update(instant for local, instant in walked.skipped.items() if drawn.matches(local))
    return sorted(runs)


@pytest.mark.parametrize(("tz", "around"), CHANGES)
def test_a_walk_through_every_minute_finds_the_same_occurrences(tz: str, around: str) -> None:
    center = datetime.fromisoformat(around)
    draw = random.Random(f"{tz}{around}")
    walked = walk(tz, center)
    local = center.astimezone(zones.zone(tz)).replace(tzinfo=None)
    start, end = center - MARGIN, center + MARGIN
    for _ in range(32):
        drawn = draw_expression(draw, local)
        for gap, overlap in itertools.product(Gap, Overlap):
            right = [run for run in expected(drawn, walked, gap, overlap) if start <= run < end]
            try:
                rule = Cron(drawn.text, tz=tz, gap=gap, overlap=overlap, day_match=drawn.day_match)
            except NeverOccurs:
                assert not any(drawn.matches_day(day) for day in LEAP_CYCLE if day.month in drawn.months), drawn
                continue
            assert list(rule.between(start, end)) == right, rule
            asked = start + timedelta(seconds=draw.randrange(int((end - start).total_seconds())))
            following = next((run for run in right if run > asked), None)
            answer = rule.after(asked)
            assert answer == following or (following is None and (answer is None or answer >= end)), (rule, asked)


def test_the_walk_itself_knows_a_skipped_and_a_repeated_hour() -> None:
    spring = walk("America/New_York", datetime(2024, 3, 10, 7, tzinfo=UTC))
    autumn = walk("America/New_York", datetime(2024, 11, 3, 6, tzinfo=UTC))
    assert len(spring.skipped) == 60
    assert spring.skipped[datetime.fromisoformat("2024-03-10T02:30")] == datetime(2024, 3, 10, 7, 30, tzinfo=UTC)
    assert [run.hour for run in autumn.shown[datetime.fromisoformat("2024-11-03T01:30")]] == [5, 6]
    assert sum(len(runs) == 2 for runs in autumn.shown.values()) == 60
