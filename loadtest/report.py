"""The report of a load test: one HTML file without anything from the network, for light and dark, wide and narrow.

plotly's script is in the file, so it is some megabytes; it can be mailed, kept for years and opened where there is no
network. What it is drawn from lies beside it as JSON.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from tocsin.loadtest.charts import Chart, charts_of
from tocsin.loadtest.figures import Distribution, Figures
from tocsin.loadtest.objectives import Judged

#: Metrics of one name that are shown one by one; of more only their sum.
SERIES_MAX = 8


def report_of(figures: Figures, judged: Sequence[Judged], *, title: str) -> str:
    """The page."""
    kept = all(each.holds for each in judged)
    charts = charts_of(figures)
    page = Template(files("tocsin.loadtest").joinpath("report.html").read_text("utf-8"))
    return page.substitute(
        title=html.escape(title),
        state="kept" if kept else "broken",
        verdict=html.escape(_verdict(figures, kept=kept)),
        tiles="".join(_tiles(figures)),
        objectives=_table(
            ("objective", "limit", "measured", ""),
            [(each.name, each.limit, each.measured, "✓" if each.holds else "✗") for each in judged],
        ),
        charts="".join(_section(chart) for chart in charts),
        distribution=_table(("lateness", "count", "p50", "p90", "p99", "p99.9", "latest"), _distributions(figures)),
        examples="".join(_examples(figures)),
        settings=_table(("setting", "value"), list(figures.settings.items())),
        metrics=_metrics(figures),
        plotly=get_plotlyjs(),
        data=",".join(f'"{chart.name}":{chart.figure.to_json()}' for chart in charts).replace("</", "<\\/"),
    )


def _verdict(figures: Figures, *, kept: bool) -> str:
    found = figures.findings
    wrong = [
        f"{count:,} {name}"
        for name, count in (
            ("lost", found.lost),
            ("early", found.early),
            ("unexpected", found.unexpected),
            ("out of order", found.out_of_order),
        )
        if count
    ]
    told = ", ".join(wrong) or "none lost, none early, none out of order"
    repeats = f"; {found.repeated:,} repeated" if found.repeated else ""
    return f"{'Kept' if kept else 'Not kept'}: {found.dispatched:,} of {found.expected:,} dispatched, {told}{repeats}."


def _tiles(figures: Figures) -> Iterable[str]:
    every = figures.lateness["all"]
    peak, rest = figures.lateness.get("peak"), figures.lateness.get("rest")
    slowest = max((drain for drain in figures.drains), key=lambda drain: drain.seconds or 1e9, default=None)
    yield _tile("p99 in peaks" if peak else "p99", _ms((peak or every).p99_ms), "peak" if peak else "")
    yield _tile("p99 of the rest", _ms((rest or every).p99_ms))
    yield _tile("latest of all", _ms(every.max_ms))
    if slowest is not None:
        told = "never" if slowest.seconds is None else f"{slowest.seconds:.2f} s"
        yield _tile(f"to drain a herd of {slowest.count:,}", told, "peak")
    busiest = max((second.dispatched for second in figures.seconds), default=0)
    yield _tile("dispatched in the busiest second", f"{busiest:,}")


def _tile(name: str, value: str, kind: str = "") -> str:
    return f'<div class="tile {kind}"><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>'


def _distributions(figures: Figures) -> list[tuple[str, ...]]:
    def row(name: str, part: Distribution) -> tuple[str, ...]:
        times = (part.p50_ms, part.p90_ms, part.p99_ms, part.p99_9_ms, part.max_ms)
        return (name, f"{part.count:,}", *map(_ms, times))

    return [row(name, part) for name, part in figures.lateness.items()]


def _examples(figures: Figures) -> Iterable[str]:
    for kind, keys in figures.findings.examples.items():
        told = "\n".join(map(html.escape, keys))
        yield f"<details><summary>Some that are {html.escape(kind)}</summary><pre>{told}</pre></details>"


def _metrics(figures: Figures) -> str:
    names: dict[str, list[tuple[str, float]]] = {}
    for series, value in figures.metrics.items():
        names.setdefault(series.partition("{")[0], []).append((series, value))
    rows = []
    for name, each in sorted(names.items()):
        shown = each if len(each) <= SERIES_MAX else [(f"{name} ({len(each)} series)", sum(value for _, value in each))]
        rows += [(label, f"{value:,.6g}") for label, value in shown]
    if not rows:
        return ""
    table = _table(("metric, over all dispatchers", "at the end"), rows)
    return f"<details><summary>Metrics</summary>{table}</details>"


def _section(chart: Chart) -> str:
    wide = " wide" if chart.is_wide else ""
    title, question = html.escape(chart.title), html.escape(chart.question)
    return f'<section class="chart{wide}"><h2>{title}</h2><p>{question}</p><div id="{chart.name}"></div></section>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f'<div class="scroll"><table><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table></div>'


def _ms(duration_ms: int | None) -> str:
    if duration_ms is None:
        return "–"
    return f"{duration_ms} ms" if duration_ms < 10_000 else f"{duration_ms / 1000:.1f} s"
