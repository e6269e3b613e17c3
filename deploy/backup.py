"""`tocsin backup` and `tocsin restore`: what users said, in a file, and a new store made of it."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tocsin.deploy.configuration import Configuration, StoreOption, read_configuration
from tocsin.deploy.create import read_moment
from tocsin.deploy.initialise import DEFAULT_REPLICATION
from tocsin.deploy.opened import Opened, attached, opened
from tocsin.deploy.output import Output, OutputOption, console, facts, notes, print_json, utc
from tocsin.deploy.reading import why
from tocsin.producer.audit import Audit, AuditReport
from tocsin.producer.backup import (
    End,
    Head,
    KeptSchedule,
    Part,
    decode_parts,
    encode_part,
    make_empty_store,
    read_backup,
    restored_settings,
    write_back,
)
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import SystemClock
from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import ceil_ms, to_datetime
from tocsin.schema.open_store import open_store
from tocsin.schema.store import Settings

#: Schedules armed a second, at most: nobody else uses the store yet.
ARM_PER_SECOND = 20_000
#: Segments of the walk that arms them.
SEGMENTS = 16


def register(app: typer.Typer) -> None:
    """Add both commands to an application."""
    app.command()(backup)
    app.command()(restore)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; .gz is compressed. It must not exist.")],
    *,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write every schedule and calendar to a file, while everything goes on.

    The file holds payloads: keep it as safe as the store.
    """
    head, end = asyncio.run(_back_up(read_configuration(store=store), file))
    _say(output, file, head, schedules=end.schedules, calendars=end.calendars)


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that tocsin backup wrote.")],
    *,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANT",
            help="What was due up to then was dispatched, and is not again.",
            show_default="as the backup says",
        ),
    ] = None,
    replication: Annotated[
        int, typer.Option(min=1, max=9, help="Cassandra: in how many nodes of a data centre each row is.")
    ] = DEFAULT_REPLICATION,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a new store of a backup, and arm every schedule. Run no dispatcher on it before this is done.

    What was due between the backup and the loss of the old store is dispatched, some of it for the second time.
    """
    with _reading(file) as lines:
        parts = decode_parts(lines)
        head = next(parts, None)
        if not isinstance(head, Head):
            raise SettingsError(f"{file} is empty; use another file.")
        schedules = sum(isinstance(part, KeptSchedule) for part in parts)
    configuration = read_configuration(store=store)
    now = SystemClock().wall_ms()
    genesis = head.committed if since is None else ceil_ms(read_moment("since", since, to_datetime(now)), field="since")
    if not head.committed <= genesis <= now:
        raise SettingsError(
            f"--since must lie between {utc(to_datetime(head.committed))}, up to when the backup says that all was "
            "dispatched, and now."
        )
    wanted = restored_settings(configuration.store, head, genesis)
    report = asyncio.run(_restore(configuration, file, wanted, schedules=schedules, replication=replication))
    _say(output, file, head, schedules=schedules, armed=report.armed.total(), since=utc(to_datetime(genesis)))


async def _back_up(configuration: Configuration, file: Path) -> tuple[Head, End]:
    head: Part | None = None
    part: Part | None = None
    async with opened(configuration) as at:
        persistence = Persistence(at.clock, at.levels.timing)
        parts = read_backup(at.store, at.settings, persistence, now=at.store_clock.now_ms)
        with _writing(file) as lines, _progress() as progress:
            task = progress.add_task("backup", total=None)
            async for part in parts:
                head = head or part
                lines.write(encode_part(part))
                progress.advance(task)
    assert isinstance(head, Head)  # noqa: S101 — every backup begins and ends with them
    assert isinstance(part, End)  # noqa: S101 — the same
    return head, part


async def _restore(
    configuration: Configuration, file: Path, wanted: Settings, *, schedules: int, replication: int
) -> AuditReport:
    store = open_store(configuration.store, timing=configuration.protocol_timing(), replication=replication)
    try:
        settings = await make_empty_store(store, wanted)
        at = await attached(store, settings, configuration.protocol_timing())
        with _reading(file) as lines, _progress() as progress:
            task = progress.add_task("restore", total=schedules)
            persistence = Persistence(at.clock, at.levels.timing)
            await write_back(
                store, decode_parts(lines), persistence, told=lambda done: progress.update(task, completed=done)
            )
        return await _arm(at, wanted.genesis)
    finally:
        await store.close()


async def _arm(at: Opened, genesis: int) -> AuditReport:
    """Arm what every schedule owes since then."""
    audit = Audit(
        at.store, at.levels, at.inserter, store_clock=at.store_clock, clock=at.clock, per_second=ARM_PER_SECOND
    )
    report = AuditReport()
    committed = dict.fromkeys(range(at.settings.shard_ranges), genesis)
    with _progress() as progress:
        for segment in progress.track(range(SEGMENTS), description="arm"):
            await audit.walk_owed(segment, SEGMENTS, report, committed=committed)
    return report


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=notes(), transient=True)


@contextmanager
def _writing(file: Path) -> Iterator[IO[bytes]]:
    """A file that is there once it is whole, and readable by its owner only."""
    if file.exists():
        raise SettingsError(f"{file} exists already; name another file.")
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as raw:
            if file.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw, mode="wb") as lines:
                    yield lines  # type: ignore[misc]  # a GzipFile is written to like any file
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.rename(file)
    except OSError as error:
        raise SettingsError(f"{file} cannot be written ({error.strerror}); name another file.") from error


@contextmanager
def _reading(file: Path) -> Iterator[Iterator[bytes]]:
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as lines:
            yield iter(lines)
    except (OSError, EOFError) as error:
        raise SettingsError(f"{file} cannot be read ({why(error)}); use another file.") from error


def _say(output: Output, file: Path, head: Head, **figures: int | str | None) -> None:
    fields = {
        "file": str(file),
        "taken_at": utc(to_datetime(head.taken_at)),
        "dispatched_through": utc(to_datetime(head.committed)),
        **figures,
    }
    if output is Output.JSON:
        print_json(fields)
        return
    console().print(facts([(name.replace("_", " "), str(value)) for name, value in fields.items()]))
