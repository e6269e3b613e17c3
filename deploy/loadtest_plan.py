"""`tocsin loadtest plan`: what to buy, each figure beside its formula."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer
from rich.table import Table

from tocsin.deploy.output import Output, OutputOption, console, print_json
from tocsin.loadtest.capacity import Costs, Demand, Line
from tocsin.loadtest.capacity import plan as plan_of

DEMAND: Final = Demand()
COSTS: Final = Costs()


def plan(
    *,
    schedules: Annotated[int, typer.Option(help="How many there are.")] = DEMAND.schedules,
    per_day: Annotated[int, typer.Option(help="Occurrences a day.")] = DEMAND.per_day,
    peak: Annotated[float, typer.Option(help="The peak minute over the mean minute.")] = DEMAND.peak,
    payload_bytes: Annotated[int, typer.Option(help="Of one occurrence.")] = DEMAND.payload_bytes,
    replicas: Annotated[int, typer.Option(help="Copies of each row.")] = DEMAND.replicas,
    retention_days: Annotated[int, typer.Option(help="How long an outage may last.")] = DEMAND.retention_days,
    changes_per_day: Annotated[int, typer.Option(help="Creates, changes, timers.")] = DEMAND.changes_per_day,
    sub_partitions: Annotated[int, typer.Option(help="Of a minute, as made by init.")] = DEMAND.sub_partitions,
    shard_ranges: Annotated[int, typer.Option(help="As made by init.")] = DEMAND.shard_ranges,
    dispatch_rate: Annotated[int, typer.Option(help="As tocsin bench dispatch measured it.")] = COSTS.dispatch_rate,
    herd_rate: Annotated[int, typer.Option(help="As tocsin bench herd measured it.")] = COSTS.herd_rate,
    output: OutputOption = Output.TABLE,
) -> None:
    """Reckon operations, disks, nodes and dispatchers from what is wanted; nothing is started or asked."""
    demand = Demand(
        schedules=schedules,
        per_day=per_day,
        peak=peak,
        payload_bytes=payload_bytes,
        replicas=replicas,
        retention_days=retention_days,
        changes_per_day=changes_per_day,
        sub_partitions=sub_partitions,
        shard_ranges=shard_ranges,
    )
    lines = plan_of(demand, msgspec.structs.replace(COSTS, dispatch_rate=dispatch_rate, herd_rate=herd_rate))
    if output is Output.JSON:
        print_json({line.name: {"value": line.value, "unit": line.unit, "formula": line.formula} for line in lines})
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("formula", style="dim", overflow="fold")
    for line in lines:
        table.add_row(line.name, told(line), line.formula)
    console().print(table)


def told(line: Line) -> str:
    """The figure as people read it, with its unit."""
    value = f"{line.value:,.0f}" if line.value >= 100 else f"{line.value:,.3g}"
    return f"{value} {line.unit}".rstrip() if line.unit != "/s" else f"{value}/s"
