"""Figures add up: what is counted in one series is counted in the others, and percentiles are exact."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tocsin.loadtest.figures import (
    HEAT_BOUNDS_MS,
    Distribution,
    Window,
    drains_of,
    heat_of,
    lateness_by_part,
    seconds_of,
)

START = 1_796_032_800_000
HOUR = 20_000
WINDOW = Window(
    start_ms=START, end_ms=START + 60_000, hour_ms=HOUR, peaks=(START, START + HOUR, START + 2 * HOUR), peak_ms=1_000
)

#: Of each occurrence: due, and lateness; None: lost.
occurrences = st.lists(
    st.tuples(st.integers(0, 59_999), st.one_of(st.none(), st.integers(0, 100_000))), min_size=1, max_size=200
)


@given(occurrences)
def test_every_occurrence_is_in_every_series_once(given_occurrences: list[tuple[int, int | None]]) -> None:
    expected = {f"k{number}": START + due for number, (due, _) in enumerate(given_occurrences)}
    first = {
        f"k{number}": START + due + late for number, (due, late) in enumerate(given_occurrences) if late is not None
    }
    parts = lateness_by_part(expected, first, WINDOW)
    assert parts["all"].count == len(first)
    assert sum(part.count for name, part in parts.items() if name != "all") == len(first)
    seconds = seconds_of(expected, first, WINDOW)
    assert sum(second.due for second in seconds) == len(expected)
    assert sum(second.dispatched for second in seconds) == len(first)
    assert seconds[-1].outstanding == len(expected) - len(first)
    assert all(later.at == earlier.at + 1 for earlier, later in pairwise(seconds))
    assert sum(map(sum, heat_of(expected, first, WINDOW))) == len(first)
    drains = drains_of(expected, first, WINDOW)
    in_peaks = sum(WINDOW.is_peak(due) for due in expected.values())
    assert sum(drain.count for drain in drains) == in_peaks
    for drain in drains:
        assert (drain.seconds is None) == (drain.curve[-1][1] > 0)
        assert all(later[1] <= earlier[1] for earlier, later in pairwise(drain.curve))


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=300))
def test_percentiles_are_those_of_the_sorted_list(lateness_ms: list[int]) -> None:
    part = Distribution.of(lateness_ms)
    ascending = sorted(lateness_ms)
    assert part.p99_ms == ascending[math.ceil(0.99 * len(ascending)) - 1]
    assert part.p50_ms == ascending[math.ceil(0.5 * len(ascending)) - 1]
    assert part.max_ms == ascending[-1]
    assert part.curve[-1] == (ascending[-1], 1.0)


def test_a_herd_of_an_instant_is_one_column_of_the_heat_map() -> None:
    expected = {f"k{number}": START + HOUR for number in range(50)}
    first = dict.fromkeys(expected, START + HOUR + 300)
    heat = heat_of(expected, first, WINDOW)
    row = HEAT_BOUNDS_MS.index(500)
    assert heat[row][0] == 50


def test_nothing_dispatched_has_no_percentiles() -> None:
    assert lateness_by_part({"k": START}, {}, WINDOW)["all"].p99_ms is None
