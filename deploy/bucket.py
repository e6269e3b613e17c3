"""`tocsin bucket show`: what waits in a minute."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tocsin.deploy.configuration import Configuration, StoreOption, read_configuration
from tocsin.deploy.create import read_moment
from tocsin.deploy.opened import opened
from tocsin.deploy.output import Output, OutputOption, console, print_json, utc
from tocsin.dispatcher.publisher_lines import printable
from tocsin.schema.entries import Entry, Kind, decode_pack
from tocsin.schema.instants import floor_ms, to_datetime
from tocsin.schema.levels import Level

#: Entries shown; a herd has more than anyone reads.
SHOWN_MAX = 50


def register(app: typer.Typer) -> None:
    """Add the group to an application."""
    group = typer.Typer(no_args_is_help=True, help="What waits in a minute.")
    group.command()(show)
    app.add_typer(group, name="bucket")


def show(
    minute: Annotated[str, typer.Argument(metavar="MINUTE", help="2026-12-01T10:00Z, or +5m from now.")],
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Entries shown.")] = SHOWN_MAX,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what the minute level holds for a minute: dispatched entries stay until retention, nothing is deleted."""
    instant = floor_ms(read_moment("minute", minute, datetime.now(UTC)))
    entries, packs = asyncio.run(_read(read_configuration(store=store), instant))
    entries.sort(key=lambda entry: (entry.due, entry.schedule_id))
    if output is Output.JSON:
        for entry in entries[:limit]:
            print_json(_fields(entry))
        return
    console().print(_table(entries[:limit]))
    hidden = f", {len(entries) - limit} not shown" if len(entries) > limit else ""
    console().print(Text(f"{len(entries)} entries in {packs} packs{hidden}", style="dim"))


async def _read(configuration: Configuration, instant: int) -> tuple[list[Entry], int]:
    entries: list[Entry] = []
    packs = 0
    async with opened(configuration) as at:
        width = at.levels.timing.minute_ms
        start = instant // width * width
        for shard_range in range(at.settings.shard_ranges):
            for each in at.levels.buckets(Level.MINUTE, shard_range, start - 1, start):
                async for page in at.store.read_packs(each):
                    packs += len(page)
                    entries += [entry for row in page for entry in decode_pack(row.body)]
    return entries, packs


def _fields(entry: Entry) -> dict[str, object]:
    return {
        "key": entry.key,
        "due": utc(to_datetime(entry.due)),
        "version": entry.version,
        "kind": Kind(entry.kind).name.lower(),
        "verify": entry.verify,
        "payload_bytes": len(entry.payload),
    }


def _table(entries: list[Entry]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("key", overflow="fold")
    table.add_column("due", no_wrap=True)
    table.add_column("kind")
    table.add_column("", no_wrap=True)
    for entry in entries:
        marked = "to be verified" if entry.verify else ""
        due = utc(to_datetime(entry.due)) or ""
        table.add_row(*map(Text, (printable(entry.key), due, Kind(entry.kind).name.lower(), marked)))
    return table
