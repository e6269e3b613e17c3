"""`tocsin status`: who owns which shard range, and how far it is."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from tocsin.deploy.configuration import Configuration, StoreOption, read_configuration
from tocsin.deploy.output import Output, OutputOption, console, print_json, utc
from tocsin.dispatcher.progress import RangeProgress, read_progress
from tocsin.dispatcher.publisher_lines import printable
from tocsin.schema.clock import StoreClock, SystemClock
from tocsin.schema.errors import StoreTimeout
from tocsin.schema.instants import to_datetime
from tocsin.schema.open_store import open_store

#: A lag above this stands out; a dispatcher at work stays well below it.
LAG_SHOWN_MS = 2_000


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(status)


def status(*, store: StoreOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show each shard range: its owner, epoch and lag, and up to when everything is dispatched."""
    configuration = read_configuration(store=store)
    ranges = asyncio.run(_read(configuration))
    if output is Output.JSON:
        for each in ranges:
            print_json(_fields(each))
        return
    console().print(_table(ranges))
    console().print(_summary(ranges))


async def _read(configuration: Configuration) -> list[RangeProgress]:
    timing = configuration.protocol_timing()
    store = open_store(configuration.store, timing=timing)
    settings = await store.open()
    try:
        async with asyncio.timeout(configuration.timeout_ms / 1000):
            clock = StoreClock(store, SystemClock(), skew_ms_max=timing.skew_ms_max)
            await clock.refresh()
            return await read_progress(store, settings.shard_ranges, clock.now_ms())
    except TimeoutError as error:
        raise StoreTimeout(
            f"the store did not answer within {configuration.timeout_ms} ms; try again, or raise timeout_ms."
        ) from error
    finally:
        await store.close()


def _fields(each: RangeProgress) -> dict[str, object]:
    return {
        "shard_range": each.shard_range,
        "owner": each.owner,
        "owner_present": each.owner_present,
        "epoch": each.epoch,
        "lag_seconds": each.lag_ms / 1000,
        "committed": utc(to_datetime(each.committed)),
    }


def _table(ranges: list[RangeProgress]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("range", justify="right")
    table.add_column("owner", overflow="fold")
    table.add_column("epoch", justify="right")
    table.add_column("lag", justify="right", no_wrap=True)
    table.add_column("committed", no_wrap=True)
    for each in ranges:
        owner = Text("nobody", style="yellow")
        if each.owner is not None:
            owner = Text(printable(each.owner), style="" if each.owner_present else "yellow")
            owner.append("" if each.owner_present else " (not heard of)")
        lag = Text(f"{each.lag_ms / 1000:.1f} s", style="red" if each.lag_ms > LAG_SHOWN_MS else "")
        table.add_row(str(each.shard_range), owner, str(each.epoch), lag, utc(to_datetime(each.committed)))
    return table


class Summary(NamedTuple):
    """All ranges in one line."""

    dispatchers: int
    unowned: int
    lag_ms_max: int


def summed_up(ranges: list[RangeProgress]) -> Summary:
    """How many dispatchers there are, what nobody owns, and how far the last range is behind."""
    return Summary(
        dispatchers=len({each.owner for each in ranges if each.is_owned}),
        unowned=sum(not each.is_owned for each in ranges),
        lag_ms_max=max(each.lag_ms for each in ranges),
    )


def _summary(ranges: list[RangeProgress]) -> Text:
    summary = summed_up(ranges)
    text = f"{len(ranges)} ranges, {summary.dispatchers} dispatchers, lag at most {summary.lag_ms_max / 1000:.1f} s"
    if not summary.unowned:
        return Text(text, style="bold")
    return Text(f"{text}; {summary.unowned} unowned: run tocsin dispatch", style="bold yellow")
