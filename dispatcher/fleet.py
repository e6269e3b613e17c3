"""A dispatcher process in its fleet: heartbeats, leases, takeover, trust.

    heartbeat   each `heartbeat_ms` the dispatcher's number rises
    watch       who has seen the same (epoch, heartbeat) of a range for `lease_ttl_ms`, on its own monotonic clock, may
                take it. No two hosts' clocks are ever compared
    acquire     a conditional write IF epoch = the one seen; the epoch grows with each owner and each release. An
                unknown outcome is settled by its token, serially; until then the range is not ours
    trust       after each heartbeat the leases are read back. Trust runs until heartbeat start + ttl − margin, and
                only while the row still names our own epoch; else the range is let go at once. Without that read two
                owners could stay for ever
    release     a planned stop, or a range that is better owned by another (assignment.py): read nothing new, wait for
                what is under way, write progress, release

Leases only save repeats: that nothing is lost or early rests on the registers, not on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from tocsin.dispatcher.assignment import assign
from tocsin.dispatcher.audits import Audits
from tocsin.dispatcher.lately import Lately
from tocsin.dispatcher.layouts import KnownLayouts
from tocsin.dispatcher.load import Load
from tocsin.dispatcher.owner import RangeOwner, Trust
from tocsin.dispatcher.publisher import Publisher
from tocsin.dispatcher.services import Observer, Services
from tocsin.dispatcher.topics import Topics
from tocsin.producer.calendars import CalendarCache
from tocsin.producer.frontiers import Frontiers
from tocsin.producer.insert import Inserter
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import Clock, StoreClock
from tocsin.schema.errors import StoreTimeout, StoreUnavailable
from tocsin.schema.levels import Levels
from tocsin.schema.store import Heartbeat, Lease, Settings, Store
from tocsin.schema.timing import Timing

#: How long a planned stop waits for what is under way.
STOP_MS = 5_000
#: How long a range that failed here is left to others before it is tried here again.
AVOID_MS = 10_000
#: Calendars are read again after this, ms; how long a new date may go unnoticed.
CALENDARS_FRESH_MS = 60_000


class Watch:
    """Since when each range's (epoch, heartbeat of its owner) stands still, on our monotonic clock."""

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._ranges: dict[int, tuple[Lease, int | None, int]] = {}
        self._numbers: dict[str, tuple[int, int]] = {}

    def see(self, leases: Sequence[Lease], numbers: Mapping[str, int], now: int) -> list[Lease]:
        """Look at what was read just now; the newest lease seen of each range.

        A conditional write whose outcome stayed unknown may stand on a minority: one reading shows it, the next does
        not. Epochs only grow, so the highest seen is the one to watch, and to outdo.
        """
        for lease in leases:
            newest, number, since = self._ranges.get(lease.shard_range, (lease, None, now))
            if lease.epoch > newest.epoch:
                newest, number, since = lease, None, now
            # A heartbeat that expired is no new one: the dead would be waited for twice.
            heard = numbers.get(newest.owner or "", number)
            if heard != number:
                since = now
            self._ranges[lease.shard_range] = newest, heard, since
        self._numbers = {
            dispatcher: self._numbers[dispatcher]
            if self._numbers.get(dispatcher, (None, 0))[0] == number
            else (number, now)
            for dispatcher, number in numbers.items()
        }
        return [self._ranges[lease.shard_range][0] for lease in leases]

    def may_take(self, lease: Lease, now: int) -> bool:
        """Whether the range is free, or its owner has not been heard of for long enough."""
        return lease.owner is None or now - self._ranges[lease.shard_range][2] >= self._ttl_ms

    def living(self, now: int) -> list[str]:
        """Dispatchers whose heartbeat moved lately."""
        return [dispatcher for dispatcher, (_, since) in self._numbers.items() if now - since < self._ttl_ms]


class Dispatcher:
    """One dispatcher process.

    Args:
        services: what it works with; the publisher is started and closed here.
        new_token: a fresh lease token each call, 16 bytes.
        address: shown to operators.
        release: shown to operators.
    """

    def __init__(
        self, services: Services, *, new_token: Callable[[], bytes], address: str = "", release: str = ""
    ) -> None:
        self.services = services
        self.owners: dict[int, RangeOwner] = {}
        self._timing = services.timing
        self._new_token = new_token
        self._address = address
        self._release = release
        self._number = 0
        self._watch = Watch(services.timing.lease_ttl_ms)
        self._trusted_until = 0
        self._running: dict[int, asyncio.Task[None]] = {}
        #: Ranges whose acquire is under way: a slow one must not hold up the heartbeat.
        self._taking: set[int] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._avoided_until: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Dispatch until `stop` is called, then hand everything over."""
        services = self.services
        await services.persistence.until_answered(services.store_clock.refresh)
        await services.publisher.start()
        clock = asyncio.get_running_loop().create_task(self._read_clock())
        try:
            while not self._stopping.is_set():
                began = services.clock.monotonic_ms()
                try:
                    await self._beat(began)
                except (StoreUnavailable, StoreTimeout) as error:
                    services.observer.troubled("heartbeat_failed", error)
                self._let_go_untrusted()
                spent = services.clock.monotonic_ms() - began
                await self._pause(max(self._timing.heartbeat_ms - spent, self._timing.tick_ms_min))
            await self._hand_over()
        finally:
            clock.cancel()
            services.audits.close()
            await services.publisher.close(STOP_MS)

    def stop(self) -> None:
        """A planned stop; `run` returns once the ranges are handed over."""
        self._stopping.set()

    # Heartbeats, trust and the assignment

    async def _beat(self, began: int) -> None:
        services = self.services
        self._number += 1
        beat = Heartbeat(
            dispatcher_id=services.dispatcher_id, number=self._number, address=self._address, release=self._release
        )
        await services.store.write_heartbeat(beat)
        leases = await services.store.read_leases()
        self._trusted_until = began + self._timing.lease_ttl_ms - self._timing.lease_margin_ms
        self._renew_trust(leases)
        beats = await services.store.read_heartbeats()
        now = services.clock.monotonic_ms()
        newest = self._watch.see(leases, {each.dispatcher_id: each.number for each in beats}, now)
        await self._follow_assignment(newest, now)

    def _renew_trust(self, leases: Sequence[Lease]) -> None:
        """Trust goes on only for ranges whose lease still names our own epoch."""
        for lease in leases:
            owner = self.owners.get(lease.shard_range)
            if owner is None:
                continue
            if lease.owner == self.services.dispatcher_id and lease.epoch == owner.epoch:
                owner.trust.until = max(owner.trust.until, self._trusted_until)
            else:
                self._let_go(owner, "taken by another")

    async def _follow_assignment(self, leases: Sequence[Lease], now: int) -> None:
        me = self.services.dispatcher_id
        living = {me, *self._watch.living(now)}
        owners = {lease.shard_range: None if self._watch.may_take(lease, now) else lease.owner for lease in leases}
        owners |= dict.fromkeys(self.owners, me)
        wanted = assign(living, owners)
        for shard_range, owner in list(self.owners.items()):
            if wanted[shard_range] != me:
                self._leave(owner, "better owned by another")
        for lease in leases:
            shard_range = lease.shard_range
            if shard_range in self._taking or shard_range in self._running:
                continue
            avoided = now < self._avoided_until.get(shard_range, now)
            if lease.owner == me and (avoided or wanted[shard_range] != me):
                # A release of unknown outcome: while our heartbeat rises nobody else would ever take the range.
                self._spawn(self._free(shard_range, lease.epoch))
            elif wanted[shard_range] == me and not avoided and (lease.owner == me or self._watch.may_take(lease, now)):
                self._taking.add(shard_range)
                self._spawn(self._take(lease))

    async def _take(self, lease: Lease) -> None:
        try:
            await self._try_to_take(lease)
        finally:
            self._taking.discard(lease.shard_range)

    async def _try_to_take(self, lease: Lease) -> None:
        epoch = lease.epoch + 1
        token = self._new_token()
        mine = msgspec.structs.replace(lease, owner=self.services.dispatcher_id, epoch=epoch, token=token)
        if not await self._acquire(mine, lease.epoch):
            return
        if self._stopping.is_set():
            await self._free(lease.shard_range, epoch)
        elif self.services.clock.monotonic_ms() < self._trusted_until:
            trust = Trust()
            trust.until = self._trusted_until
            owner = RangeOwner(self.services, lease.shard_range, epoch, trust)
            self.owners[lease.shard_range] = owner
            self._running[lease.shard_range] = self._spawn(self._own(owner))
            self.services.observer.owns(lease.shard_range, epoch)

    async def _acquire(self, lease: Lease, expected_epoch: int) -> bool:
        """Whether the lease is ours now; an unknown outcome is settled by the token."""
        store = self.services.store
        try:
            return await store.acquire_lease(lease, expected_epoch)
        except (StoreTimeout, StoreUnavailable) as error:
            self.services.observer.troubled("acquire_unknown", error)
        try:
            return (await store.read_lease(lease.shard_range)).token == lease.token
        except (StoreTimeout, StoreUnavailable):
            return False

    # Owning and letting go

    async def _own(self, owner: RangeOwner) -> None:
        """Run the owner; should it fail, say so, and give the range to others."""
        try:
            await owner.run()
        except Exception as error:  # noqa: BLE001 — one broken range must not stop the others, and is reported
            self.services.observer.troubled("range_failed", _first_of(error))
            self._avoided_until[owner.shard_range] = self.services.clock.monotonic_ms() + AVOID_MS
            if not owner.trust.lost:
                self._let_go(owner, "failed")
                await self._free(owner.shard_range, owner.epoch)
        finally:
            self._running.pop(owner.shard_range, None)
            if self.owners.get(owner.shard_range) is owner:
                del self.owners[owner.shard_range]

    def _let_go(self, owner: RangeOwner, reason: str) -> None:
        """The lease is not ours any more, or not trusted: stop at once."""
        if not owner.trust.lost:
            owner.trust.lost = True
            owner.stop()
            self.services.observer.lost(owner.shard_range, owner.epoch, reason)
        if self.owners.get(owner.shard_range) is owner:
            del self.owners[owner.shard_range]

    def _let_go_untrusted(self) -> None:
        now = self.services.clock.monotonic_ms()
        for owner in list(self.owners.values()):
            if not owner.trust.holds(now):
                self._let_go(owner, "heartbeats failed")

    async def _give_up(self, owner: RangeOwner, reason: str) -> None:
        """A planned release: finish what is under way, write progress, release the lease."""
        running = self._running.get(owner.shard_range)
        if self.owners.get(owner.shard_range) is not owner or running is None:
            return
        owner.stop()
        del self.owners[owner.shard_range]
        await asyncio.wait([running], timeout=STOP_MS / 1000)
        if owner.trust.lost:
            return
        owner.trust.lost = True
        try:
            await owner.write_committed()
        except (StoreTimeout, StoreUnavailable) as error:
            self.services.observer.troubled("release_failed", error)
        await self._free(owner.shard_range, owner.epoch)
        self.services.observer.lost(owner.shard_range, owner.epoch, reason)

    async def _free(self, shard_range: int, epoch: int) -> None:
        """Free the lease; where that fails, the next heartbeat finds it under our name and tries again."""
        free = Lease(shard_range=shard_range, owner=None, epoch=epoch + 1, token=self._new_token())
        try:
            await self.services.store.acquire_lease(free, epoch)
        except (StoreTimeout, StoreUnavailable) as error:
            self.services.observer.troubled("release_failed", error)

    def _leave(self, owner: RangeOwner, reason: str) -> None:
        task = self._spawn(self._give_up(owner, reason))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _hand_over(self) -> None:
        for owner in list(self.owners.values()):
            self._leave(owner, "planned stop")
        if self._leaving:
            await asyncio.wait(self._leaving)
        try:
            await self.services.store.delete_heartbeat(self.services.dispatcher_id)
        except (StoreTimeout, StoreUnavailable) as error:
            self.services.observer.troubled("heartbeat_failed", error)

    async def _read_clock(self) -> None:
        while True:
            await self.services.clock.sleep_ms(self._timing.clock_refresh_ms)
            try:
                await self.services.store_clock.refresh()
            except (StoreTimeout, StoreUnavailable) as error:
                self.services.observer.troubled("clock_unread", error)

    async def _pause(self, duration_ms: int) -> None:
        try:
            async with asyncio.timeout(duration_ms / 1000):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _first_of(error: Exception) -> Exception:
    """What failed first: an owner's loops run in a group, which by itself says nothing."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def make_dispatcher(
    store: Store,
    settings: Settings,
    publisher: Publisher,
    *,
    dispatcher_id: str,
    observer: Observer,
    timing: Timing,
    clock: Clock,
    new_id: Callable[[], bytes],
    address: str = "",
    release: str = "",
    audits_everything: bool = False,
) -> Dispatcher:
    """A dispatcher on an open store.

    Args:
        store: opened and closed by the caller.
        settings: what `store.open` returned.
        publisher: started and closed by the dispatcher.
        dispatcher_id: unique in the fleet, fresh with each process.
        observer: hears what happens.
        timing: the durations of the protocol; the same for every process of a store.
        clock: this host's.
        new_id: fresh pack ids and tokens, 16 bytes each.
        address: shown to operators.
        release: shown to operators.
        audits_everything: walk all schedules slowly, for ever, besides what an outage makes necessary.
    """
    levels = Levels(timing, settings.shard_ranges, settings.layouts)
    store_clock = StoreClock(store, clock, skew_ms_max=timing.skew_ms_max)
    frontiers = Frontiers(store, clock, timing)
    persistence = Persistence(clock, timing)
    inserter = Inserter(
        store,
        levels,
        store_clock=store_clock,
        clock=clock,
        frontiers=frontiers,
        new_id=new_id,
        marks_late=True,
        demoted=lambda level, count: observer.demoted(level.value, count),
    )
    services = Services(
        dispatcher_id=dispatcher_id,
        store=store,
        genesis=settings.genesis,
        levels=levels,
        timing=timing,
        clock=clock,
        store_clock=store_clock,
        frontiers=frontiers,
        inserter=inserter,
        persistence=persistence,
        publisher=publisher,
        lately=Lately(timing.memory_ms),
        topics=Topics(timing),
        calendars=CalendarCache(store, clock, persistence, fresh_ms=CALENDARS_FRESH_MS),
        load=Load(),
        audits=Audits(store, levels, inserter, store_clock=store_clock, clock=clock, slow=audits_everything),
        layouts=KnownLayouts(store, levels, store_clock, persistence),
        observer=observer,
    )
    return Dispatcher(services, new_token=new_id, address=address, release=release)
