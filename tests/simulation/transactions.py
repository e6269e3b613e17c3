"""Conditional writes: one linear order, and callers who may never learn their place in it.

What Cassandra does with Paxos is taken as given here: a conditional write takes effect at one instant, or never. What
is simulated is everything a caller must survive: it may be applied although no answer came, be applied long after the
caller gave up, or never. `applied` is called with each row that takes effect, in that order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from simulation.network import Network, NetworkFaults, later
from tocsin.schema.errors import StoreTimeout
from tocsin.schema.schedules import Calendar, ScheduleRow
from tocsin.schema.store import Lease, Settings

T = TypeVar("T")

CALM = NetworkFaults()


class Transactions:
    """The rows that are written under a condition."""

    def __init__(
        self,
        network: Network,
        *,
        timeout_ms: float,
        applied: Callable[[ScheduleRow], None],
        leased: Callable[[Lease], None],
    ) -> None:
        self._network = network
        self._timeout_ms = timeout_ms
        self._applied = applied
        self._latest_ms = 0.0
        self._leased = leased
        self.settings: Settings | None = None
        self.schedules: dict[str, ScheduleRow] = {}
        self.calendars: dict[str, Calendar] = {}
        self.requests: dict[tuple[str, str], int] = {}
        #: Per range the newest lease, and the one before it while the newest was neither acknowledged nor settled.
        self.leases: dict[int, Lease] = {}
        self._unsettled: dict[int, Lease] = {}

    def submit(self, apply: Callable[[], T]) -> asyncio.Future[T]:
        """Apply in some order with the others; the answer may never come."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        network, random = self._network, self._network.random
        arrival = self._arrival_ms(4)
        if network.chance(network.faults.unknown):
            fate = random.random()
            if fate < 0.4:
                later(arrival, apply)
            elif fate < 0.7:
                later(random.uniform(100, 2_000), apply)
            self._fail_later(future)
        else:
            later(arrival, self._apply_and_answer, apply, future, copy_context())
        return future

    def read(self, answer: Callable[[], T]) -> asyncio.Future[T]:
        """A serial read: what took effect before it stands, and nothing else."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._network.chance(self._network.faults.lost):
            self._fail_later(future)
        else:
            arrival = self._arrival_ms(2)
            later(arrival, self._apply_and_answer, answer, future, copy_context())
        return future

    def _apply_and_answer(self, apply: Callable[[], T], future: asyncio.Future[T], caller: object) -> None:
        result = apply()
        loop = asyncio.get_running_loop()
        loop.call_later(self._network.delay_ms() / 1000, _resolve, future, result, context=caller)  # type: ignore[arg-type]

    def _arrival_ms(self, messages: int) -> float:
        """How long a request takes. In a calm it overtakes nobody, so a serial read settles what was sent before."""
        now = asyncio.get_running_loop().time() * 1000
        arrival = now + sum(self._network.delay_ms() for _ in range(messages))
        if self._network.faults == CALM:
            arrival = max(arrival, self._latest_ms + 0.1)
            self._latest_ms = arrival
        return arrival - now

    def _fail_later(self, future: asyncio.Future[T]) -> None:
        asyncio.get_running_loop().call_later(self._timeout_ms / 1000, _refuse, future)

    # What is applied

    def initialise(self, settings: Settings) -> Settings:
        self.settings = self.settings or settings
        for shard_range in range(self.settings.shard_ranges):
            free = Lease(shard_range=shard_range, owner=None, epoch=0, token=b"")
            self.leases.setdefault(shard_range, free)
        return self.settings

    def replace_settings(self, settings: Settings, expected: Settings) -> bool:
        if self.settings != expected:
            return False
        self.settings = settings
        return True

    def insert_schedule(self, row: ScheduleRow) -> ScheduleRow | None:
        current = self.schedules.get(row.schedule_id)
        if current is None:
            self._keep(row)
        return current

    def replace_schedule(self, row: ScheduleRow, expected_version: int) -> ScheduleRow | bool | None:
        """False: there is no row."""
        current = self.schedules.get(row.schedule_id)
        if current is None:
            return False
        if current.version != expected_version:
            return current
        self._keep(row)
        return None

    def remove_schedule(self, schedule_id: str, expected_version: int) -> bool:
        current = self.schedules.get(schedule_id)
        if current is None or current.version != expected_version:
            return False
        del self.schedules[schedule_id]
        return True

    def _keep(self, row: ScheduleRow) -> None:
        self.schedules[row.schedule_id] = row
        self._applied(row)

    def write_calendar(self, calendar: Calendar, expected_version: int) -> bool:
        current = self.calendars.get(calendar.name)
        if (current.version if current else 0) != expected_version:
            return False
        self.calendars[calendar.name] = calendar
        return True

    def acquire_lease(self, lease: Lease, expected_epoch: int) -> bool:
        current = self.leases[lease.shard_range]
        if current.epoch != expected_epoch:
            self.settle_lease(lease.shard_range)
            return False
        self._unsettled[lease.shard_range] = current
        self.leases[lease.shard_range] = lease
        self._leased(lease)
        return True

    def settle_lease(self, shard_range: int) -> Lease:
        """What a serial read or an acknowledgement does: from here on everybody sees it."""
        self._unsettled.pop(shard_range, None)
        return self.leases[shard_range]

    def glance_at_leases(self) -> list[Lease]:
        """A plain read: of an acquire that nobody was told of it may show the one before."""
        return [
            self._unsettled[shard_range]
            if shard_range in self._unsettled and self._network.random.random() < 0.5
            else self.leases[shard_range]
            for shard_range in sorted(self.leases)
        ]


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _refuse(future: asyncio.Future[T]) -> None:
    if not future.done():
        future.set_exception(StoreTimeout())
