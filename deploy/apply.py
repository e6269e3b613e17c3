"""`tocsin apply`: what an owner declares in a file, made so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.declaration import read_set
from tocsin.deploy.main import exit_code, tell
from tocsin.deploy.output import Output, OutputOption, console, print_json
from tocsin.deploy.scheduling import with_scheduler
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.apply import ApplyResult

#: The parts of a result in the order of a reader's interest, and how they look.
_PARTS = {"created": "green", "updated": "cyan", "cancelled": "red", "unchanged": "dim"}


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(apply)


def apply(
    *,
    file: Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="The whole set, as TOML.")],
    owner: Annotated[str, typer.Option(metavar="NAME", help="Whose set it is.")],
    prune: Annotated[bool, typer.Option("--prune", help="Cancel what the owner declares no more.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be done.")] = False,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create, update and cancel until the owner's schedules are those of the file; again is harmless.

    Everything is checked before anything is written. What the owner's files made carries the tag owner:NAME.
    """
    declared = read_set(file)
    result = with_scheduler(
        store, lambda scheduler: scheduler.apply(declared, owner=owner, prune=prune, dry_run=dry_run)
    )
    if output is Output.JSON:
        failed = {schedule_id: str(error) for schedule_id, error in result.failed.items()}
        print_json({part: list(getattr(result, part)) for part in _PARTS} | {"failed": failed, "dry_run": dry_run})
    else:
        _show(result, dry_run=dry_run)
    for error in result.failed.values():
        tell(error)
    if result.failed:
        raise typer.Exit(exit_code(next(iter(result.failed.values()))))


def _show(result: ApplyResult, *, dry_run: bool) -> None:
    for part, style in _PARTS.items():
        for schedule_id in getattr(result, part) if part != "unchanged" else ():
            console().print(Text.assemble((f"{part:<10}", style), printable(schedule_id)))
    counts = ", ".join(f"{len(getattr(result, part))} {part}" for part in _PARTS)
    failed = f", {len(result.failed)} failed: apply it again" if result.failed else ""
    console().print(Text(f"{'Would be: ' if dry_run else ''}{counts}{failed}", style="bold"))
