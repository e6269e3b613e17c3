"""The cluster behind the store: three replicas, one order of conditional writes, and the network to everybody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

from simulation.history import History
from simulation.network import Network, NetworkFaults
from simulation.replica import Replica
from simulation.transactions import Transactions
from simulation.traps import Traps
from tocsin.schema.errors import StoreTimeout, StoreUnavailable

T = TypeVar("T")
A = TypeVar("A")

MAJORITY = 2


class Cluster:
    """Three replicas, the order of conditional writes, and the network between them and everybody.

    Args:
        random: decides every delay and fault.
        true_ms: the true time, ms UTC; each replica's clock is off by its own skew.
        timeout_ms: how long a call waits for its majority.
        page_rows: rows of a page at most.
    """

    def __init__(
        self,
        random: Random,
        true_ms: Callable[[], float],
        *,
        faults: NetworkFaults | None = None,
        delay_ms: float = 4,
        timeout_ms: float = 600,
        page_rows: int = 5,
        heartbeat_ttl_ms: int = 10_000,
        history: History | None = None,
    ) -> None:
        self.random = random
        self.true_ms = true_ms
        self.replicas = tuple(Replica(number) for number in range(3))
        self.network = Network(random, faults or NetworkFaults(), delay_ms=delay_ms)
        self.transactions = Transactions(
            self.network,
            timeout_ms=timeout_ms,
            applied=history.schedule_applied if history else _unseen,
            leased=history.lease_applied if history else _unseen,
        )
        self.history = history
        self.timeout_ms = timeout_ms
        self.page_rows = page_rows
        self.heartbeat_ttl_ms = heartbeat_ttl_ms
        #: How many replicas the next request reaches.
        self.reach = len(self.replicas)
        #: What a store-wide step of the clocks adds.
        self.step_ms: float = 0

    def clock_of(self, replica: Replica) -> int:
        """The reading of one coordinator's clock."""
        return int(self.true_ms() + replica.skew_ms + self.step_ms)

    def ask(self, request: Callable[[Replica], A], *, writes: bool) -> asyncio.Future[list[A]]:
        """Ask all three; done with the answers of the first two, or StoreTimeout."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[A]] = loop.create_future()
        answers: list[A] = []

        def answered(answer: A) -> None:
            answers.append(answer)
            if len(answers) == MAJORITY and not future.done():
                timer.cancel()
                future.set_result(answers.copy())

        def expired() -> None:
            if not future.done():
                future.set_exception(StoreTimeout())

        timer = loop.call_later(self.timeout_ms / 1000, expired)
        reached = self.replicas if self.reach == len(self.replicas) else self.random.sample(self.replicas, self.reach)
        for replica in reached:
            self.network.ask(replica, request, answered, writes=writes)
        return future

    def require_majority(self) -> None:
        """Refuse what cannot succeed, before anything is attempted."""
        up = sum(not replica.down for replica in self.replicas)
        if up < MAJORITY or self.network.chance(self.network.faults.unavailable):
            raise StoreUnavailable


class Client:
    """How one process makes calls to the cluster; it may be stopped or killed in the middle of any."""

    def __init__(self, cluster: Cluster, *, traps: Traps | None = None) -> None:
        self._cluster = cluster
        self._history = cluster.history
        self._traps = traps

    async def _call(self, name: str, send: Callable[[], asyncio.Future[T]]) -> T:
        """One call: the process may be stopped or killed before the request leaves, and before its answer is here."""
        muffled = self._traps is not None and await self._traps.step(name, sent=False)
        self._cluster.require_majority()
        self._cluster.reach = 1 if muffled else len(self._cluster.replicas)
        future = send()
        if self._traps is not None:
            await self._traps.step(name, sent=True)
        return await future

    async def _write(self, name: str, request: Callable[[Replica], None]) -> None:
        await self._call(name, lambda: self._cluster.ask(request, writes=True))

    async def _read(self, name: str, request: Callable[[Replica], A]) -> list[A]:
        return await self._call(name, lambda: self._cluster.ask(request, writes=False))


def _unseen(_: object) -> None:
    """Nobody watches."""
