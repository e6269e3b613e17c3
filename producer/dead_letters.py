"""Dead letters: reading them, and dispatching one again.

A dead letter is one occurrence that could not be published; its schedule went on. So replaying it must not arm what
follows a second time: an occurrence of a schedule is replayed as a backfill of that one nominal time, with the same
key. A timer or a trigger follows nothing and is inserted as it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from tocsin.producer.extra_runs import BackfillTerms
from tocsin.producer.insert import Inserter, Placement
from tocsin.schema.entries import Entry, Kind, decode_pack
from tocsin.schema.errors import TocsinError
from tocsin.schema.store import DeadLetter, Store


async def read_dead_letters(
    store: Store, shard_ranges: int, after: int, through: int, *, reason: str | None = None
) -> AsyncIterator[DeadLetter]:
    """Dead letters of every range with after < at <= through (ms UTC), by range and instant."""
    for shard_range in range(shard_ranges):
        async for page in store.read_dead_letters(shard_range, after, through):
            for letter in page:
                if reason is None or letter.reason == reason:
                    yield letter


def replay_entry(letter: DeadLetter, now: int) -> Entry | None:
    """What dispatches the occurrence again, due now (ms UTC); None: its bytes cannot be read, so nothing can."""
    try:
        (entry,) = decode_pack(letter.entry)
    except (TocsinError, ValueError):
        return None
    if entry.kind != Kind.ARM:
        return msgspec.structs.replace(entry, due=max(now, entry.due), verify=False, tries=0)
    terms = BackfillTerms(f"replay-{letter.at}", entry.scheduled_for + 1, 1)
    return msgspec.structs.replace(entry, kind=Kind.BACKFILL, due=now, request=terms.encode(), verify=False, tries=0)


async def replay(inserter: Inserter, letter: DeadLetter, now: int) -> bool:
    """Dispatch one again, due now (ms UTC); False: it cannot be read."""
    entry = replay_entry(letter, now)
    if entry is None:
        return False
    await inserter.insert([Placement(entry)])
    return True
