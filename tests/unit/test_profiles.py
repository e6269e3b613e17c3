"""A profile's dues are what it says they are, and the rules it makes have no others."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from tocsin.loadtest.profiles import Load, Profile
from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import HOUR_MS, MINUTE_MS, SECOND_MS

START = 1_796_032_800_000


def load(profile: Profile, **options: Any) -> Load:
    minutes = options.pop("minutes", 3)
    return Load(profile=profile, run_id="r", topic="t", start_ms=START, end_ms=START + minutes * MINUTE_MS, **options)


@pytest.mark.parametrize(
    ("profile", "options"),
    [
        (Profile.STEADY, {"scale": 0.02}),
        (Profile.HOURLY_PEAK, {"scale": 0.005}),
        (Profile.HOURLY_PEAK, {"scale": 0.005, "peak_width_ms": 5_000, "peak": 60, "hour_ms": 45_000}),
        (Profile.MIDNIGHT, {"scale": 0.04}),
        (Profile.REFERENCE, {"scale": 0.000_002}),
    ],
)
def test_the_rules_yield_the_dues_and_no_others_in_the_window(profile: Profile, options: dict[str, Any]) -> None:
    made = load(profile, **options)
    planned = list(made.schedules())
    assert len(planned) == made.schedule_count or profile is Profile.REFERENCE
    assert len({each.schedule.schedule_id for each in planned}) == len(planned)
    for each in planned:
        spec = each.schedule.spec(START - HOUR_MS)
        assert tuple(spec.nominal_times(START - HOUR_MS, made.end_ms + HOUR_MS)) == each.dues
        assert [key for key, _ in each.expected()] == sorted({key for key, _ in each.expected()})


@pytest.mark.parametrize("peak", [1, 20, 60])
def test_the_first_minute_of_an_hour_holds_so_many_times_the_mean_minute(peak: int) -> None:
    made = load(Profile.HOURLY_PEAK, scale=0.06, peak=peak, hour_ms=HOUR_MS, minutes=60)
    dues = [due for each in made.schedules() for due in each.dues]
    at_peak = sum(due == START for due in dues)
    assert at_peak == pytest.approx(peak * len(dues) / 60, abs=1)
    rest = Counter((due - START) // (10 * MINUTE_MS) for due in dues if due > START)
    assert max(rest.values(), default=0) - min(rest.values(), default=0) <= 1 or peak == 60


def test_steady_is_the_same_every_second() -> None:
    dues = [due for each in load(Profile.STEADY, scale=0.5).schedules() for due in each.dues]
    assert set(Counter((due - START) // SECOND_MS for due in dues).values()) == {100}


def test_the_reference_has_350_a_second_and_7000_in_one_minute() -> None:
    factor = 0.000_1
    made = load(Profile.REFERENCE, scale=factor, minutes=5)
    planned = list(made.schedules())
    (peak,) = made.peaks
    dues = [due for each in planned for due in each.dues]
    in_peak = sum(peak <= due < peak + MINUTE_MS for due in dues)
    assert in_peak == round(7_000 * 60 * factor)
    assert len(dues) - in_peak == pytest.approx(350 * 240 * factor, abs=2)
    assert len(planned) == 200_000_000 * factor


def test_midnight_comes_at_one_instant_in_many_zones() -> None:
    made = load(Profile.MIDNIGHT, scale=0.04)
    planned = list(made.schedules())
    (midnight,) = made.peaks
    assert sum(each.dues == (midnight,) for each in planned) == len(planned) // 2
    local_times = {each.schedule.recurrence.at for each in planned}  # type: ignore[union-attr]
    assert len(local_times) > 20


def test_nine_of_ten_timers_are_recalled_before_they_are_due() -> None:
    made = load(Profile.TIMERS, scale=0.1)
    timers = list(made.timers())
    assert sum(each.recalled_at is None for each in timers) == len(timers) // 10
    assert all(each.sent_at < each.recalled_at < each.due for each in timers if each.recalled_at is not None)
    assert all(each.sent_at >= START and each.due < made.end_ms for each in timers)
    assert all(one.sent_at <= other.sent_at for one, other in itertools.pairwise(timers))
    assert list(made.schedules()) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"peak": 61}, "a peak of 61"),
        ({"scale": 0}, "a scale of 0"),
        ({"hour_ms": 9_000}, "an hour"),
        ({"peak_width_ms": MINUTE_MS}, "narrower"),
        ({"hour_ms": HOUR_MS}, "--minutes"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        load(Profile.HOURLY_PEAK, **options)
