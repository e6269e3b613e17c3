"""The options that say when, as `create` and `next` take them; `recurrence_options` reads what was typed."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from tocsin.schema.recurrence import Gap, Overlap


class DialectName(enum.StrEnum):
    """Which cron an expression is written for."""

    UNIX = "unix"
    SECONDS_FIRST = "seconds-first"
    QUARTZ = "quartz"


class DayMatchName(enum.StrEnum):
    """How day of month and weekday join where both are restricted."""

    EITHER = "either"
    BOTH = "both"


_PANEL = "When"

AtOption = Annotated[
    str | None,
    typer.Option(metavar="INSTANT", help="Once: 2026-12-24T18:00+01:00, or +10m from now.", rich_help_panel=_PANEL),
]
EveryOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Elapsed time: 5s, 90m, 1h30m.", rich_help_panel=_PANEL)
]
DailyOption = Annotated[str | None, typer.Option(metavar="RULE", help="A time: 09:00.", rich_help_panel=_PANEL)]
WeeklyOption = Annotated[
    str | None, typer.Option(metavar="RULE", help='Weekdays and a time: "mon,fri 09:00".', rich_help_panel=_PANEL)
]
MonthlyOption = Annotated[
    str | None,
    typer.Option(metavar="RULE", help='A day and a time: "31 09:00"; -1 is the last day.', rich_help_panel=_PANEL),
]
YearlyOption = Annotated[
    str | None, typer.Option(metavar="RULE", help='A date and a time: "02-29 09:00".', rich_help_panel=_PANEL)
]
CronOption = Annotated[
    str | None, typer.Option(metavar="EXPR", help='A cron expression: "0 9 * * 1-5".', rich_help_panel=_PANEL)
]
ZoneOption = Annotated[
    str, typer.Option("--tz", metavar="ZONE", help="The zone whose clock the rule follows.", rich_help_panel=_PANEL)
]
GapOption = Annotated[
    Gap,
    typer.Option(metavar="HOW", help="A local time that does not exist: skip or shift.", rich_help_panel=_PANEL),
]
OverlapOption = Annotated[
    Overlap,
    typer.Option(metavar="HOW", help="A local time that comes twice: first, last or both.", rich_help_panel=_PANEL),
]
DialectOption = Annotated[
    DialectName,
    typer.Option(metavar="KIND", help="The cron: unix, seconds-first or quartz.", rich_help_panel=_PANEL),
]
DayMatchOption = Annotated[
    DayMatchName,
    typer.Option(metavar="HOW", help="Day of month and weekday join by: either or both.", rich_help_panel=_PANEL),
]
