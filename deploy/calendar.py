"""`tocsin calendar set` and `show`: dates on which schedules that name the calendar do not run."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.output import Output, OutputOption, console, print_json
from tocsin.deploy.reading import why
from tocsin.deploy.recurrence_options import Unreadable
from tocsin.deploy.scheduling import with_scheduler
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.calendars import Calendar
from tocsin.schema.errors import InvalidSchedule

#: Dates of one line of the table.
DATES_IN_A_LINE = 6

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The calendar's.")]


def register(app: typer.Typer) -> None:
    """Add the group to an application."""
    group = typer.Typer(no_args_is_help=True, help="Dates on which schedules that name them do not run.")
    group.command(name="set")(set_calendar)
    group.command()(show)
    app.add_typer(group, name="calendar")


def set_calendar(
    name: NameArgument,
    dates: Annotated[list[str] | None, typer.Argument(metavar="DATE...", help="2026-12-25; all there are.")] = None,
    *,
    file: Annotated[Path | None, typer.Option("-f", "--file", metavar="FILE", help="One date a line.")] = None,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a calendar, or replace its dates; again is harmless. Schedules hear of it within a minute."""
    wanted = [read_date(text) for text in [*(dates or ()), *_lines(file)]]
    _show(with_scheduler(store, lambda scheduler: scheduler.set_calendar(name, wanted)), output)


def show(name: NameArgument, *, store: StoreOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show the dates of a calendar."""
    _show(with_scheduler(store, lambda scheduler: scheduler.get_calendar(name)), output)


def read_date(text: str) -> date:
    """A date such as 2026-12-25. Raises Unreadable."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise Unreadable("dates", text, f"{text!r} is no date; write 2026-12-25") from error


def _lines(file: Path | None) -> list[str]:
    """What stands on the lines of a file, comments after # aside."""
    if file is None:
        return []
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InvalidSchedule("file", str(file), f"{file} cannot be read: {why(error)}") from error
    return [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]


def _show(calendar: Calendar, output: Output) -> None:
    dates = [day.isoformat() for day in sorted(calendar.dates)]
    if output is Output.JSON:
        print_json({"name": calendar.name, "version": calendar.version, "dates": dates})
        return
    count = f"  {len(dates)} date{'' if len(dates) == 1 else 's'}, version {calendar.version}"
    console().print(Text.assemble((printable(calendar.name), "bold"), count))
    for start in range(0, len(dates), DATES_IN_A_LINE):
        console().print("  ".join(dates[start : start + DATES_IN_A_LINE]))
