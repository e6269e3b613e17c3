"""The charts of a load test's report, by plotly; each answers one question of whoever is on call.

Colours carry meaning and are the same everywhere: what was due grey, what went out blue, peaks orange, the rest blue.
What a theme decides (text, grid, ground) is left to the page, which sets it for light and for dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import plotly.graph_objects as go

from tocsin.loadtest.figures import HEAT_BOUNDS_MS, HEAT_COLUMNS, Figures, Sample

PEAK, REST, DUE, BAD = "#e8833a", "#4c8dd6", "#9aa0a6", "#d64550"
#: For parts, told apart by colour-blind readers too.
PARTS: Final = ("#4c8dd6", "#e8833a", "#3aa17e", "#b05cc4", "#c8a227", "#d64550", "#6b7a8f", "#8c564b")
HEIGHT: Final = 320
#: Samples are shown from so long before the window.
BEFORE_SECONDS: Final = 5


class Chart(NamedTuple):
    """One chart, and the question it answers."""

    name: str
    title: str
    question: str
    figure: go.Figure
    is_wide: bool = False


def charts_of(figures: Figures) -> list[Chart]:
    """Every chart there is data for, the most telling first."""
    makers: Sequence[Callable[[Figures], Chart | None]] = (_throughput, _heat, _lateness, _drain, _lag, _cpu, _memory)
    return [chart for make in makers if (chart := make(figures)) is not None]


def _throughput(figures: Figures) -> Chart | None:
    if not figures.seconds:
        return None
    at = [second.at for second in figures.seconds]
    figure = _figure("seconds from the start", "occurrences a second")
    due, out = [s.due for s in figures.seconds], [s.dispatched for s in figures.seconds]
    figure.add_bar(x=at, y=due, name="due", opacity=0.6, marker={"color": DUE, "line": {"width": 0}})
    figure.add_scatter(x=at, y=out, name="dispatched", mode="lines", line={"color": REST, "width": 2, "shape": "hvh"})
    waiting = [second.outstanding for second in figures.seconds]
    figure.add_scatter(
        x=at, y=waiting, name="outstanding", mode="lines", line={"color": BAD, "width": 1.5, "dash": "dot"}
    )
    _mark_events(figure, figures)
    return Chart("throughput", "Due and dispatched", "Is each herd out in the second it is due?", figure, is_wide=True)


def _heat(figures: Figures) -> Chart | None:
    rows = figures.heat
    if not any(map(any, rows)):
        return None
    last = max(number for number, row in enumerate(rows) if any(row))
    shown = rows[: last + 1]
    labels = [_label(bound) for bound in HEAT_BOUNDS_MS] + ["slower"]
    column_seconds = figures.hour_ms / 1000 / HEAT_COLUMNS
    figure = _figure("seconds into the hour", "lateness up to", has_legend=False)
    # Few late ones matter more than many punctual ones: the colour follows the logarithm.
    figure.add_heatmap(
        x=[column * column_seconds for column in range(HEAT_COLUMNS)],
        y=labels[: last + 1],
        z=[[count and _log(count) for count in row] for row in shown],
        customdata=shown,
        hovertemplate="%{x} s into the hour, up to %{y}: %{customdata} occurrences<extra></extra>",
        colorscale=[[0, "rgba(76,141,214,0)"], [0.01, "rgba(76,141,214,0.35)"], [0.5, "#e8833a"], [1, "#a3262e"]],
        showscale=False,
        xgap=1,
        ygap=1,
    )
    return Chart(
        "heat", "Lateness over the hour", "When in the hour are occurrences late, and how many?", figure, is_wide=True
    )


def _lateness(figures: Figures) -> Chart | None:
    figure = _figure("lateness, ms", "share not later")
    for name, colour in (("peak", PEAK), ("rest", REST)):
        part = figures.lateness.get(name)
        if part is not None and part.curve:
            late = [max(1, lateness_ms) for lateness_ms, _ in part.curve]
            share = [each for _, each in part.curve]
            label = "peaks" if name == "peak" else "all the rest"
            figure.add_scatter(x=late, y=share, name=label, mode="lines", line={"color": colour, "width": 2})
    if not figure.data:
        return None
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.02])
    return Chart("lateness", "Peaks against the rest", "How much later is a peak than an ordinary minute?", figure)


def _drain(figures: Figures) -> Chart | None:
    if not figures.drains:
        return None
    figure = _figure("seconds since the peak began", "not dispatched yet")
    for drain in figures.drains:
        at, left = zip(*drain.curve, strict=True)
        name = f"at {drain.at:g} s"
        figure.add_scatter(x=at, y=left, name=name, mode="lines", line={"width": 2, "shape": "hv"})
    figure.update_layout(colorway=list(PARTS))
    return Chart("drain", "How each peak drains", "How long until the last of a herd is out?", figure)


def _lag(figures: Figures) -> Chart | None:
    looked = [sample for sample in _shown_samples(figures) if sample.lag is not None]
    if not looked:
        return None
    has_unowned = any(sample.unowned for sample in looked)
    figure = _figure("seconds from the start", "lag, s", has_legend=has_unowned)
    at = [sample.at for sample in looked]
    figure.add_scatter(
        x=at, y=[sample.lag for sample in looked], name="lag, s", mode="lines", line={"color": REST, "width": 2}
    )
    if has_unowned:
        unowned = [sample.unowned for sample in looked]
        figure.add_scatter(
            x=at,
            y=unowned,
            name="ranges without an owner",
            mode="lines",
            line={"color": BAD, "width": 1.5, "dash": "dot"},
        )
    _mark_events(figure, figures)
    return Chart("lag", "Lag", "Did any shard range fall behind, and for how long?", figure)


def _cpu(figures: Figures) -> Chart | None:
    return _parts(figures, "cpu", "Processors", "share of one processor", lambda sample, name: sample.parts[name][0])


def _memory(figures: Figures) -> Chart | None:
    return _parts(figures, "memory", "Memory", "MiB", lambda sample, name: sample.parts[name][1] / 2**20)


def _parts(figures: Figures, name: str, title: str, unit: str, value: Callable[[Sample, str], float]) -> Chart | None:
    samples = _shown_samples(figures)
    names = list(dict.fromkeys(part for sample in samples for part in sample.parts))
    if not names:
        return None
    figure = _figure("seconds from the start", unit)
    for number, part in enumerate(names):
        there = [sample for sample in samples if part in sample.parts]
        line = {"color": PARTS[number % len(PARTS)], "width": 1.5}
        at = [sample.at for sample in there]
        figure.add_scatter(x=at, y=[value(sample, part) for sample in there], name=part, mode="lines", line=line)
    if name == "cpu":
        figure.update_yaxes(tickformat=".0%")
    _mark_events(figure, figures)
    return Chart(name, title, "Which part is at its limit?" if name == "cpu" else "Is memory bounded?", figure)


def _figure(x: str, y: str, *, has_legend: bool = True) -> go.Figure:
    layout = go.Layout(
        height=HEIGHT,
        margin={"l": 60, "r": 16, "t": 34 if has_legend else 10, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        hovermode="x unified",
        xaxis={"title": x, "zeroline": False},
        yaxis={"title": {"text": y, "standoff": 14}, "zeroline": False, "rangemode": "tozero"},
        bargap=0,
    )
    return go.Figure(layout=layout, layout_template=None)


def _shown_samples(figures: Figures) -> list[Sample]:
    """From a little before the window on; before it, schedules were created."""
    return [sample for sample in figures.samples if sample.at >= -BEFORE_SECONDS]


def _mark_events(figure: go.Figure, figures: Figures) -> None:
    for event in figures.events:
        figure.add_vline(
            x=event.at,
            line={"color": BAD, "width": 1, "dash": "dash"},
            annotation={"text": event.what, "textangle": 0, "font": {"color": BAD, "size": 11}},
            annotation_position="top right",
        )


def _label(bound_ms: int) -> str:
    return f"{bound_ms} ms" if bound_ms < 1000 else f"{bound_ms // 1000} s"


def _log(count: int) -> float:
    return 0.3 + (count.bit_length() - 1) + (count / (1 << (count.bit_length() - 1)) - 1)
