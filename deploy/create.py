"""`tocsin create`: a schedule from options. What is wrong is refused before anything is written."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.output import Output, OutputOption
from tocsin.deploy.reading import why
from tocsin.deploy.recurrence_options import Unreadable, Written, read_duration, read_instant
from tocsin.deploy.rule_options import (
    AtOption,
    CronOption,
    DailyOption,
    DayMatchName,
    DayMatchOption,
    DialectName,
    DialectOption,
    EveryOption,
    GapOption,
    MonthlyOption,
    OverlapOption,
    WeeklyOption,
    YearlyOption,
    ZoneOption,
)
from tocsin.deploy.scheduling import with_scheduler
from tocsin.deploy.show import show_schedule
from tocsin.producer.definition import PAYLOAD_BYTES_LIMIT, NewSchedule
from tocsin.producer.results import Schedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.recurrence import Gap, Overlap
from tocsin.schema.schedules import CatchUp


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(create)


CatchUpOption = Annotated[
    CatchUp, typer.Option(metavar="HOW", help="What was missed in an outage: latest, all, earliest or skip.")
]


def create(
    schedule_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="1 to 255 characters; none: fresh.")] = None,
    *,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Where its occurrences go.")],
    at: AtOption = None,
    every: EveryOption = None,
    daily: DailyOption = None,
    weekly: WeeklyOption = None,
    monthly: MonthlyOption = None,
    yearly: YearlyOption = None,
    cron: CronOption = None,
    tz: ZoneOption = "UTC",
    gap: GapOption = Gap.SKIP,
    overlap: OverlapOption = Overlap.FIRST,
    dialect: DialectOption = DialectName.UNIX,
    day_match: DayMatchOption = DayMatchName.EITHER,
    payload: Annotated[str, typer.Option(metavar="WHAT", help="Text, @file, or - for standard input.")] = "",
    content_type: Annotated[str | None, typer.Option(metavar="TYPE", help="The payload's media type.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A header; repeat it for more.")] = None,
    partition_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Decides the partition.", show_default="the id")
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="INSTANT", help="No occurrence before it.")] = None,
    until: Annotated[str | None, typer.Option(metavar="INSTANT", help="No occurrence after it.")] = None,
    max_runs: Annotated[int | None, typer.Option(metavar="N", help="How many occurrences, excluded ones too.")] = None,
    jitter: Annotated[str, typer.Option(metavar="DURATION", help="Later by up to this.")] = "0s",
    catch_up: CatchUpOption = CatchUp.LATEST,
    max_catch_up: Annotated[int, typer.Option(metavar="N", help="At most so many under all.")] = 1000,
    expires_after: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Later than this is never dispatched.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(metavar="CALENDAR", help="Not on its dates; repeat it.")] = None,
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Whose it is.")] = "default",
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag; repeat it for more.")] = None,
    definition: Annotated[str | None, typer.Option(metavar="NAME", help="The definition of the job.")] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why it exists.")] = "",
    paused: Annotated[bool, typer.Option("--paused", help="Created, but resumed later.")] = False,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a schedule. The same command again is harmless: it finds the schedule and shows it."""
    now = datetime.now(UTC)
    moment = None if at is None else read_moment("at", at, now).isoformat()
    written = Written(cron, every, daily, weekly, monthly, yearly, moment, tz, gap, overlap, dialect, day_match)
    schedule = NewSchedule(
        schedule_id=schedule_id,
        recurrence=written.recurrence(),
        topic=topic,
        payload=read_payload(payload),
        content_type=content_type,
        headers=read_headers(header or ()),
        partition_key=partition_key,
        start=None if start is None else read_moment("start", start, now),
        until=None if until is None else read_moment("until", until, now),
        max_runs=max_runs,
        jitter=read_duration("jitter", jitter),
        catch_up=catch_up,
        max_catch_up=max_catch_up,
        expires_after=None if expires_after is None else read_duration("expires_after", expires_after),
        exclude=exclude,
        tenant=tenant,
        tags=tuple(tag or ()),
        definition=definition,
        note=note,
        paused=paused,
    )
    show_schedule(with_scheduler(store, lambda scheduler: _create(scheduler, schedule)), output)


async def _create(scheduler: AsyncScheduler, schedule: NewSchedule) -> Schedule:
    given: dict[str, Any] = {field.name: getattr(schedule, field.name) for field in fields(schedule)}
    return await scheduler.create(given.pop("schedule_id"), given.pop("recurrence"), **given)


def read_payload(text: str) -> bytes:
    """The payload of `TEXT`, `@file` or `-`; never more than any store would take.

    Raises:
        InvalidSchedule: the file cannot be read.
    """
    if text == "-":
        return sys.stdin.buffer.read(PAYLOAD_BYTES_LIMIT + 1)
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape")
    try:
        with Path(text[1:]).open("rb") as file:
            return file.read(PAYLOAD_BYTES_LIMIT + 1)
    except (OSError, ValueError) as error:
        raise InvalidSchedule("payload", text, f"the file {text[1:]} cannot be read: {why(error)}") from error


def read_headers(texts: Iterable[str]) -> dict[str, str]:
    """Headers of `name=value`. Raises Unreadable where one has no `=` or a name comes twice."""
    headers: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise Unreadable("headers", text, f"{text!r} is no header; write name=value")
        if name in headers:
            raise Unreadable("headers", text, f"{name!r} is given twice")
        headers[name] = value
    return headers


def read_moment(option: str, text: str, now: datetime) -> datetime:
    """An instant with its offset, or `+10m` from now, or `-2d`: so long ago."""
    if text.startswith("+"):
        return now + read_duration(option, text[1:])
    if text.startswith("-"):
        return now - read_duration(option, text[1:])
    return read_instant(option, text)
