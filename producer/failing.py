"""Which schedules fail: those of which an occurrence became a dead letter lately, or waits for its topic to work again.

Both are read from what is stored, of every shard range. Parked is what lies on near beyond committed although its due
is committed: it had its turn, and waits for another. So is a change that is not decided yet, but that counts its tries.
Only ids are kept; the schedules themselves are read when the list of ids is complete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from tocsin.producer.persistence import Persistence
from tocsin.schema.entries import Undecodable, decode_pack
from tocsin.schema.instants import DAY_MS
from tocsin.schema.levels import Bucket, Level, Levels
from tocsin.schema.pages import next_page
from tocsin.schema.schedules import ScheduleFilter, ScheduleRow
from tocsin.schema.store import PackRow, Store

#: A dead letter makes its schedule a failing one for this long, in ms.
FAILING_MS = DAY_MS
#: Rows read serially in one go.
READ_MAX = 200


class FailingSchedules:
    """Finds them.

    Args:
        store: holds them.
        levels: the store's geometry.
        persistence: repeats reads.
        deadline: gives the instant, on the monotonic clock, until which the next read may be repeated.
    """

    def __init__(
        self, store: Store, levels: Levels, persistence: Persistence, deadline: Callable[[], Awaitable[int]]
    ) -> None:
        self._store = store
        self._levels = levels
        self._persistence = persistence
        self._deadline = deadline

    async def rows(self, wanted: ScheduleFilter, now: int) -> AsyncIterator[ScheduleRow]:
        """The rows of failing schedules that fit, by id; now: by the store's clock, ms UTC."""
        ids: set[str] = set()
        for shard_range in range(self._levels.shard_ranges):
            ids |= await self._with_dead_letters(shard_range, now)
            ids |= await self._parked(shard_range, now)
        ordered = sorted(ids)
        for start in range(0, len(ordered), READ_MAX):
            ask = partial(self._store.read_schedules, ordered[start : start + READ_MAX])
            rows = await self._persistence.until_answered(ask, await self._deadline())
            for schedule_id in ordered[start : start + READ_MAX]:
                row = rows.get(schedule_id)
                if row is not None and wanted.fits(row):
                    yield row

    async def _with_dead_letters(self, shard_range: int, now: int) -> set[str]:
        pages = self._store.read_dead_letters(shard_range, now - FAILING_MS, now)
        ids: set[str] = set()
        while page := await self._persistence.until_answered(partial(next_page, pages), await self._deadline()):
            ids |= {letter.occurrence_key.rpartition("@")[0] for letter in page}
        return ids - {""}  # A pack that nobody could decode has a key without an id.

    async def _parked(self, shard_range: int, now: int) -> set[str]:
        timing = self._levels.timing
        ask = partial(self._store.read_frontier, shard_range)
        committed = (await self._persistence.until_answered(ask, await self._deadline())).committed
        after = max(committed, now - timing.retention_ms)
        ids: set[str] = set()
        for bucket in self._levels.buckets(Level.NEAR, shard_range, after, now + 2 * timing.park_ms_max):
            deadline = await self._deadline()
            rows = await self._persistence.until_answered(partial(self._packs, bucket, after), deadline)
            ids |= {schedule_id for row in rows for schedule_id in _parked_in(row, committed)}
        return ids

    async def _packs(self, bucket: Bucket, after: int) -> list[PackRow]:
        return [row async for page in self._store.read_packs(bucket, after) for row in page]


def _parked_in(row: PackRow, committed: int) -> set[str]:
    """Whose parked occurrences a pack on near holds."""
    try:
        entries = decode_pack(row.body)
    except Undecodable:
        return set()  # Its owner makes it a dead letter.
    return {
        entry.schedule_id
        for entry in entries
        if entry.has_schedule and entry.verify and not entry.tries and entry.due <= committed
    }
