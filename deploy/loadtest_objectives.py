"""The objectives of a load test on the command line: options, the table, the files, and the exit code."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from tocsin.deploy.output import Output, console, print_json
from tocsin.deploy.recurrence_options import read_duration
from tocsin.loadtest.figures import Figures
from tocsin.loadtest.objectives import Judged, Objectives
from tocsin.schema.errors import SettingsError

#: An objective was missed.
EXIT_MISSED: Final = 1

LostOption = Annotated[int, typer.Option("--slo-lost", min=0, help="Occurrences that may be lost.")]
RepeatedOption = Annotated[
    int | None, typer.Option("--slo-repeated", min=0, help="Records that may repeat others.", show_default="any")
]
P99Option = Annotated[
    str | None, typer.Option("--slo-p99", metavar="DURATION", help="Lateness of 99 % at most.", show_default="any")
]
PeakP99Option = Annotated[
    str | None, typer.Option("--slo-peak-p99", metavar="DURATION", help="The same, of peaks.", show_default="any")
]
LatestOption = Annotated[
    str | None, typer.Option("--slo-max", metavar="DURATION", help="The latest of all at most.", show_default="any")
]
DrainOption = Annotated[
    str | None, typer.Option("--slo-drain", metavar="DURATION", help="Each peak is out by then.", show_default="any")
]


def objectives_of(
    *,
    lost: int,
    repeated: int | None = None,
    p99: str | None = None,
    peak_p99: str | None = None,
    latest: str | None = None,
    drain: str | None = None,
) -> Objectives:
    """What the options ask for. Raises InvalidSchedule for a duration that is none."""
    drain_ms = _at_most_ms("slo-drain", drain)
    return Objectives(
        lost_max=lost,
        repeated_max=repeated,
        p99_ms_max=_at_most_ms("slo-p99", p99),
        peak_p99_ms_max=_at_most_ms("slo-peak-p99", peak_p99),
        lateness_ms_max=_at_most_ms("slo-max", latest),
        drain_seconds_max=None if drain_ms is None else drain_ms / 1000,
    )


class Measured(NamedTuple):
    """What came of a run or a topic, and what had to."""

    figures: Figures
    #: The due of every key, ms UTC; None: not to be kept.
    expected: Mapping[str, int] | None


def conclude(measured: Measured, objectives: Objectives, *, report: Path | None, output: Output, title: str) -> None:
    """Write the report and what lies beside it, print the verdict, and end the command with its exit code.

    Raises:
        SettingsError: the report cannot be written.
    """
    figures, expected = measured
    judged = objectives.judged(figures)
    if report is not None:
        from tocsin.loadtest.report import report_of

        _write(report, report_of(figures, judged, title=title).encode())
        _write(report.with_suffix(".json"), msgspec.json.format(msgspec.json.encode(figures)))
        if expected is not None:
            lines = (msgspec.json.encode({"key": key, "due": due}) for key, due in expected.items())
            _write(report.with_suffix(".expected.jsonl"), b"\n".join(lines) + b"\n")
    if output is Output.JSON:
        _print_json(figures, judged, report)
    else:
        _print(figures, judged, report)
    if not all(each.holds for each in judged):
        raise typer.Exit(EXIT_MISSED)


def _print_json(figures: Figures, judged: tuple[Judged, ...], report: Path | None) -> None:
    lateness = {
        name: {field: value for field, value in msgspec.structs.asdict(part).items() if field != "curve"}
        for name, part in figures.lateness.items()
    }
    print_json(
        {
            "findings": msgspec.to_builtins(figures.findings),
            "lateness": lateness,
            "drains": [{"at": each.at, "count": each.count, "seconds": each.seconds} for each in figures.drains],
            "objectives": msgspec.to_builtins(judged),
            "settings": figures.settings,
            "report": None if report is None else str(report),
        }
    )


def _print(figures: Figures, judged: tuple[Judged, ...], report: Path | None) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("lateness", "count", "p50", "p90", "p99", "p99.9", "latest"):
        table.add_column(column, justify="left" if column == "lateness" else "right", header_style="dim")
    for name, part in figures.lateness.items():
        times = (part.p50_ms, part.p90_ms, part.p99_ms, part.p99_9_ms, part.max_ms)
        table.add_row(name, f"{part.count:,}", *("–" if each is None else f"{each:,} ms" for each in times))
    console().print(table)
    slo = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for each in judged:
        slo.add_row(Text("✓", "green") if each.holds else Text("✗", "red"), each.name, each.measured, each.limit)
    console().print(slo)
    for kind, keys in figures.findings.examples.items():
        console().print(Text(f"{kind}: {', '.join(keys[:5])}", "dim"))
    found = figures.findings
    console().print(f"{found.dispatched:,} of {found.expected:,} dispatched; {found.repeated:,} repeated.")
    if report is not None:
        console().print(f"Report: {report}")


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.chmod(file.name, 0o644)  # noqa: PTH101 — a name, not a Path
        Path(file.name).replace(path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written ({error.strerror}); name another --report.") from error


def _at_most_ms(option: str, text: str | None) -> int | None:
    return None if text is None else milliseconds(option, text)


def milliseconds(option: str, text: str) -> int:
    """A duration as it is typed, in ms. Raises InvalidSchedule where it is none."""
    return read_duration(option, text) // timedelta(milliseconds=1)
