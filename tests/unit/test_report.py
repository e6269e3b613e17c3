"""The report of a load test is one file that needs nothing else, and says what was found."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from tocsin.loadtest.figures import (
    Distribution,
    Drain,
    Event,
    Figures,
    Findings,
    Sample,
    Second,
)
from tocsin.loadtest.objectives import Objectives
from tocsin.loadtest.report import report_of

OBJECTIVES = Objectives(peak_p99_ms_max=100, drain_seconds_max=1.0)


@pytest.fixture
def figures() -> Figures:
    late = Distribution.of([5, 20, 50])
    return Figures(
        settings={"where": "<b>here</b>", "profile": "hourly-peak"},
        findings=Findings(expected=3, dispatched=3, lost=0, early=0, unexpected=0, out_of_order=0, repeated=1),
        lateness={"all": late, "peak": late, "rest": Distribution.of([3])},
        seconds=(Second(at=0, due=3, dispatched=3, outstanding=0),),
        heat=((0,) * 60, (3, *(0,) * 59)),
        hour_ms=60_000,
        drains=(Drain(at=0, count=3, seconds=0.05, curve=((0.0, 3), (0.05, 0))),),
        samples=(Sample(at=1.0, lag=0.3, unowned=2, parts={"dispatcher 1": (0.5, 100 << 20)}),),
        events=(Event(at=0.5, what="dispatcher killed"),),
        metrics={f"tocsin_dispatch_lag_seconds{{shard_range={number}}}": 0.1 for number in range(64)},
    )


def page(figures: Figures) -> str:
    return report_of(figures, OBJECTIVES.judged(figures), title="Load test </script>")


def own_part(text: str) -> str:
    """The page without plotly's script."""
    head, _, rest = text.partition("<script>")
    return head + rest[rest.index("</script>") :]


def test_it_fetches_nothing(figures: Figures) -> None:
    own = own_part(page(figures))
    assert not re.search(r"(?:src|href)\s*=|https?:|@import|url\(", own)


def test_every_chart_there_is_data_for_has_a_place_and_its_data(figures: Figures) -> None:
    own = own_part(page(figures))
    (data,) = re.findall(r"const charts = (\{.*\});", own)
    charts = json.loads(data)
    assert list(charts) == ["throughput", "heat", "lateness", "drain", "lag", "cpu", "memory"]
    assert all(f'<div id="{name}">' in own for name in charts)
    assert "dispatcher killed" in json.dumps(charts["throughput"]["layout"])
    empty = msgspec.structs.replace(figures, samples=(), drains=(), seconds=(), heat=())
    assert "const charts = {" in page(empty)
    assert '<div id="lag">' not in page(empty)


def test_texts_of_strangers_are_shown_and_not_obeyed(figures: Figures) -> None:
    own = own_part(page(figures))
    assert "<b>here" not in own
    assert "&lt;b&gt;here" in own
    assert "Load test &lt;/script&gt;" in own


def test_it_says_at_once_whether_the_promise_was_kept(figures: Figures) -> None:
    assert "Kept: 3 of 3 dispatched, none lost, none early, none out of order; 1 repeated." in page(figures)
    broken = msgspec.structs.replace(
        figures, findings=Findings(expected=3, dispatched=2, lost=1, early=1, unexpected=0, out_of_order=0, repeated=0)
    )
    assert "Not kept: 2 of 3 dispatched, 1 lost, 1 early." in page(broken)


def test_metrics_of_many_series_are_summed_up(figures: Figures) -> None:
    own = own_part(page(figures))
    assert "tocsin_dispatch_lag_seconds (64 series)" in own
    assert "shard_range=5" not in own


def test_it_is_for_light_and_dark_and_for_narrow_screens(figures: Figures) -> None:
    own = own_part(page(figures))
    assert own.count("prefers-color-scheme: dark") == 2
    assert "max-width: 820px" in own


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, set()),
        ({"drains": (Drain(at=0, count=3, seconds=None, curve=((0.0, 3),)),)}, {"slowest drain"}),
        ({"drains": (Drain(at=0, count=3, seconds=1.5, curve=((0.0, 3),)),)}, {"slowest drain"}),
        ({"lateness": {"all": Distribution.of([1]), "peak": Distribution.of([101])}}, {"lateness p99 in peaks"}),
    ],
)
def test_an_objective_is_missed_by_what_breaks_it(
    figures: Figures, change: dict[str, object], missed: set[str]
) -> None:
    judged = OBJECTIVES.judged(msgspec.structs.replace(figures, **change))
    assert {each.name for each in judged if not each.holds} == missed
