"""`tocsin import-crontab`: the jobs of a crontab as schedules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.create_many import Item, Tally, create_all
from tocsin.deploy.crontab import Job, Options, read_crontab
from tocsin.deploy.output import Output, OutputOption, console, print_json
from tocsin.deploy.reading import why
from tocsin.deploy.scheduling import with_scheduler
from tocsin.dispatcher.publisher_lines import printable
from tocsin.schema.errors import InvalidSchedule


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(name="import-crontab")(import_crontab)


def import_crontab(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A crontab, or - for standard input.")],
    *,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Where all its jobs go.")],
    tz: Annotated[str, typer.Option("--tz", metavar="ZONE", help="The zone, until CRON_TZ or TZ says.")] = "UTC",
    system: Annotated[bool, typer.Option("--system", help="Each line names a user, as in /etc/crontab.")] = False,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="What the ids begin with.")] = "cron-",
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Whose they are.")] = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the jobs, write nothing.")] = False,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a schedule for each job of a crontab; again is harmless, since the ids come of the lines.

    A record's payload is JSON with the command, for a consumer that runs it. Nothing is written if a line is refused.
    """
    options = Options(topic, tz, system, prefix, tenant)
    jobs = list(read_crontab(_text(file).splitlines(), options))
    if dry_run:
        _show(jobs, output)
        return
    tally = Tally(output)
    items = [Item(f"line {job.line}", job.schedule) for job in jobs]
    with_scheduler(store, lambda scheduler: create_all(scheduler, items, tally, len(items)))
    tally.finish()


def _text(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidSchedule("file", file, f"{file} cannot be read: {why(error)}") from error
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidSchedule("file", file, f"{file} is not UTF-8: {error}") from error


def _show(jobs: list[Job], output: Output) -> None:
    if output is Output.JSON:
        for job in jobs:
            shown = {"line": job.line, "id": job.schedule.schedule_id, "cron": job.expression, "command": job.command}
            print_json(shown | {"tz": job.schedule.recurrence.zone_name})
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("line", justify="right")
    for heading in ("id", "cron", "zone", "command"):
        table.add_column(heading, overflow="fold")
    for job in jobs:
        texts = (str(job.schedule.schedule_id), job.expression, job.schedule.recurrence.zone_name, job.command)
        table.add_row(str(job.line), *(Text(printable(text)) for text in texts))
    console().print(table)
