"""`tocsin dead-letters`: occurrences that could not be published, and another try."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tocsin.deploy.configuration import Configuration, StoreOption, read_configuration
from tocsin.deploy.opened import opened
from tocsin.deploy.output import Output, OutputOption, console, print_json, utc
from tocsin.dispatcher.publisher import Outcome
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.dead_letters import read_dead_letters, replay
from tocsin.schema.instants import to_datetime
from tocsin.schema.lifetimes import DEAD_LETTER_MS
from tocsin.schema.store import DeadLetter

#: Why an occurrence is given up: what its topic answered for good, or that its entry cannot be read.
REASONS = (*(outcome.value for outcome in Outcome if outcome.permanent), "undecodable")


def _known(reason: str | None) -> str | None:
    if reason is not None and reason not in REASONS:
        raise typer.BadParameter(f"choose one of {', '.join(REASONS)}")
    return reason


ReasonOption = Annotated[
    str | None, typer.Option(callback=_known, metavar="REASON", help=f"Only those: {', '.join(REASONS)}.")
]


def register(app: typer.Typer) -> None:
    """Add the group to an application."""
    group = typer.Typer(no_args_is_help=True, help="Occurrences that could not be published.")
    group.command("list")(list_letters)
    group.command("replay")(replay_letters)
    app.add_typer(group, name="dead-letters")


def list_letters(
    *, reason: ReasonOption = None, store: StoreOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show occurrences that could not be published, and why."""
    _show(asyncio.run(_work(read_configuration(store=store), reason, again=False)), output)


def replay_letters(
    *, reason: ReasonOption = None, store: StoreOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Dispatch them again with the keys they had; the schedules' next occurrences stay where they are.

    The dead letters stay too, until they expire: replaying twice dispatches twice.
    """
    _show(asyncio.run(_work(read_configuration(store=store), reason, again=True)), output)


def _show(letters: list[tuple[DeadLetter, bool | None]], output: Output) -> None:
    if output is Output.JSON:
        for letter, replayed in letters:
            print_json(_fields(letter) | ({} if replayed is None else {"replayed": replayed}))
        return
    console().print(_table(letters) if letters else "no dead letters")


async def _work(
    configuration: Configuration, reason: str | None, *, again: bool
) -> list[tuple[DeadLetter, bool | None]]:
    """Each dead letter, and whether it was replayed; None: nobody asked for it."""
    async with opened(configuration) as at:
        now = at.store_clock.now_ms()
        letters = read_dead_letters(at.store, at.settings.shard_ranges, now - DEAD_LETTER_MS, now, reason=reason)
        return [(letter, await replay(at.inserter, letter, now) if again else None) async for letter in letters]


def _fields(letter: DeadLetter) -> dict[str, object]:
    return {
        "key": letter.occurrence_key,
        "at": utc(to_datetime(letter.at)),
        "reason": letter.reason,
        "attempts": letter.attempts,
        "shard_range": letter.shard_range,
    }


def _table(letters: list[tuple[DeadLetter, bool | None]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("key", "given up", "reason", "attempts"):
        table.add_column(column, overflow="fold")
    if any(replayed is not None for _, replayed in letters):
        table.add_column("replayed")
    for letter, replayed in letters:
        cells = [
            printable(letter.occurrence_key),
            utc(to_datetime(letter.at)) or "",
            letter.reason,
            str(letter.attempts),
        ]
        if replayed is not None:
            cells.append("yes" if replayed else "unreadable")
        table.add_row(*map(Text, cells))
    return table
