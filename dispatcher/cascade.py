"""The far level: the day before, each pointer becomes a full entry on the minute level.

A pointer says only which schedule, which version and which nominal time came before; `schedules` is read for each one.
So a zone whose rules changed since is answered with the rules of now: the nominal time is computed afresh from the one
before it. A pointer whose version is not decided yet goes down marked; one whose version does not count is dropped.
A timer is whole on far and goes down as it is.

Packs are cascaded page by page, oldest first, in bounded numbers. Whoever repeats a day names the day as its source,
and committed_far says that it is done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from tocsin.dispatcher.reading import DecodedPack
from tocsin.dispatcher.services import Services
from tocsin.dispatcher.verification import Answer, judge_entry
from tocsin.producer.arming import entry_for
from tocsin.producer.insert import Placement
from tocsin.schema.entries import Entry
from tocsin.schema.schedules import ScheduleRow, decode_spec

#: Entries read from `schedules` and inserted at once.
CASCADE_MAX = 500


async def cascade_day(services: Services, pages: AsyncIterator[Sequence[DecodedPack]], seal: int) -> None:
    """Insert one level down what a sealed day holds; returns once all of it is acknowledged."""
    done: set[tuple[str, int, int, str]] = set()
    async for page in pages:
        entries = []
        for _, decoded in page:
            for entry in decoded:
                occurrence = (entry.schedule_id, entry.scheduled_for, entry.version, entry.request)
                if occurrence not in done:
                    done.add(occurrence)
                    entries.append(entry)
        for start in range(0, len(entries), CASCADE_MAX):
            await _cascade(services, entries[start : start + CASCADE_MAX], seal)


async def _cascade(services: Services, entries: Sequence[Entry], seal: int) -> None:
    ids = sorted({entry.schedule_id for entry in entries if entry.has_schedule})
    rows: Mapping[str, ScheduleRow] = {}
    if ids:
        rows = await services.persistence.until_answered(lambda: services.store.read_schedules(ids))
    placements = [
        Placement(down, source=seal)
        for entry in entries
        if (down := _down(services, entry, rows.get(entry.schedule_id))) is not None
    ]
    if placements:
        await services.inserter.insert(placements, cascade=True)


def _down(services: Services, entry: Entry, row: ScheduleRow | None) -> Entry | None:
    """What a pointer becomes; None: it does not count."""
    if not entry.has_schedule:
        return entry
    answer = judge_entry(entry, row).answer
    services.observer.verified(answer.value)
    if answer is Answer.UNDECIDED:
        return msgspec.structs.replace(entry, verify=True, tries=1)
    if answer is Answer.DROPPED or row is None:
        return None
    spec = decode_spec(row.spec)
    nominal = spec.next_after(entry.previous) if entry.previous else spec.first_from(row.since)
    if nominal is None:
        return None
    down = entry_for(row, spec, nominal, previous=entry.previous)
    return msgspec.structs.replace(down, skipped=entry.skipped, chosen=entry.chosen)
