"""`tocsin next`: when a rule will run, on the zone's clock and in UTC, with what clock changes do to it.

It needs no store. People decide by this page, so whatever is unusual stands in the row where it happens: a local time
that is skipped or shifted, one that comes twice, a day clamped to the end of its month.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tocsin.deploy.output import Output, OutputOption
from tocsin.deploy.recurrence_options import Written, read_instant, read_zone
from tocsin.deploy.rule_options import (
    DailyOption,
    DayMatchName,
    DayMatchOption,
    DialectName,
    DialectOption,
    EveryOption,
    GapOption,
    MonthlyOption,
    OverlapOption,
    WeeklyOption,
    YearlyOption,
    ZoneOption,
)
from tocsin.schema import instants, zones
from tocsin.schema.forecast import Forecast, forecast
from tocsin.schema.occurrence_rule import LocalRule
from tocsin.schema.recurrence import Cron, Gap, Overlap

if TYPE_CHECKING:
    from tocsin.schema.recurrence import AnyRecurrence

#: More rows are a listing, not a page to decide by.
COUNT_MAX = 10_000

_STYLES = {"": "", "skipped": "yellow", "shifted": "cyan", "repeated": "magenta", "clamped": "blue"}


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(name="next")(next_command)


def next_command(
    expression: Annotated[str | None, typer.Argument(metavar="EXPR", help='A cron expression: "30 2 * * *".')] = None,
    *,
    every: EveryOption = None,
    daily: DailyOption = None,
    weekly: WeeklyOption = None,
    monthly: MonthlyOption = None,
    yearly: YearlyOption = None,
    tz: ZoneOption = "UTC",
    start: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="An instant with its offset; now if absent.")
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=COUNT_MAX, help="How many occurrences.")] = 5,
    gap: GapOption = Gap.SKIP,
    overlap: OverlapOption = Overlap.FIRST,
    dialect: DialectOption = DialectName.UNIX,
    day_match: DayMatchOption = DayMatchName.EITHER,
    schedule_id: Annotated[str, typer.Option(metavar="ID", help="The id that H is hashed from.")] = "example",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show when a rule will run, in its zone and in UTC.

    Nothing is written, and no store is needed.
    """
    written = Written(expression, every, daily, weekly, monthly, yearly, None, tz, gap, overlap, dialect, day_match)
    rule = written.recurrence()
    read_zone(tz)
    from_ms = instants.ceil_ms(read_instant("from", start) if start else datetime.now(UTC), field="from")
    rule = rule.resolve(schedule_id, from_ms)
    rows = list(forecast(rule, tz, from_ms, count))
    if output is Output.JSON:
        for row in rows:
            typer.echo(json.dumps(_as_json(row)))
    else:
        asked = expression or f"{written.given[0]} {getattr(written, written.given[0])}"
        console = Console(highlight=False)
        console.print(_title(asked, rule))
        console.print(_page(tz, rows))


def _as_json(row: Forecast) -> dict[str, str | None]:
    at = None if row.at_ms is None else _utc(row.at_ms)
    return {"local": row.local.isoformat(), "utc": at, "change": row.change or None, "note": row.note or None}


def _page(tz: str, rows: list[Forecast]) -> Table:
    precise = any(row.local.second or row.local.microsecond for row in rows)
    table = Table(box=None, pad_edge=False)
    in_utc = tz == "UTC"
    for heading in ("UTC", "") if in_utc else (tz, "UTC", ""):
        table.add_column(heading, no_wrap=bool(heading))
    for row in rows:
        style = _STYLES[row.change]
        utc = "—" if row.at_ms is None else _shown(instants.to_datetime(row.at_ms), precise=precise) + "Z"
        local = f"{row.local:%a} {_shown(row.local, precise=precise)} {'' if in_utc else row.local.tzname() or ''}"
        table.add_row(Text(local, style=style), *([] if in_utc else [utc]), Text(row.note, style=style))
    return table


def _title(asked: str, rule: AnyRecurrence) -> Text:
    what = f"{asked} → {rule.expression}" if isinstance(rule, Cron) and rule.expression != asked else asked
    how = f"gap={rule.gap} overlap={rule.overlap}" if isinstance(rule, LocalRule) else "elapsed time"
    return Text.assemble((what, "bold"), f"   {how}   tzdata {zones.zone_data_version()}")


def _shown(local: datetime, *, precise: bool) -> str:
    spec = "milliseconds" if local.microsecond else "seconds" if precise else "minutes"
    return local.replace(tzinfo=None).isoformat(" ", spec)


def _utc(at_ms: int) -> str:
    return instants.to_datetime(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
