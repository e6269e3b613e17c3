"""`tocsin layout`: into how many parts a minute is split, now and from an instant on."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.table import Table

from tocsin.deploy.configuration import Configuration, StoreOption, read_configuration
from tocsin.deploy.create import read_moment
from tocsin.deploy.opened import opened
from tocsin.deploy.output import Output, OutputOption, console, print_json, utc
from tocsin.producer.layouts import SUB_PARTITIONS_MAX, set_layout
from tocsin.producer.persistence import Persistence
from tocsin.schema.instants import ceil_ms, to_datetime
from tocsin.schema.levels import Layout
from tocsin.schema.store import Settings

group = typer.Typer(no_args_is_help=True, help="See and change into how many parts a minute's bucket is split.")


def register(app: typer.Typer) -> None:
    """Add the group to an application."""
    app.add_typer(group, name="layout")


@group.command()
def show(*, store: StoreOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show every layout there has been, and what is to come."""
    settings, now = asyncio.run(_read(read_configuration(store=store)))
    _print(settings, now, output)


@group.command(name="set")
def set_(
    *,
    sub_partitions: Annotated[int, typer.Option(min=1, max=SUB_PARTITIONS_MAX, help="Parts of a minute's bucket.")],
    from_: Annotated[
        str, typer.Option("--from", metavar="INSTANT", help="From which minute on: an instant, or +2h.")
    ] = "+1h",
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Split minutes into another number of parts from an instant on; everything goes on meanwhile.

    The instant must lie so far ahead that every dispatcher has heard of it before: twice timing.layout_notice_ms.
    """
    settings, now = asyncio.run(_set(read_configuration(store=store), sub_partitions, from_))
    _print(settings, now, output)


async def _read(configuration: Configuration) -> tuple[Settings, int]:
    async with opened(configuration) as at:
        return at.settings, at.store_clock.now_ms()


async def _set(configuration: Configuration, sub_partitions: int, from_: str) -> tuple[Settings, int]:
    timing = configuration.protocol_timing()
    async with opened(configuration) as at:
        now = at.store_clock.now_ms()
        wanted = ceil_ms(read_moment("from", from_, to_datetime(now)), field="from")
        layout = Layout(-(-wanted // timing.minute_ms) * timing.minute_ms, sub_partitions)
        settings = await set_layout(
            at.store,
            layout,
            timing=timing,
            store_clock=at.store_clock,
            persistence=Persistence(at.clock, timing),
            deadline=at.clock.monotonic_ms() + configuration.timeout_ms,
        )
        return settings, now


def _print(settings: Settings, now: int, output: Output) -> None:
    in_force = max((each for each in settings.layouts if each.from_ms <= now), key=lambda each: each.from_ms)
    rows = [
        (utc(to_datetime(max(each.from_ms, settings.genesis))), each.sub_partitions, _word(each, in_force))
        for each in settings.layouts
    ]
    if output is Output.JSON:
        for since, parts, word in rows:
            print_json({"from": since, "sub_partitions": parts, "state": word})
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("from", "sub-partitions", ""):
        table.add_column(column, justify="right" if column == "sub-partitions" else "left")
    for since, parts, word in rows:
        table.add_row(since, f"{parts:,}", word)
    console().print(table)


def _word(layout: Layout, in_force: Layout) -> str:
    if layout == in_force:
        return "in force"
    return "to come" if layout.from_ms > in_force.from_ms else "read only"
