"""The audits of a dispatcher: what its ranges owe after a long outage, at once; every schedule, slowly, for ever.

**What is owed.** Rows leave `retention_ms` after their due, so a range whose `committed` is older may have lost what
waited there, and with it the chain of its schedule. The register would lie if it moved on. So whoever owns a range that
lags by nearly as much (`Timing.owed_ms`) *holds* committed where it is, walks all schedules, and arms for
each of the range's the first occurrence due after committed, late as it is; rows written now live as long as ever. When
the walk is done, committed moves again. Should the owner die in between, the next one finds committed where it was, and
begins anew: no note of the walk is needed.

Dispatching goes on meanwhile. Ranges of one process that owe share a walk; one that asks while a walk is under way
waits for the next.

**Everything.** The hash of an id, which its range follows, is not the store's key order, in which schedules can be
walked. So the store's order is cut into pieces, and each range has a part of them to see to, whosever schedules lie
there: piece p belongs to range p modulo the number of ranges. How many pieces a range has walked is a register of its
own, `audited`, so that whoever owns it next goes on where the last one stopped. A round takes a week.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tocsin.producer.audit import Audit, AuditReport
from tocsin.producer.insert import Inserter
from tocsin.schema.clock import Clock, StoreClock
from tocsin.schema.errors import TocsinError
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS
from tocsin.schema.levels import Levels
from tocsin.schema.store import Store

#: Pieces of a range's part: with a billion schedules and 64 ranges, one holds 15,000 schedules.
PIECES = 1_024
#: How long a round over all of them takes.
ROUND_MS = 7 * DAY_MS
#: A range that was just acquired walks its first piece after this: a takeover has better things to do.
FIRST_PIECE_MS = MINUTE_MS
#: Segments of a walk over what is owed.
OWED_SEGMENTS = 64
#: Schedules a second: of what is owed, and of the slow audit, each in one process. Four processes see a billion within
#: a week at the slow one.
OWED_PER_SECOND = 5_000
SLOW_PER_SECOND = 500


class RetentionNear(TocsinError):
    """A range lags by nearly as much as rows live; committed stands still until what it owes is armed anew."""

    retriable = True

    def __init__(self, shard_range: int, lag_ms: int) -> None:
        self.shard_range = shard_range
        self.lag_ms = lag_ms
        super().__init__(
            f"shard range {shard_range} lags by {lag_ms / HOUR_MS:.0f} h, nearly as long as rows live; what it owes is "
            "armed anew, and committed stands still until then."
        )


class Audits:
    """The walks of one process, shared by its ranges.

    Args:
        store: holds the schedules.
        levels: the store's geometry.
        inserter: the insert rule, as dispatchers follow it.
        store_clock: says what is still to come.
        clock: paces the walks.
        slow: whether everything is walked, too.
    """

    def __init__(
        self,
        store: Store,
        levels: Levels,
        inserter: Inserter,
        *,
        store_clock: StoreClock,
        clock: Clock,
        slow: bool,
    ) -> None:
        self.slow = slow
        self._shard_ranges = levels.shard_ranges
        self._owed, self._slow = (
            Audit(store, levels, inserter, store_clock=store_clock, clock=clock, per_second=rate)
            for rate in (OWED_PER_SECOND, SLOW_PER_SECOND)
        )
        #: Ranges that wait for the next walk, with their committed, and who waits.
        self._asked: dict[int, tuple[int, asyncio.Future[None]]] = {}
        self._walking: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def arm_owed(self, shard_range: int, committed: int) -> None:
        """Arm what this range owes since committed (ms UTC), by a walk that begins after this call."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked[shard_range] = committed, done
        if self._walking is None:
            self._walking = asyncio.get_running_loop().create_task(self._walk_owed())
        await done

    def close(self) -> None:
        """Leave what is under way; the next owner begins it anew."""
        if self._walking is not None:
            self._walking.cancel()

    async def walk_piece(self, shard_range: int, piece: int) -> None:
        """Walk the piece of this number of the range's part; numbers go on from round to round."""
        segment = piece % PIECES * self._shard_ranges + shard_range
        async with self._one_at_a_time:
            await self._slow.walk(segment, PIECES * self._shard_ranges, AuditReport())

    async def _walk_owed(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, {}
            committed = {shard_range: since for shard_range, (since, _) in asked.items()}
            try:
                for segment in range(OWED_SEGMENTS):
                    await self._owed.walk_owed(segment, OWED_SEGMENTS, AuditReport(), committed=committed)
            except Exception as error:  # noqa: BLE001 — each range that waits fails of it, and is given to others
                _resolve(asked, error)
            else:
                _resolve(asked, None)
        self._walking = None


def _resolve(asked: dict[int, tuple[int, asyncio.Future[None]]], error: Exception | None) -> None:
    for _, done in asked.values():
        if done.done():  # Its range was let go meanwhile.
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


class RangeAudit:
    """What the audits mean to one owner.

    Args:
        audits: the walks of the process.
        shard_range: whose.
        levels: for the durations.
        now: the store's time, ms UTC.
        goes_on: whether the owner still owns.
        pause: waits so many ms, less where the owner is to stop.
        owing: hears that the range owes.
    """

    def __init__(
        self,
        audits: Audits,
        shard_range: int,
        levels: Levels,
        *,
        now: Callable[[], int],
        goes_on: Callable[[], bool],
        pause: Callable[[int], Awaitable[None]],
        owing: Callable[[RetentionNear], None],
    ) -> None:
        self._owing = owing
        self._audits = audits
        self._shard_range = shard_range
        self._timing = levels.timing
        self._now = now
        self._goes_on = goes_on
        self._pause = pause
        #: Since when everything owed was written anew.
        self._armed_at = 0
        #: Whether something owed may have left the store: committed must not move.
        self.owes = False

    def look(self, committed: int) -> bool:
        """Whether something owed may leave, or have left, the store; from here on committed is held then."""
        self.owes = self.owes or self._now() - max(committed, self._armed_at) > self._timing.owed_ms
        return self.owes

    async def watch(self, committed: Callable[[], int]) -> None:
        """Arm what is owed whenever the range lags too far, until the owner stops."""
        while self._goes_on():
            if self.look(committed()):
                began = self._now()
                self._owing(RetentionNear(self._shard_range, began - committed()))
                await self._until_stopped(self._audits.arm_owed(self._shard_range, committed()))
                if not self._goes_on():
                    return
                self._armed_at = began
                self.owes = False
            await self._pause(self._timing.far_check_ms)

    async def walk(self, audited: int, note: Callable[[int], Awaitable[None]]) -> None:
        """Walk piece after piece, from the number that was noted, until the owner stops."""
        if not self._audits.slow:
            return
        wait_ms = FIRST_PIECE_MS
        while True:
            await self._pause(wait_ms)
            if not self._goes_on():
                return
            await self._until_stopped(self._audits.walk_piece(self._shard_range, audited))
            if not self._goes_on():
                return
            audited += 1
            await note(audited)
            wait_ms = ROUND_MS // PIECES

    async def _until_stopped(self, work: Awaitable[None]) -> None:
        """Do it, but leave it when the owner is to stop."""
        task = asyncio.ensure_future(work)
        while not task.done() and self._goes_on():
            waiting = asyncio.ensure_future(self._pause(self._timing.far_check_ms))
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        if task.done():
            await task
        else:
            task.cancel()
