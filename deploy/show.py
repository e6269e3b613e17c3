"""`tocsin get`, and how a schedule is shown: every time in UTC and on the clock of the schedule's zone."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.output import Output, OutputOption, console, facts, print_json, span, utc
from tocsin.deploy.scheduling import with_scheduler
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.results import Schedule
from tocsin.schema.instants import floor_ms
from tocsin.schema.recurrence import AnyRecurrence, Cron, Every, Once
from tocsin.schema.schedules import State
from tocsin.schema.zones import local_time

#: Characters of a payload that the table shows; JSON shows it whole.
PAYLOAD_SHOWN_MAX = 200

#: How a state looks.
STYLES = {State.ACTIVE: "green", State.PAUSED: "yellow", State.CANCELLED: "red"}


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(get)


def get(
    schedule_id: Annotated[str, typer.Argument(metavar="ID", help="Whose.")],
    *,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a schedule and when it is due next."""
    show_schedule(with_scheduler(store, lambda scheduler: scheduler.get(schedule_id)), output)


def show_schedule(schedule: Schedule, output: Output) -> None:
    """Print a schedule as a table or as JSON."""
    if output is Output.JSON:
        print_json(schedule_fields(schedule))
        return
    title = Text.assemble(
        (printable(schedule.schedule_id), "bold"), "  ", (schedule.state.value, STYLES[schedule.state])
    )
    console().print(title, facts(_rows(schedule)), sep="\n")


def schedule_fields(schedule: Schedule) -> dict[str, Any]:
    """A schedule as JSON: instants in UTC, durations as options take them, the payload as text or base64."""
    shown: dict[str, Any] = {
        "schedule_id": schedule.schedule_id,
        "version": schedule.version,
        "state": schedule.state.value,
        "next_at": utc(schedule.next_at),
        "recurrence": msgspec.to_builtins(schedule.recurrence),
        "topic": schedule.topic,
        "content_type": schedule.content_type,
        "headers": schedule.headers,
        "partition_key": schedule.partition_key,
        "start": utc(schedule.start),
        "until": utc(schedule.until),
        "jitter": span(schedule.jitter),
        "catch_up": schedule.catch_up.value,
        "max_catch_up": schedule.max_catch_up,
        "expires_after": None if schedule.expires_after is None else span(schedule.expires_after),
        "exclude": list(schedule.exclude),
        "tenant": schedule.tenant,
        "tags": sorted(schedule.tags),
        "definition": schedule.definition,
        "note": schedule.note,
        "created_at": utc(schedule.created_at),
        "updated_at": utc(schedule.updated_at),
    }
    try:
        return shown | {"payload": schedule.payload.decode("utf-8")}
    except UnicodeDecodeError:
        return shown | {"payload_base64": base64.b64encode(schedule.payload).decode("ascii")}


def rule_text(rule: AnyRecurrence) -> str:
    """A recurrence in one line."""
    if isinstance(rule, Once):
        return f"once, {utc(rule.at)}"
    if isinstance(rule, Every):
        return f"every {span(rule.period)}, from {utc(rule.anchor)}"
    if isinstance(rule, Cron):
        return f"cron {rule.expression}  ({rule.tz}, {rule.dialect})"
    told = {name: value for name, value in msgspec.to_builtins(rule).items() if name not in {"kind", "anchor"}}
    return f"{type(rule).__name__.lower()} {', '.join(f'{name} {value}' for name, value in told.items())}"


def in_both(instant: datetime, zone: str) -> str:
    """An instant in UTC and, where the schedule has a zone of its own, on that zone's clock."""
    if zone == "UTC":
        return str(utc(instant))
    local = local_time(zone, floor_ms(instant))
    return f"{utc(instant)}   {local:%a} {local.replace(tzinfo=None).isoformat(' ', 'seconds')} {local.tzname()}"


def _rows(schedule: Schedule) -> list[tuple[str, str]]:
    zone = schedule.recurrence.zone_name
    rows: list[tuple[str, str | None]] = [
        ("next", "—" if schedule.next_at is None else in_both(schedule.next_at, zone)),
        ("rule", rule_text(schedule.recurrence)),
        ("start", None if schedule.start is None else in_both(schedule.start, zone)),
        ("until", None if schedule.until is None else in_both(schedule.until, zone)),
        ("jitter", span(schedule.jitter) if schedule.jitter else None),
        ("catch-up", schedule.catch_up.value),
        ("expires after", None if schedule.expires_after is None else span(schedule.expires_after)),
        ("exclude", ", ".join(schedule.exclude)),
        ("topic", schedule.topic),
        ("payload", _payload(schedule.payload)),
        ("content type", schedule.content_type),
        ("headers", ", ".join(f"{name}={value}" for name, value in schedule.headers.items())),
        ("partition key", schedule.partition_key),
        ("tenant", schedule.tenant),
        ("tags", ", ".join(sorted(schedule.tags))),
        ("definition", schedule.definition),
        ("note", schedule.note),
        ("version", str(schedule.version)),
        ("created", utc(schedule.created_at)),
        ("updated", utc(schedule.updated_at) if schedule.updated_at != schedule.created_at else None),
    ]
    return [(name, value) for name, value in rows if value]


def _payload(payload: bytes) -> str:
    shown = payload[:PAYLOAD_SHOWN_MAX].decode("utf-8", "backslashreplace")
    more = f"… ({len(payload)} bytes)" if len(payload) > PAYLOAD_SHOWN_MAX else ""
    return shown + more
