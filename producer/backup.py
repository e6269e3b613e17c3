"""Backup and restore: what users said, in a file, and a new store made of it.

Only `schedules` and `calendars` are kept. What waits on the levels follows from them, and would be out of date before
the file was written. So a restore begins with empty levels and arms every schedule anew.

**From when on.** A backup notes how far dispatching was when it began: the lowest `committed` of all ranges. A restored
store starts there (its *genesis*, unless the operator knows a later instant), and every schedule is armed with the
first occurrence due after it: between that instant and the loss of the store occurrences may have been dispatched
already, and are dispatched again; nothing due since is lost. What was created or changed after the backup is not known.

**What a page holds** is at least as new as any change acknowledged before it was asked for, so a backup may run under
load: a schedule changed meanwhile is in it as it was before or as it is after.

A file is lines of JSON: a head, calendars, schedules, and an end that counts them, without which it is not used. It
holds payloads: keep it as safe as the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

import msgspec

from tocsin.producer.persistence import Persistence
from tocsin.schema.errors import NotInitialised, SettingsError
from tocsin.schema.levels import Layout
from tocsin.schema.open_store import default_settings
from tocsin.schema.schedules import Calendar, ScheduleFilter, ScheduleRow
from tocsin.schema.store import Settings, Store

#: The form of the file; another one is refused.
FORMAT = 1
#: Rows written at once.
TOGETHER = 200


class Head(msgspec.Struct, frozen=True, kw_only=True, tag="tocsin-backup"):
    """What a file begins with; instants are ms UTC."""

    format: int = FORMAT
    taken_at: int
    #: Everything due up to it had been dispatched when the backup began.
    committed: int
    shard_ranges: int
    sub_partitions: int


class KeptCalendar(msgspec.Struct, frozen=True, tag="calendar"):
    """A calendar."""

    calendar: Calendar


class KeptSchedule(msgspec.Struct, frozen=True, tag="schedule"):
    """A schedule, whatever its state."""

    row: ScheduleRow


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """What a file ends with: how many of each it holds."""

    calendars: int
    schedules: int


Part = Head | KeptCalendar | KeptSchedule | End

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Head | KeptCalendar | KeptSchedule | End)


def encode_part(part: Part) -> bytes:
    """A line of the file, its end included."""
    return _encoder.encode(part) + b"\n"


def decode_parts(lines: Iterable[bytes]) -> Iterator[Part]:
    """The parts of a file, checked for being whole as it is read.

    Raises:
        SettingsError: it is no backup, of another form, damaged, or cut off.
    """
    counts: dict[type[Part], int] = {}
    part: Part | None = None
    for number, line in enumerate(lines, 1):
        try:
            part = _decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise SettingsError(f"line {number} is not of a backup ({error}); use another file.") from error
        if (number == 1) != isinstance(part, Head) or (isinstance(part, Head) and part.format != FORMAT):
            raise SettingsError(f"line {number}: this is no backup that this release can read; use another file.")
        counts[type(part)] = counts.get(type(part), 0) + 1
        yield part
    found = End(calendars=counts.get(KeptCalendar, 0), schedules=counts.get(KeptSchedule, 0))
    if part != found:
        raise SettingsError("the backup is cut off or was changed: its end does not say what it holds; use another.")


async def read_backup(
    store: Store, settings: Settings, persistence: Persistence, *, now: Callable[[], int]
) -> AsyncIterator[Part]:
    """What a store keeps, as parts of a file; `now` is the store's time, ms UTC."""
    frontiers = [
        await persistence.until_answered(lambda at=shard_range: store.read_frontier(at))  # type: ignore[misc]
        for shard_range in range(settings.shard_ranges)
    ]
    yield Head(
        taken_at=now(),
        committed=min(frontier.committed for frontier in frontiers),
        shard_ranges=settings.shard_ranges,
        sub_partitions=settings.layouts[-1].sub_partitions,
    )
    calendars = await persistence.until_answered(store.read_calendars)
    for calendar in calendars:
        yield KeptCalendar(calendar)
    pages = store.list_schedules(ScheduleFilter())
    schedules = 0
    while (page := await persistence.until_answered(lambda: anext(pages, None))) is not None:
        for row in page:
            yield KeptSchedule(row)
        schedules += len(page)
    yield End(calendars=len(calendars), schedules=schedules)


def restored_settings(url: str, head: Head, since: int) -> Settings:
    """The settings of a store that goes on from `since`, ms UTC, as the one did that the backup is of."""
    return msgspec.structs.replace(
        default_settings(url, since), shard_ranges=head.shard_ranges, layouts=(Layout(0, head.sub_partitions),)
    )


async def make_empty_store(store: Store, wanted: Settings) -> Settings:
    """Make the store, or go on with a restore of the same backup that was interrupted; it is open then.

    Raises:
        SettingsError: there is a store already that was made for something else; nothing was changed.
    """
    try:
        found = await store.open()
    except NotInitialised:
        found = await store.initialise(wanted)
    if (found.genesis, found.shard_ranges) != (wanted.genesis, wanted.shard_ranges):
        raise SettingsError(
            f"{store.url} holds a store already, and a restore begins with an empty one; "
            "name another keyspace or file, or drop that one."
        )
    return found


async def write_back(
    store: Store, parts: Iterable[Part], persistence: Persistence, *, told: Callable[[int], None]
) -> int:
    """Write calendars and schedules; how many schedules. Writing them twice is harmless.

    A row is written as the first of its id, older than any change that can follow.
    """
    waiting: list[ScheduleRow] = []
    written = 0

    async def write() -> None:
        nonlocal written
        rows = waiting.copy()
        waiting.clear()
        await asyncio.gather(
            *(persistence.until_answered(lambda row=row: store.insert_fresh_schedule(row)) for row in rows)  # type: ignore[misc]
        )
        written += len(rows)
        told(written)

    for part in parts:
        if isinstance(part, KeptCalendar):
            first = msgspec.structs.replace(part.calendar, version=1)
            await persistence.until_answered(lambda first=first: store.write_calendar(first, 0))  # type: ignore[misc]
        elif isinstance(part, KeptSchedule):
            waiting.append(part.row)
            if len(waiting) >= TOGETHER:
                await write()
    await write()
    return written
