"""`tocsin occurrences`: what became of a schedule's occurrences, and what is to come of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from tocsin.deploy.change import IdArgument
from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.create import read_moment
from tocsin.deploy.output import Output, OutputOption, console, notes, print_json, utc
from tocsin.deploy.scheduling import with_scheduler
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.occurrences import Fate, OccurrenceStatus
from tocsin.producer.scheduler import AsyncScheduler

#: Rows of one part of a long table.
ROWS_AT_ONCE = 100
_STYLES: Final = {
    Fate.UPCOMING: "",
    Fate.ARMED: "cyan",
    Fate.DISPATCHED: "green",
    Fate.SKIPPED: "yellow",
    Fate.CANCELLED: "dim",
    Fate.FAILED: "red",
    Fate.STRANDED: "bold red",
    Fate.PASSED: "dim",
}


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(occurrences)


def occurrences(
    schedule_id: IdArgument,
    *,
    since: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="-2d ago, or an instant.", show_default="an hour ago")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Exclusive; +1h from now.", show_default="the next one")
    ] = None,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what became of a schedule's occurrences and what is to come, as far as what is stored tells.

    dispatched: Kafka has it. armed: it waits, or is on its way. stranded: tocsin audit arms its schedule again. passed:
    its turn is over, and nothing stored tells what became of it.
    """
    now = datetime.now(UTC)
    start = None if since is None else read_moment("since", since, now)
    end = None if until is None else read_moment("until", until, now)
    count = with_scheduler(store, lambda scheduler: _show(scheduler, schedule_id, start, end, output))
    if output is Output.TABLE and not count:
        notes().print(Text("no occurrence lies in that time", style="dim"))


async def _show(
    scheduler: AsyncScheduler, schedule_id: str, start: datetime | None, end: datetime | None, output: Output
) -> int:
    """Print them as they come; how many there were."""
    count = 0
    rows: list[OccurrenceStatus] = []
    async for status in scheduler.occurrences(schedule_id, since=start, until=end):
        count += 1
        if output is Output.JSON:
            print_json(_fields(status))
            continue
        rows.append(status)
        if len(rows) == ROWS_AT_ONCE:
            _print_rows(rows, headed=count == len(rows))
            rows.clear()
    if rows:
        _print_rows(rows, headed=count == len(rows))
    return count


def _fields(status: OccurrenceStatus) -> dict[str, object]:
    return {
        "key": status.key,
        "scheduled_for": utc(status.scheduled_for),
        "due": utc(status.due),
        "version": status.version,
        "fate": status.fate.value,
        "reason": status.reason or None,
    }


def _print_rows(rows: list[OccurrenceStatus], *, headed: bool) -> None:
    table = Table(box=None, show_header=headed, pad_edge=False, expand=True, header_style="dim")
    table.add_column("scheduled for", width=24)
    table.add_column("fate", width=10)
    table.add_column("", ratio=1, overflow="fold")
    for status in rows:
        _, _, request = status.key.rpartition("@")[2].partition("!")
        late = f"due {utc(status.due)}" if status.due != status.scheduled_for else ""
        said = [status.reason, late, f"request {request}" if request else ""]
        table.add_row(
            utc(status.scheduled_for),
            Text(status.fate.value, _STYLES[status.fate]),
            Text(printable("; ".join(part for part in said if part))),
        )
    console().print(table)
