"""`tocsin trigger` and `tocsin backfill`: occurrences beside the rule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from tocsin.deploy.change import IdArgument
from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.create import read_moment
from tocsin.deploy.output import Output, OutputOption, console, print_json
from tocsin.deploy.scheduling import with_scheduler
from tocsin.dispatcher.publisher_lines import printable

RequestOption = Annotated[
    str | None, typer.Option("--request", metavar="ID", help="The same one twice is one run.", show_default="fresh")
]


def register(app: typer.Typer) -> None:
    """Add both commands to an application."""
    app.command()(trigger)
    app.command()(backfill)


def trigger(
    schedule_id: IdArgument,
    *,
    request_id: RequestOption = None,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a schedule once, now, beside its rule; also while it is paused."""
    key = with_scheduler(store, lambda scheduler: scheduler.trigger(schedule_id, request_id=request_id))
    if output is Output.JSON:
        print_json({"key": key})
    else:
        console().print(Text.assemble("runs as ", (printable(key), "bold")))


def backfill(
    schedule_id: IdArgument,
    *,
    start: Annotated[str, typer.Option("--from", metavar="INSTANT", help="Inclusive: 2026-11-30T10:00Z.")],
    end: Annotated[str, typer.Option("--to", metavar="INSTANT", help="Exclusive.")],
    per_second: Annotated[int, typer.Option(metavar="N", help="Occurrences a second at most.")] = 100,
    request_id: RequestOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run what a schedule's rule yields in [from, to) again, with the keys it had; also while it is paused."""
    now = datetime.now(UTC)
    first, last = read_moment("from", start, now), read_moment("to", end, now)
    planned = with_scheduler(
        store,
        lambda scheduler: scheduler.backfill(
            schedule_id, first, last, per_second=per_second, request_id=request_id, dry_run=dry_run
        ),
    )
    if output is Output.JSON:
        print_json({"request": planned.request_id, "occurrences": planned.occurrences, "seconds": planned.seconds})
        return
    verb = "would run" if dry_run else "runs"
    told = f"{verb} {planned.occurrences} occurrences in about {planned.seconds:.0f} s"
    console().print(Text.assemble(told, f"\nrequest {printable(planned.request_id)}"))
