"""`tocsin init`: make a store, or bring it up to this release's tables. Repeating it is harmless."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Annotated

import msgspec
import typer

from tocsin.deploy.configuration import read_configuration
from tocsin.deploy.output import Output, OutputOption, console, facts, print_json, utc
from tocsin.producer.upgrade import raise_oldest_reader
from tocsin.schema.clock import SystemClock
from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import to_datetime
from tocsin.schema.levels import Layout
from tocsin.schema.open_store import default_settings, open_store
from tocsin.schema.store import Settings
from tocsin.schema.timing import Timing

#: More ranges than this are more leases and registers than heartbeats can carry.
SHARD_RANGES_MAX = 1_024
SUB_PARTITIONS_MAX = 65_536
#: Two nodes of three are a majority: one may fail.
DEFAULT_REPLICATION = 3


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(name="init")(init)


def init(
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The store; the configured one if absent.")] = None,
    *,
    replication: Annotated[
        int, typer.Option(min=1, max=9, help="Cassandra: in how many nodes of a data centre each row is.")
    ] = DEFAULT_REPLICATION,
    shard_ranges: Annotated[
        int | None, typer.Option(min=1, max=SHARD_RANGES_MAX, help="Units of lease, fixed for ever.", show_default="64")
    ] = None,
    sub_partitions: Annotated[
        int | None,
        typer.Option(min=1, max=SUB_PARTITIONS_MAX, help="Parts of a minute's bucket.", show_default="256"),
    ] = None,
    oldest_reader: Annotated[
        int | None,
        typer.Option(min=1, help="After an upgrade: the body format every release reads.", show_default="as is"),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a store's tables, leases and registers where they are missing.

    What a store was made with stays: asking for other shard ranges or sub-partitions than it has is refused.
    """
    configuration = read_configuration(store=url)
    wanted = wanted_settings(configuration.store, SystemClock().wall_ms(), shard_ranges, sub_partitions)
    found = asyncio.run(
        _initialise(configuration.store, configuration.protocol_timing(), wanted, replication, oldest_reader)
    )
    _refuse_other(found, shard_ranges, sub_partitions)
    genesis = utc(to_datetime(found.genesis))
    if output is Output.JSON:
        print_json(
            {
                "store": configuration.store,
                "genesis": genesis,
                "shard_ranges": found.shard_ranges,
                "sub_partitions": found.layouts[-1].sub_partitions,
                "schema_version": found.schema_version,
                "oldest_reader": found.oldest_reader,
            }
        )
        return
    console().print(
        facts(
            [
                ("store", configuration.store),
                ("since", f"{genesis}; nothing before it is owed"),
                ("shard ranges", str(found.shard_ranges)),
                ("sub-partitions", str(found.layouts[-1].sub_partitions)),
                ("schema version", str(found.schema_version)),
            ]
        )
    )


def wanted_settings(url: str, genesis: int, shard_ranges: int | None, sub_partitions: int | None) -> Settings:
    """The settings of a new store. Raises SettingsError where the ranges do not divide the sub-partitions."""
    default = default_settings(url, genesis)
    ranges = shard_ranges or default.shard_ranges
    parts = sub_partitions or max(default.layouts[-1].sub_partitions, ranges)
    if parts % ranges:
        raise SettingsError(
            f"{ranges} shard ranges do not divide {parts} sub-partitions; "
            "choose a multiple, so that each part belongs to one range."
        )
    return msgspec.structs.replace(default, shard_ranges=ranges, layouts=(Layout(0, parts),))


async def _initialise(
    url: str, timing: Timing, wanted: Settings, replication: int, oldest_reader: int | None
) -> Settings:
    store = open_store(url, timing=timing, replication=replication)
    try:
        found = await store.initialise(wanted)
        if oldest_reader is None:
            return found
        return await raise_oldest_reader(store, found, oldest_reader, release=version("tocsin"))
    finally:
        await store.close()


def _refuse_other(found: Settings, shard_ranges: int | None, sub_partitions: int | None) -> None:
    parts = found.layouts[-1].sub_partitions
    for name, asked, has in (
        ("shard ranges", shard_ranges, found.shard_ranges),
        ("sub-partitions", sub_partitions, parts),
    ):
        if asked is not None and asked != has:
            raise SettingsError(f"the store was made with {has} {name} and keeps them; leave that option out.")
