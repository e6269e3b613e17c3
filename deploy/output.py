"""How commands answer: tables for the eye, one JSON object a line for programs.

Ids, topics, notes and payloads were written by strangers. Everything but printable characters is escaped before it
reaches a terminal, so that none of them can move the cursor, recolour the screen or turn the direction of text.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tocsin.dispatcher.publisher_lines import printable


class Output(enum.StrEnum):
    """How a command answers."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("-o", "--output", metavar="FORM", help="table, or json: one object a line.")
]


def console() -> Console:
    """Standard output, for people; nothing is coloured or linked by guessing."""
    return Console(highlight=False, soft_wrap=False)


def notes() -> Console:
    """Standard error, for what is not the answer itself."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(fields: Mapping[str, Any]) -> None:
    """One JSON object on a line of its own, ASCII only."""
    typer.echo(json.dumps(fields, separators=(", ", ": ")))


def print_error(what: str, advice: str) -> None:
    """One sentence what, one what to do; a text of several lines keeps them, for carets."""
    lines = [printable(line) for line in what.split("\n")]
    text = Text.assemble(("✗ ", "red"), "\n  ".join(lines))
    if advice:
        text.append(f"\n  {advice}", "dim")
    notes().print(text)


def facts(rows: list[tuple[str, str]]) -> Table:
    """Names and values, one pair a row; values are escaped and folded, never cut."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(printable(value)))
    return table


def utc(instant: datetime | None) -> str | None:
    """An instant as RFC 3339 in UTC with milliseconds."""
    if instant is None:
        return None
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(duration: timedelta) -> str:
    """A duration as options take it: 1h30m, 5s, 500ms."""
    milliseconds = duration // timedelta(milliseconds=1)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
