"""`tocsin audit`: make what waits agree with the schedules."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tocsin.deploy.configuration import Configuration, StoreOption, read_configuration
from tocsin.deploy.opened import Opened, opened
from tocsin.deploy.output import Output, OutputOption, console, notes, print_json
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.audit import Audit, AuditReport, Renewal
from tocsin.producer.change import Changes
from tocsin.producer.wishes import Renew
from tocsin.schema.fresh_ids import FreshIds
from tocsin.schema.schedules import ScheduleRow
from tocsin.schema.zones import check_zone

#: Pieces in which the store is walked, for the progress bar.
SEGMENTS = 64


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(audit)


def audit(
    *,
    rate: Annotated[int, typer.Option(min=1, help="Schedules a second at most.")] = 2000,
    zone: Annotated[
        str | None,
        typer.Option(help="Only schedules on this zone's clock, and move each to what its rules say now."),
    ] = None,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Arm what should be armed and end what should have ended; harmless where all is well.

    After an outage longer than retention, a restore, a replaced node; with --zone after an upgrade of the zone data.
    Dispatchers walk by themselves too, slowly, and at once what they owe after a long outage.
    """
    if zone is not None:
        check_zone(zone)
    report = asyncio.run(_walk(read_configuration(store=store), rate, zone))
    if output is Output.JSON:
        print_json(fields_of(report))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("tenant", "state", "schedules"):
        table.add_column(column, justify="right" if column == "schedules" else "left", overflow="fold")
    for (tenant, state), count in sorted(report.checked.items()):
        table.add_row(Text(printable(tenant)), state, f"{count:,}")
    console().print(table)
    console().print(
        f"checked {report.count:,}, armed again {report.armed.total():,}, moved {report.moved.total():,}, "
        f"strays ended {report.strays.total():,}, removed as long ended {report.removed.total():,}"
        + (f", left alone as unreadable {report.unreadable.total():,}" if report.unreadable else "")
    )


def fields_of(report: AuditReport) -> dict[str, Any]:
    """The report as one JSON object: in all, by state, and by tenant."""
    states: Counter[str] = Counter()
    tenants: dict[str, dict[str, int]] = {}
    for (tenant, state), count in sorted(report.checked.items()):
        states[state] += count
        tenants.setdefault(tenant, {})[state] = count
    counts = {name: getattr(report, name) for name in ("armed", "moved", "strays", "removed", "unreadable")}
    for name, by_tenant in counts.items():
        for tenant, count in by_tenant.items():
            tenants.setdefault(tenant, {})[name] = count
    totals = {name: by_tenant.total() for name, by_tenant in counts.items()}
    return {"checked": report.count, **totals, "states": dict(states), "tenants": tenants}


async def _walk(configuration: Configuration, rate: int, zone: str | None) -> AuditReport:
    report = AuditReport()
    columns = (TextColumn("audit"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[checked]:,} checked"))
    async with opened(configuration) as at:
        walk = Audit(at.store, at.levels, at.inserter, store_clock=at.store_clock, clock=at.clock, per_second=rate)
        renew = None if zone is None else _renewal(at, configuration.timeout_ms)
        with Progress(*columns, TimeElapsedColumn(), console=notes(), transient=True) as progress:
            task = progress.add_task("audit", total=SEGMENTS, checked=0)
            for segment in range(SEGMENTS):
                await walk.walk(
                    segment,
                    SEGMENTS,
                    report,
                    zone=zone,
                    renew=renew,
                    progress=lambda seen: progress.update(task, checked=seen.count),
                )
                progress.update(task, advance=1, checked=report.count)
    return report


def _renewal(at: Opened, timeout_ms: int) -> Renewal:
    """Gives schedules a new version by the procedure of every change."""
    changes = Changes(
        at.store, at.levels, at.inserter, store_clock=at.store_clock, clock=at.clock, new_token=FreshIds()
    )
    asked_at = at.store_clock.now_ms()

    async def renew(row: ScheduleRow) -> None:
        wish = Renew(row.schedule_id, asked_at)
        await changes.make(row.schedule_id, wish, deadline=at.clock.monotonic_ms() + timeout_ms)

    return renew
