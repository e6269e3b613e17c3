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
from tocsin.producer.audit import Audit, AuditReport, Renewal, Told
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
    rate: Annotated[int, typer.Option(metavar="N", min=1, help="Schedules a second at most.")] = 2000,
    zone: Annotated[
        str | None,
        typer.Option(help="Only schedules on this zone's clock, and move each to what its rules say now."),
    ] = None,
    owed: Annotated[
        bool,
        typer.Option(
            "--owed", help="Arm from what each range has committed, not from now: after a failover, before dispatchers."
        ),
    ] = False,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Arm what should be armed and end what should have ended; harmless where all is well.

    After an outage longer than retention, a restore, a replaced node; with --zone after an upgrade of the zone data.
    Dispatchers walk by themselves too, slowly, and at once what they owe after a long outage.
    """
    if zone is not None:
        check_zone(zone)
        if owed:
            raise typer.BadParameter("is for all schedules; leave --zone out", param_hint="--owed")
    report = asyncio.run(_walk(read_configuration(store=store), rate, zone, owed=owed))
    if output is Output.JSON:
        print_json(fields_of(report))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("tenant", "state", "schedules"):
        table.add_column(column, justify="right" if column == "schedules" else "left", overflow="fold")
    for (tenant, state), count in sorted(report.checked.items()):
        table.add_row(Text(printable(tenant)), state, f"{count:,}")
    console().print(table)
    console().print(f"checked {report.count:,}, of which {report.armed.total():,} wait for their next occurrence")
    console().print(
        f"moved {report.moved.total():,}, strays ended {report.strays.total():,}, "
        f"removed as long ended {report.removed.total():,}"
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


async def _walk(configuration: Configuration, rate: int, zone: str | None, *, owed: bool) -> AuditReport:
    report = AuditReport()
    columns = (TextColumn("audit"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[checked]:,} checked"))
    async with opened(configuration) as at:
        walk = Audit(at.store, at.levels, at.inserter, store_clock=at.store_clock, clock=at.clock, per_second=rate)
        renew = None if zone is None else _renewal(at, configuration.timeout_ms)
        with Progress(*columns, TimeElapsedColumn(), console=notes(), transient=True) as progress:
            task = progress.add_task("audit", total=SEGMENTS, checked=0)
            tell: Told = lambda seen: progress.update(task, checked=seen.count)  # noqa: E731 — one line, two uses
            committed = await _committed(at) if owed else {}
            for segment in range(SEGMENTS):
                if owed:
                    await walk.walk_owed(segment, SEGMENTS, report, committed=committed)
                else:
                    await walk.walk(segment, SEGMENTS, report, zone=zone, renew=renew, progress=tell)
                progress.update(task, advance=1, checked=report.count)
    return report


async def _committed(at: Opened) -> dict[int, int]:
    """How far each range is, ms UTC."""
    ranges = range(at.settings.shard_ranges)
    frontiers = await asyncio.gather(*map(at.store.read_frontier, ranges))
    return {shard_range: frontier.committed for shard_range, frontier in zip(ranges, frontiers, strict=True)}


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
