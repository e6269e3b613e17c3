"""`tocsin audit`: make the levels agree with `schedules`, at a pace."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tocsin.deploy.configuration import Configuration, StoreOption, read_configuration
from tocsin.deploy.opened import opened
from tocsin.deploy.output import Output, OutputOption, console, notes, print_json
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.audit import Audit, AuditReport

#: Parts in which the store is walked, for the progress bar.
SEGMENTS = 64


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(audit)


def audit(
    *,
    rate: Annotated[int, typer.Option(min=1, help="Schedules a second at most.")] = 2000,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Arm what should be armed and end what should have ended; harmless where all is well.

    After an outage longer than retention, a restore, a replaced node, or an upgrade of the zone data.
    """
    report = asyncio.run(_walk(read_configuration(store=store), rate))
    if output is Output.JSON:
        states: Counter[str] = Counter()
        for (_, state), count in report.checked.items():
            states[state] += count
        print_json({"checked": report.count, "armed": report.armed, "ended": report.ended, "states": dict(states)})
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("tenant", "state", "schedules"):
        table.add_column(column, justify="right" if column == "schedules" else "left", overflow="fold")
    for (tenant, state), count in sorted(report.checked.items()):
        table.add_row(Text(printable(tenant)), state, f"{count:,}")
    console().print(table)
    console().print(f"checked {report.count:,}, armed again {report.armed:,}, markers repeated {report.ended:,}")


async def _walk(configuration: Configuration, rate: int) -> AuditReport:
    report = AuditReport()
    columns = (TextColumn("audit"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[checked]:,} checked"))
    async with opened(configuration) as at:
        walk = Audit(at.store, at.levels, at.inserter, store_clock=at.store_clock, clock=at.clock, per_second=rate)
        with Progress(*columns, TimeElapsedColumn(), console=notes(), transient=True) as progress:
            task = progress.add_task("audit", total=SEGMENTS, checked=0)
            for segment in range(SEGMENTS):
                await walk.walk(
                    segment, SEGMENTS, report, progress=lambda seen: progress.update(task, checked=seen.count)
                )
                progress.update(task, advance=1, checked=report.count)
    return report
