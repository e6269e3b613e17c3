"""Goal: what a schedule adds to its rule is stable and bounded: jitter, max_runs, excluded dates."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.schema.errors import InvalidSchedule, NeverOccurs
from tocsin.schema.recurrence import (
    Daily,
    Every,
    Monthly,
    Once,
    excluded,
    jitter_ms,
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


@unhurried
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
