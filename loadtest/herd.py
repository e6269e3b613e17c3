"""A herd for benchmarks: many occurrences of one instant, written straight into the minute level's packs.

This is the benchmarks' own bulk path. It skips `schedules`, for unmarked entries need no row there, and writes packs as
a re-arm would. Everything else, from the seal to the next occurrence, is then the shipped code.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial

from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import SystemClock
from tocsin.schema.entries import Entry, encode_pack, pack
from tocsin.schema.instants import to_datetime
from tocsin.schema.levels import Bucket, Level, Levels
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import Spec, encode_spec
from tocsin.schema.store import PackRow, Store
from tocsin.schema.timing import Timing

#: Packs on their way at once.
CONCURRENCY = 64


def entries(prefix: str, count: int, due: int, *, topic: str, payload: bytes, period: timedelta) -> Iterator[Entry]:
    """Occurrences of `count` schedules, all due at one instant (ms UTC)."""
    spec = encode_spec(Spec(recurrence=Every(period, anchor=to_datetime(due)), topic=topic))
    for number in range(count):
        yield Entry(f"{prefix}-{number}", due, due, 1, spec=spec, payload=payload)


def packs(levels: Levels, waiting: Iterable[Entry], new_id: Callable[[], bytes]) -> list[tuple[Bucket, PackRow]]:
    """The packs that hold these entries on the minute level."""
    buckets: defaultdict[Bucket, list[Entry]] = defaultdict(list)
    for entry in waiting:
        buckets[levels.bucket(Level.MINUTE, entry.due, entry.schedule_id)].append(entry)
    return [
        (bucket, PackRow(members[0].due, new_id(), encode_pack(members)))
        for bucket, of_bucket in buckets.items()
        for members in pack(of_bucket)
    ]


async def write_packs(store: Store, rows: Iterable[tuple[Bucket, PackRow]]) -> None:
    """Write packs, so many at once."""
    remaining = iter(rows)
    persistence = Persistence(SystemClock(), Timing())

    async def writer() -> None:
        for bucket, row in remaining:
            await persistence.until_answered(partial(store.write_pack, bucket, row))

    await asyncio.gather(*(writer() for _ in range(CONCURRENCY)))


def new_id() -> bytes:
    """A fresh id."""
    return uuid.uuid4().bytes
