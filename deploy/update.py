"""`tocsin update`: a patch of a schedule; what is not given stays."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from tocsin.deploy.change import IdArgument, show_change
from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.create import read_headers, read_moment, read_payload
from tocsin.deploy.output import Output, OutputOption
from tocsin.deploy.recurrence_options import Unreadable, Written, read_duration
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
from tocsin.schema.recurrence import Gap, Overlap
from tocsin.schema.schedules import CatchUp


class Unset(enum.StrEnum):
    """What can be taken away."""

    CONTENT_TYPE = "content-type"
    DEFINITION = "definition"
    EXCLUDE = "exclude"
    EXPIRES_AFTER = "expires-after"
    HEADERS = "headers"
    PARTITION_KEY = "partition-key"
    START = "start"
    TAGS = "tags"
    UNTIL = "until"


#: What is no collection is None without it.
_EMPTY: Final[dict[Unset, Any]] = {Unset.EXCLUDE: (), Unset.HEADERS: None, Unset.TAGS: ()}
#: Options that are fields as they are, and those whose field is their plural.
_PLAIN: Final = frozenset(
    {"topic", "content_type", "partition_key", "max_runs", "catch_up", "max_catch_up", "definition", "note"}
)
_PLURALS: Final = {"tag": "tags", "exclude": "exclude"}


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(update)


def update(
    schedule_id: IdArgument,
    *,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Where its occurrences go.")] = None,
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
    payload: Annotated[str | None, typer.Option(metavar="WHAT", help="Text, @file, or - for standard input.")] = None,
    content_type: Annotated[str | None, typer.Option(metavar="TYPE", help="The payload's media type.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="K=V", help="All its headers; repeat it.")] = None,
    partition_key: Annotated[str | None, typer.Option(metavar="KEY", help="Decides the partition.")] = None,
    start: Annotated[str | None, typer.Option(metavar="INSTANT", help="No occurrence before it.")] = None,
    until: Annotated[str | None, typer.Option(metavar="INSTANT", help="No occurrence after it.")] = None,
    max_runs: Annotated[int | None, typer.Option(metavar="N", help="How many occurrences from now on.")] = None,
    jitter: Annotated[str | None, typer.Option(metavar="DURATION", help="Later by up to this.")] = None,
    catch_up: Annotated[
        CatchUp | None, typer.Option(metavar="HOW", help="What was missed: latest, all, earliest or skip.")
    ] = None,
    max_catch_up: Annotated[int | None, typer.Option(metavar="N", help="At most so many under all.")] = None,
    expires_after: Annotated[str | None, typer.Option(metavar="DURATION", help="Later is never dispatched.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(metavar="CALENDAR", help="All it excludes; repeat it.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="All its tags; repeat it.")] = None,
    definition: Annotated[str | None, typer.Option(metavar="NAME", help="The definition of the job.")] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why it exists.")] = None,
    unset: Annotated[list[Unset] | None, typer.Option(metavar="FIELD", help="Take this away; repeat it.")] = None,
    expected_version: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Refuse where it is at another version.")
    ] = None,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a schedule: what is not given stays. From now on it occurs by the new version.

    --tz and the other options of a rule count with a rule only.
    """
    changes = read_patch(locals())  # Every option is a field of the same name.
    change = with_scheduler(
        store, lambda scheduler: scheduler.update(schedule_id, expected_version=expected_version, **changes)
    )
    show_change(change, output)


def read_patch(options: Mapping[str, Any]) -> dict[str, Any]:
    """What an update names: all that is given, and what is taken away.

    Raises:
        Unreadable: an option cannot be read, nothing is named, or something is both given and taken away.
    """
    given = {name: value for name, value in options.items() if name in _PLAIN and value is not None}
    given |= _rule(options)
    if options["payload"] is not None:
        given["payload"] = read_payload(options["payload"])
    if options["header"]:
        given["headers"] = read_headers(options["header"])
    given |= {_PLURALS[name]: options[name] for name in _PLURALS if options[name]}
    given |= {name: read_moment(name, options[name], _now()) for name in ("start", "until") if options[name]}
    given |= {name: read_duration(name, options[name]) for name in ("jitter", "expires_after") if options[name]}
    for each in options["unset"] or ():
        name = each.value.replace("-", "_")
        if name in given:
            raise Unreadable(name, given[name], f"is given and taken away by --unset {each.value}; choose one")
        given[name] = _EMPTY.get(each)
    if not given:
        raise Unreadable("update", None, "names nothing to change; give one of its options")
    return given


def _rule(options: Mapping[str, Any]) -> dict[str, Any]:
    rule = {name: options[name] for name in Written._fields}
    if rule["at"] is not None:
        rule["at"] = read_moment("at", rule["at"], _now()).isoformat()
    written = Written(**rule)
    return {"recurrence": written.recurrence()} if written.given else {}


def _now() -> datetime:
    return datetime.now(UTC)
