"""`tocsin pause`, `resume` and `cancel`: a change, and what it means for occurrences that were pending."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.create import read_moment
from tocsin.deploy.output import Output, OutputOption, console, print_json
from tocsin.deploy.scheduling import with_scheduler
from tocsin.deploy.show import in_both, schedule_fields
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.results import Change, ChangeOutcome
from tocsin.producer.scheduler import AsyncScheduler

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Whose.")]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    for command in (pause, resume, cancel):
        app.command()(command)


def pause(
    schedule_id: IdArgument,
    *,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop a schedule until it is resumed; everything pending is dropped."""
    _change(store, output, lambda scheduler: scheduler.pause(schedule_id, note=note))


def resume(
    schedule_id: IdArgument,
    *,
    resume_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="INSTANT",
            help="What lies between it and now was missed; --catch-up decides.",
            show_default="now",
        ),
    ] = None,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Go on with a paused schedule."""
    moment = None if resume_from is None else read_moment("from", resume_from, datetime.now(UTC))
    _change(store, output, lambda scheduler: scheduler.resume(schedule_id, resume_from=moment))


def cancel(schedule_id: IdArgument, *, store: StoreOption = None, output: OutputOption = Output.TABLE) -> None:
    """End a schedule for good; its row stays for audit. Cancelling it again is harmless."""
    _change(store, output, lambda scheduler: scheduler.cancel(schedule_id))


def _change(store: str | None, output: Output, work: Callable[[AsyncScheduler], Awaitable[Change]]) -> None:
    show_change(with_scheduler(store, work), output)


def show_change(change: Change, output: Output) -> None:
    """Print what a change has made of a schedule, and of what was pending."""
    if output is Output.JSON:
        outcome = {"outcome": change.outcome.value, "uncertain": list(change.uncertain)}
        print_json(outcome | {"schedule": schedule_fields(change.schedule)})
        return
    schedule = change.schedule
    following = "nothing is due"
    if schedule.next_at is not None:
        following = f"next {in_both(schedule.next_at, schedule.recurrence.zone_name)}"
    console().print(Text.assemble((printable(schedule.schedule_id), "bold"), f"  {schedule.state.value}; {following}"))
    console().print(_meaning(change))


def _meaning(change: Change) -> Text:
    if change.outcome is ChangeOutcome.PREVENTED:
        return Text("prevented: nothing pending before this change will be dispatched", style="green")
    keys = "".join(f"\n  {printable(key)}" for key in change.uncertain) or " what was due just now"
    return Text(f"possibly dispatched:{keys}", style="yellow")
