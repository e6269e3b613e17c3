"""`tocsin list` and `tocsin upcoming`: which schedules there are, and when one is due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.output import Output, OutputOption, console, notes, print_json, span, utc
from tocsin.deploy.scheduling import with_scheduler
from tocsin.deploy.show import STYLES, in_both, rule_text, schedule_fields
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.inquiries import UPCOMING_MAX
from tocsin.producer.results import Schedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.recurrence import AnyRecurrence, Cron, Every, Once
from tocsin.schema.schedules import State

#: Rows printed at a time: a listing of any length takes no more memory than these.
ROWS_AT_ONCE = 100
#: From this width on, tenant and tags are shown too.
WIDE_COLUMNS = 120


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command(name="list")(list_schedules)
    app.command()(upcoming)


def list_schedules(
    *,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Whose.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="One of their tags.")] = None,
    state: Annotated[
        State | None, typer.Option(metavar="STATE", help="active, paused or cancelled.", case_sensitive=False)
    ] = None,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Where their occurrences go.")] = None,
    failing: Annotated[
        bool, typer.Option("--failing", help="Only with a dead letter of today, or one waiting for another try.")
    ] = False,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many.")] = None,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List schedules that fit all that is given, as they are read; Ctrl-C ends it."""
    wanted = {"tenant": tenant, "tag": tag, "state": state, "topic": topic, "failing": failing}
    count = with_scheduler(store, lambda scheduler: _list(scheduler, wanted, limit, output))
    if output is Output.TABLE:
        notes().print(Text(f"{count} schedule{'' if count == 1 else 's'}", style="dim"))


async def _list(scheduler: AsyncScheduler, wanted: dict[str, Any], limit: int | None, output: Output) -> int:
    """Print as they come; how many there were."""
    count = 0
    rows: list[Schedule] = []
    async for schedule in scheduler.list(**wanted):
        count += 1
        if output is Output.JSON:
            print_json(schedule_fields(schedule))
        else:
            rows.append(schedule)
            if len(rows) == ROWS_AT_ONCE:
                _print_rows(rows, headed=count == len(rows))
                rows.clear()
        if count == limit:
            break
    if rows:
        _print_rows(rows, headed=count == len(rows))
    return count


def _print_rows(schedules: Sequence[Schedule], *, headed: bool) -> None:
    """Rows under one heading: every part of a listing has columns of the same width."""
    screen = console()
    wide = screen.width >= WIDE_COLUMNS
    table = Table(box=None, show_header=headed, pad_edge=False, expand=True, header_style="dim")
    table.add_column("id", ratio=3, overflow="fold")
    table.add_column("state", width=9)
    table.add_column("next", width=20)
    table.add_column("rule", ratio=3, overflow="fold")
    table.add_column("topic", ratio=2, overflow="fold")
    if wide:
        table.add_column("tenant", ratio=2, overflow="fold")
        table.add_column("tags", ratio=2, overflow="fold")
    for each in schedules:
        following = "—" if each.next_at is None else _to_the_second(each.next_at)
        texts = [_in_short(each.recurrence), each.topic]
        texts += [each.tenant, " ".join(sorted(each.tags))] if wide else []
        table.add_row(
            Text(printable(each.schedule_id), "bold"),
            Text(each.state.value, STYLES[each.state]),
            following,
            *(Text(printable(text)) for text in texts),
        )
    screen.print(table)


def _in_short(rule: AnyRecurrence) -> str:
    """A rule as far as a line of a listing needs it; `get` shows all of it."""
    if isinstance(rule, Once):
        return "once"
    if isinstance(rule, Every):
        return f"every {span(rule.period)}"
    if isinstance(rule, Cron):
        return rule.expression if rule.tz == "UTC" else f"{rule.expression} {rule.tz}"
    return rule_text(rule)


def _to_the_second(instant: datetime) -> str:
    return str(utc(instant)).partition(".")[0] + "Z"


def upcoming(
    schedule_id: Annotated[str, typer.Argument(metavar="ID", help="Whose.")],
    *,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=UPCOMING_MAX, help="How many.")] = 10,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show when a schedule is due next: jitter included, excluded dates passed over."""
    schedule, times = with_scheduler(store, lambda scheduler: _upcoming(scheduler, schedule_id, count))
    if output is Output.JSON:
        for at in times:
            print_json({"due": utc(at)})
        return
    if not times:
        notes().print(Text(f"{printable(schedule_id)} is {schedule.state.value}: nothing is due", style="dim"))
    for at in times:
        console().print(in_both(at, schedule.recurrence.zone_name))


async def _upcoming(scheduler: AsyncScheduler, schedule_id: str, count: int) -> tuple[Schedule, list[datetime]]:
    return await scheduler.get(schedule_id), await scheduler.upcoming(schedule_id, count)
