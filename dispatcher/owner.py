"""The owner of one shard range under one epoch: seal and read, tick by tick.

    seal(level, c)   write sealed = c, until it is acknowledged. No acknowledgement, no read. A new owner writes its own
                     value even where the old owner's is as high: what it saw may not be on a majority yet
    read             everything up to c that is not committed, each page begun after that acknowledgement
    tick             seal near at c ≥ now; read near and change markers up to c; apply the markers; dispatch what is
                     due ≤ c; after the acknowledgement re-arm; committed = T once everything up to T is finished

Nothing due at t is dispatched before near is sealed at or above t and read, so a change acknowledged at a position ≤ t
always wins, across takeovers too. A new owner first loads the markers positioned after committed − `marker_limit_ms`.

`c` follows the store's clock. After a step back it goes on at half the speed of time, so a step heals in twice its
length; the frontier is read again each second, and a higher sealed value, of a newer owner say, is adopted.

Three loops share one memory (waiting.py): near ticks, minute reads each minute `lead_ms` ahead, far (cascade.py)
cascades a day the day before; audits.py runs beside them. They stop once the lease is not trusted any more. What is
under way then runs on: its inserts are safe whoever owns the range.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine, Iterable
from typing import Any

import msgspec

from tocsin.dispatcher.audits import RangeAudit
from tocsin.dispatcher.batches import batches
from tocsin.dispatcher.cascade import cascade_day
from tocsin.dispatcher.dispatch import Dispatch
from tocsin.dispatcher.flight import cached_spec, is_plain
from tocsin.dispatcher.giving_up import give_up_entry
from tocsin.dispatcher.lately import identity
from tocsin.dispatcher.reading import Reader, in_stretches
from tocsin.dispatcher.record import record_of
from tocsin.dispatcher.services import Services
from tocsin.dispatcher.verification import Verifier
from tocsin.dispatcher.waiting import Item, Status, Waiting
from tocsin.producer.timers import recall_marker
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.errors import ClockSkew, InvalidSchedule
from tocsin.schema.levels import Level
from tocsin.schema.store import Frontier, PlacedMarker

#: Items of one publish batch: large enough to amortise a re-arm's writes, small enough to finish early.
BATCH_MAX = 500
#: Entries that are prepared in one go, a few milliseconds' work; then others have their turn.
TAKEN_AT_ONCE = 400
#: Entries of a range in memory beyond which old minutes are read no further until some are dispatched.
BACKLOG_MAX = 2_000


class Trust:
    """How long a lease may be relied on, on this host's monotonic clock.

    Trust that lapsed once does not come back with the next heartbeat: what was given up meanwhile would never be taken
    up again. The range is let go and acquired anew.
    """

    def __init__(self) -> None:
        self.until = 0
        self.lost = False
        self._lapsed = False

    def holds(self, now: int) -> bool:
        """Whether the lease is still trusted."""
        self._lapsed = self._lapsed or now >= self.until
        return not (self.lost or self._lapsed)


class RangeOwner:
    """Owns one shard range until its trust ends or `stop` is called."""

    def __init__(self, services: Services, shard_range: int, epoch: int, trust: Trust) -> None:
        self.shard_range = shard_range
        self.epoch = epoch
        self.trust = trust
        self.waiting = Waiting(services.load)
        self.committed = 0
        self._services = services
        self._timing = services.timing
        self._dispatch = Dispatch(
            services,
            shard_range,
            self.waiting,
            holds=self._holds,
            near_read=lambda: self._near_read,
            verify_again=lambda item: self._spawn(self._verifier.entries([item])),
            expect=lambda position: heapq.heappush(self._expected, position),
        )
        self._reader = Reader(services, shard_range)
        self._audit = RangeAudit(
            services.audits,
            shard_range,
            services.levels,
            now=self._now,
            goes_on=self._goes_on,
            pause=self._pause,
            owing=lambda error: services.observer.troubled("owes", error),
        )
        self._verifier = Verifier(services, self.waiting, release=self._release, goes_on=self._goes_on)
        #: Near positions that this owner has written itself: no need to wait for a tick to learn of them.
        self._expected: list[int] = []
        self._near_read = -1
        self._minute_read = -1
        #: Up to where the minutes before the running one are read; None: all of them are.
        self._backlog_read: int | None = None
        self._sealed_near = 0
        self._sealed_at = 0
        self._frontier_read_at = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Own the range. Returns once the loops have ended and what was under way is finished.

        Raises:
            UnknownFormat: a newer release wrote a pack; give the range back.
        """
        try:
            await self._run()
        finally:
            self.waiting.leave()

    def stop(self) -> None:
        """A planned stop: read and publish nothing new; `run` returns once what is under way is finished."""
        self._dispatch.stopping = True
        self._services.load.rearm_now()
        self._wake.set()

    async def write_committed(self) -> None:
        """Write progress a last time, so that the next owner repeats as little as possible; one try.

        Raises:
            StoreTimeout, StoreUnavailable: the next owner repeats a little more.
        """
        committed = self._settled()
        if committed is not None:
            await self._services.store.write_frontier(self.shard_range, {"committed": committed})

    # Loops

    async def _run(self) -> None:
        frontier = await self._services.inserter.read_frontier(self.shard_range)
        self.committed = frontier.committed
        self._adopt(frontier)
        self._audit.look(frontier.committed)
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._near_loop(frontier.committed))
            loops.create_task(self._minute_loop(frontier.committed))
            loops.create_task(self._far_loop(frontier.committed_far))
            loops.create_task(self._audit.watch(lambda: self.committed))
            loops.create_task(self._audit.walk(frontier.audited, lambda pieces: self._write({"audited": pieces})))
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._failure is not None:
            raise self._failure

    async def _near_loop(self, read_to: int) -> None:
        oldest_marker = read_to - self._timing.marker_limit_ms - self._timing.marker_slack_ms
        markers_read_to = max(oldest_marker, self._services.genesis - self._timing.marker_slack_ms)
        while self._goes_on():
            await self._adopt_higher_seal()
            if not self._goes_on():
                return
            if not self._may_seal():
                await self._wait_until(self._now() + self._timing.tick_ms)
                continue
            now = self._services.clock.monotonic_ms()
            sealed_at = self._now()
            seal = max(sealed_at, self._sealed_near + (now - self._sealed_at) // 2 + 2)
            await self._seal("sealed_near", seal)
            self._sealed_near, self._sealed_at = seal, now
            self._services.frontiers.saw(self.shard_range, seal)
            packs, markers = await asyncio.gather(
                self._reader.near(read_to, seal), self._reader.markers(markers_read_to, seal)
            )
            self._take_markers(markers)
            self._take(((position, entry) for position, decoded in packs for entry in decoded), read_to, sealed_at)
            self._near_read = read_to = markers_read_to = seal
            self._release()
            self.waiting.forget_markers(self.committed)
            await self._wait_until(self._next_tick())

    async def _minute_loop(self, read_to: int) -> None:
        """Read each minute ahead of its start; what lies further back than the running minute is read beside it."""
        width = self._timing.minute_ms
        first = True
        while self._goes_on():
            seal = self._services.levels.end(Level.MINUTE, self._now() + self._timing.lead_ms)
            if seal <= read_to + 1 or not self._may_seal():
                opens = read_to + 1 - self._timing.lead_ms
                await self._pause(min(max(opens - self._now(), self._timing.tick_ms_min), width))
                continue
            await self._services.layouts.until_known(seal)
            await self._seal("sealed_minute", seal)
            live_from = seal - 2 * width - 1
            if first and read_to < live_from:
                self._backlog_read = read_to
                self._spawn(self._read_backlog(live_from))
                read_to = live_from
            first = False
            await self._read_minutes(read_to, seal - 1, sealed_at=self._now(), most_waiting=None)
            self._minute_read = read_to = seal - 1

    async def _read_backlog(self, live_from: int) -> None:
        """After an outage: old minutes in small bites, oldest first, so that what is due now is never behind them."""
        sealed_at = self._now()
        while self._backlog_read is not None and self._goes_on():
            after = self._backlog_read
            through = self._services.levels.end(Level.MINUTE, after + 1) - 1
            await self._read_minutes(after, through, sealed_at=sealed_at, most_waiting=BACKLOG_MAX)
            self._backlog_read = through if through < live_from else None

    async def _read_minutes(self, after: int, through: int, *, sealed_at: int, most_waiting: int | None) -> None:
        async for packs in self._reader.buckets(Level.MINUTE, after, through):
            for some in in_stretches(packs, TAKEN_AT_ONCE):
                async with self._services.load.turns:
                    self._take(((entry.due, entry) for entry in some), after, sealed_at)
            self._release()
            while not self._has_room(most_waiting) and self._goes_on():
                self._services.load.rearm_now()
                await self._pause(self._timing.tick_ms_min)

    def _has_room(self, most_waiting: int | None) -> bool:
        if self._services.topics.is_broker_away or (most_waiting is not None and self.waiting.count > most_waiting):
            return False
        return self._services.load.has_room

    async def _far_loop(self, read_to: int) -> None:
        day_ms = self._timing.day_ms
        while self._goes_on():
            seal = ((self._now() + self._timing.far_seal_ms) // day_ms + 1) * day_ms
            if seal <= read_to or not self._may_seal():
                await self._pause(self._timing.far_check_ms)
                continue
            await self._seal("sealed_far", seal)
            await cascade_day(self._services, self._reader.buckets(Level.FAR, read_to - 1, seal - 1), seal)
            read_to = seal
            await self._write({"committed_far": seal})

    # Seal and read

    async def _seal(self, register: str, value: int) -> None:
        registers = {register: value}
        committed = self._settled()
        if committed is not None and committed > self.committed:
            registers["committed"] = committed
        await self._write(registers)
        self.committed = max(self.committed, committed or 0)

    async def _write(self, registers: dict[str, int]) -> None:
        await self._services.persistence.until_answered(
            lambda: self._services.store.write_frontier(self.shard_range, registers)
        )

    async def _adopt_higher_seal(self) -> None:
        now = self._services.clock.monotonic_ms()
        if now - self._frontier_read_at > self._timing.frontier_reread_ms:
            self._adopt(await self._services.inserter.read_frontier(self.shard_range))

    def _adopt(self, frontier: Frontier) -> None:
        now = self._services.clock.monotonic_ms()
        if frontier.sealed_near > self._sealed_near:
            # Time runs on from here: counted from our own last seal, a pause of ours would push sealed into the future.
            self._sealed_near, self._sealed_at = frontier.sealed_near, now
        self._frontier_read_at = now

    # Into memory and out of it

    def _take(self, placed: Iterable[tuple[int, Entry]], read_to: int, sealed_at: int) -> None:
        """Take in what was read; whether an entry was missed is decided by when its place was sealed."""
        to_verify: list[Item] = []
        for position, entry in placed:
            if position <= read_to or self._services.lately.was_finished(identity(entry)):
                continue
            if entry.kind == Kind.RECALL:
                self._recall(entry)
                continue
            missed = sealed_at - entry.due > self._timing.misfire_grace_ms
            item = self.waiting.add(entry, position, missed=missed)
            if item is None:
                continue
            if item.status is Status.VERIFYING:
                to_verify.append(item)
            else:
                self._make_ready(item)
        if to_verify:
            self._spawn(self._verifier.entries(to_verify))

    def _recall(self, entry: Entry) -> None:
        """A recall lies first in its bucket: known as a marker, it ends its timer wherever in the bucket that lies."""
        until_ms = entry.due + self._timing.marker_slack_ms
        marker = recall_marker(entry.schedule_id, entry.scheduled_for, until_ms=until_ms)
        self._take_markers([PlacedMarker(entry.due, marker)])

    def _take_markers(self, markers: Iterable[PlacedMarker]) -> None:
        to_verify = list(self.waiting.add_markers(markers))
        if to_verify:
            self._spawn(self._verifier.markers(to_verify))

    def _release(self) -> None:
        """Hand out what is due: never before now, never beyond what near was sealed and read for."""
        if not self._goes_on():
            return
        due = self.waiting.take_due(min(self._near_read, self._now()))
        ready = [item for item in due if item.spec is not None or self._make_ready(item)]
        for batch in batches(ready, BATCH_MAX):
            self._spawn(self._dispatch.run(batch))

    def _make_ready(self, item: Item) -> bool:
        """Decode the spec and build the record ahead of time; False: there is nothing to publish."""
        try:
            item.spec = cached_spec(item.entry.spec)
        except (msgspec.MsgspecError, InvalidSchedule):
            item.status = Status.DISPATCHING
            self._spawn(self._give_up(item))
            return False
        item.record = record_of(item.entry, item.spec)
        item.plain = item.alone and not item.missed and is_plain(item.entry, item.spec)
        return True

    async def _give_up(self, item: Item) -> None:
        """An entry nobody can dispatch or re-arm harms only itself."""
        await give_up_entry(self._services, self.shard_range, item.entry, "undecodable")
        self.waiting.drop(item)

    def _settled(self) -> int | None:
        """What committed may claim now."""
        if self._near_read < 0 or self._minute_read < 0 or self._audit.owes:
            return None
        read = min(self._near_read, self._minute_read)
        if self._backlog_read is not None:
            read = min(read, self._backlog_read)
        open_from = self.waiting.settled_before()
        return read if open_from is None else min(read, open_from - 1)

    # Time and tasks

    def _now(self) -> int:
        return self._services.store_clock.now_ms()

    def _holds(self) -> bool:
        return self.trust.holds(self._services.clock.monotonic_ms())

    def _goes_on(self) -> bool:
        return self._failure is None and not self._dispatch.stopping and self._holds()

    def _may_seal(self) -> bool:
        """Whether sealing and reading may go on: the clocks agree, and somebody takes what we read."""
        if self._services.topics.is_broker_away:
            return False
        try:
            self._services.store_clock.require_agreement()
        except ClockSkew as error:
            self._services.observer.troubled("clock_skew", error)
            return False
        return True

    def _next_tick(self) -> int:
        now = self._now()
        while self._expected and self._expected[0] <= self._near_read:
            heapq.heappop(self._expected)
        wanted = [self.waiting.next_due(), self._expected[0] if self._expected else None]
        # All ranges of a process tick in the same moment, so that a store can be asked for many of them at once.
        latest = now + self._timing.tick_ms - self._services.clock.monotonic_ms() % self._timing.tick_ms
        return max(now + self._timing.tick_ms_min, min([latest, *(at + 1 for at in wanted if at is not None)]))

    async def _wait_until(self, instant: int) -> None:
        await self._pause(max(0, instant - self._now()))

    async def _pause(self, duration_ms: int) -> None:
        """Wait, but end at once when the owner is to stop."""
        if self._dispatch.stopping:
            return
        try:
            async with asyncio.timeout(duration_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
            self._wake.set()
