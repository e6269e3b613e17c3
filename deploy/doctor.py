"""`tocsin doctor`: every assumption of ARCHITECTURE.md, checked on the live system.

Each line names what was checked, what was found, and what was wanted; where the two differ, why it matters and what to
do about it. It changes nothing, and answers with exit code 1 where anything is wrong, so it can stand in a probe or at
the end of a deployment.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Iterator
from importlib import metadata
from itertools import islice
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.table import Table
from rich.text import Text

from tocsin.deploy.configuration import Configuration, SinkOption, StoreOption, read_configuration
from tocsin.deploy.doctor_cassandra import check_cluster
from tocsin.deploy.doctor_kafka import check_kafka
from tocsin.deploy.doctor_store import (
    ClockReading,
    StoreFacts,
    check_clocks,
    check_dispatching,
    check_timing,
    check_zone_data,
)
from tocsin.deploy.findings import Finding
from tocsin.deploy.output import Output, OutputOption, console, print_json
from tocsin.dispatcher.kafka_inspection import inspect_topics
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.progress import read_progress
from tocsin.dispatcher.publisher_lines import printable
from tocsin.dispatcher.sink import kafka_servers
from tocsin.schema.cassandra_access import read_access
from tocsin.schema.clock import StoreClock, SystemClock
from tocsin.schema.errors import StoreUnavailable
from tocsin.schema.lifetimes import Lifetimes
from tocsin.schema.open_store import open_store, sqlite_path
from tocsin.schema.schedules import ScheduleFilter, State
from tocsin.schema.store import Store
from tocsin.schema.timing import Timing

#: Schedules looked at for the topics they name; more are named by --topic.
SCHEDULES_READ = 1_000
TOPICS_MAX = 50
#: A file that cannot grow by its own size cannot be vacuumed, and a full disk stops every write.
DISK_FREE_BYTES_MIN = 1 << 30

EXIT_WRONG = 1


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(doctor)


def doctor(
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic to look at, besides those that schedules name; may be given several times."),
    ] = None,
    store: StoreOption = None,
    sink: SinkOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check what the store, Kafka, the clocks and the dispatchers are assumed to be; exit code 1 where one is not.

    It changes nothing. The topics are those of --topic, of the setting allowed_topics, and of the first schedules met.
    """
    configuration = read_configuration(store=store, sink=sink)
    findings = asyncio.run(_examine(configuration, tuple(topic or ())))
    wrong = [finding for finding in findings if not finding.well]
    if output is Output.JSON:
        for finding in findings:
            print_json(finding._asdict())
    else:
        console().print(_table(findings))
        for finding in wrong:
            console().print(_advice(finding), soft_wrap=True)
        console().print(f"{len(findings)} checks, {len(wrong) or 'none'} wrong")
    if wrong:
        raise typer.Exit(EXIT_WRONG)


async def _examine(configuration: Configuration, topics: tuple[str, ...]) -> list[Finding]:
    timing = configuration.protocol_timing()
    store = open_store(configuration.store, timing=timing)
    settings = await store.open()
    try:
        facts = await _store_facts(store, settings.shard_ranges, timing)
        named = {*topics, *_plain(configuration.allowed_topics), *await _topics_of_schedules(store)}
    finally:
        await store.close()
    findings = [
        *check_clocks(facts, timing),
        check_timing(timing),
        check_zone_data(facts),
        *check_dispatching(facts, timing),
    ]
    if configuration.store.startswith("cassandra:"):
        # The driver takes a third of a second to import: the embedded store does not wait for it.
        from tocsin.schema.cassandra_inspection import inspect_cluster

        access = read_access(configuration.store, os.environ)
        findings += check_cluster(await inspect_cluster(access, Lifetimes(timing)))
    else:
        findings += check_file(configuration.store)
    if configuration.sink.startswith("kafka:"):
        findings += await asyncio.to_thread(_kafka, configuration, islice(sorted(named), TOPICS_MAX))
    return findings


async def _store_facts(store: Store, shard_ranges: int, timing: Timing) -> StoreFacts:
    clock = SystemClock()
    sent = clock.wall_ms()
    times = await store.server_times_ms()
    received = clock.wall_ms()
    store_clock = StoreClock(store, clock, skew_ms_max=timing.skew_ms_max)
    await store_clock.refresh()
    return StoreFacts(
        readings=[ClockReading(each, sent, received) for each in times],
        progress=await read_progress(store, shard_ranges, store_clock.now_ms()),
        heartbeats=await store.read_heartbeats(),
        zone_data=metadata.version("tzdata"),
        zone_data_wanted=pinned("tzdata"),
        release=metadata.version("tocsin"),
    )


def pinned(package: str) -> str:
    """The version of a package that this release asks for, `package==version` among what it needs."""
    (needed,) = (each for each in metadata.requires("tocsin") or () if each.startswith(f"{package}=="))
    return needed.partition("==")[2].partition(";")[0].strip()


async def _topics_of_schedules(store: Store) -> set[str]:
    topics: set[str] = set()
    met = 0
    async for page in store.list_schedules(ScheduleFilter(state=State.ACTIVE)):
        topics |= {row.topic for row in page}
        met += len(page)
        if met >= SCHEDULES_READ:
            break
    return topics


def _plain(patterns: tuple[str, ...]) -> set[str]:
    """Those that name one topic."""
    return {pattern for pattern in patterns if not set(pattern) & set("*?[")}


def check_file(url: str) -> Iterator[Finding]:
    """What a store in one file needs of its disk."""
    path = sqlite_path(url)
    if path is None:
        return
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path}: {error}.") from error
    finally:
        connection.close()
    yield Finding(
        "journal",
        mode,
        "wal",
        mode == "wal",
        "readers and writers would wait for each other",
        "keep the file on a local disk, and run: tocsin init",
    )
    free = shutil.disk_usage(path.absolute().parent).free
    wanted = max(DISK_FREE_BYTES_MIN, path.stat().st_size)
    yield Finding(
        "disk",
        f"{free / (1 << 30):.1f} GiB free",
        f"{wanted / (1 << 30):.1f} GiB or more",
        free >= wanted,
        "a full disk stops every write",
        "free some, or move the file",
    )


def _kafka(configuration: Configuration, topics: Iterator[str]) -> list[Finding]:
    settings = configuration.publisher_settings()
    servers = kafka_servers(urlsplit(configuration.sink).netloc)
    security = KafkaSecurity.from_environment(os.environ)
    facts = inspect_topics(servers, topics, settings=settings, security=security)
    return list(check_kafka(facts, settings.record_bytes_max))


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("", "check", "found", "wanted"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        sign = Text("✓", style="green") if finding.well else Text("✗", style="red")
        cells = (finding.check, finding.found, finding.wanted)
        table.add_row(sign, *(Text(printable(cell), style="" if finding.well else "red") for cell in cells))
    return table


def _advice(finding: Finding) -> Text:
    text = Text(f"\n✗ {printable(finding.check)}: ", style="bold")
    text.append(f"{printable(finding.why)}.\n", style="not bold")
    text.append(f"  {printable(finding.fix)}", style="not bold dim")
    return text
