"""A store of three replicas that keeps the contract of tocsin.schema.store and not one promise more.

Every write goes to all three and returns with the second acknowledgement; every read merges the first two answers.
Which two, and what they had by then, is up to the network. Pages are small and each is a read of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial

from simulation.replica import MarkerKey, Replica
from simulation.replicated_tables import ReplicatedTables
from tocsin.schema.errors import NotInitialised, SettingsError
from tocsin.schema.levels import Bucket
from tocsin.schema.pages import Pages
from tocsin.schema.schedules import Marker
from tocsin.schema.store import REGISTERS, SCHEMA_VERSION, Frontier, Heartbeat, Lease, PackRow, PlacedMarker, Settings


class ReplicatedStore(ReplicatedTables):
    """What one process sees of the cluster; implements tocsin.schema.store.Store."""

    url = "simulated://three-replicas"

    # Opening

    async def initialise(self, settings: Settings) -> Settings:
        transactions = self._cluster.transactions
        kept = await self._call("initialise", lambda: transactions.submit(lambda: transactions.initialise(settings)))
        registers = kept.first_registers()
        for shard_range in range(kept.shard_ranges):
            await self._write("write_frontier", lambda node, at=shard_range: node.write_frontier(at, registers))  # type: ignore[misc]
        return kept

    async def open(self) -> Settings:
        transactions = self._cluster.transactions
        settings = await self._call("open", lambda: transactions.read(lambda: transactions.settings))
        if settings is None:
            raise NotInitialised(self.url)
        if settings.schema_version != SCHEMA_VERSION:
            raise SettingsError(f"the store has schema version {settings.schema_version}, wanted is {SCHEMA_VERSION}")
        return settings

    async def close(self) -> None:
        """Nothing is held."""

    async def read_settings(self) -> Settings:
        return await self.open()

    async def replace_settings(self, settings: Settings, expected: Settings) -> bool:
        transactions = self._cluster.transactions
        apply = partial(transactions.replace_settings, settings, expected)
        return await self._call("replace_settings", lambda: transactions.submit(apply))

    async def server_times_ms(self) -> Sequence[int]:
        return await self._read("server_times_ms", self._cluster.clock_of)

    # Packs and change markers

    async def write_pack(self, bucket: Bucket, row: PackRow) -> None:
        history = self._history
        if history is None:
            await self._write("write_pack", lambda node: node.write_pack(bucket, row))
            return
        pack = history.pack_begun(bucket, row)

        def request(node: Replica) -> None:
            node.write_pack(bucket, row)
            pack.stored = True

        await self._write("write_pack", request)
        history.pack_acknowledged(pack)

    def read_packs(
        self, bucket: Bucket, after: int | None = None, through: int | None = None
    ) -> AsyncIterator[Sequence[PackRow]]:
        count = self._cluster.page_rows

        async def read_page(place: tuple[int, bytes] | None) -> tuple[Sequence[PackRow], tuple[int, bytes] | None]:
            def request(node: Replica) -> Sequence[PackRow]:
                return node.read_packs(bucket, after, place, through, count)

            rows = _merge(await self._read("read_packs", request), count)
            return rows, (rows[-1].position, rows[-1].pack_id) if len(rows) == count else None

        return Pages(read_page)

    async def write_marker(self, position: int, shard_range: int, marker: Marker) -> None:
        if self._history is not None:
            self._history.marker_begun(position, shard_range, marker)
        placed = PlacedMarker(position, marker)
        timestamp = self._cluster.clock_of(self._cluster.random.choice(self._cluster.replicas))
        await self._write("write_marker", lambda node: node.write_marker(shard_range, placed, timestamp))

    def read_markers(self, shard_range: int, after: int, through: int) -> AsyncIterator[Sequence[PlacedMarker]]:
        count = self._cluster.page_rows

        async def read_page(place: MarkerKey | None) -> tuple[Sequence[PlacedMarker], MarkerKey | None]:
            def request(node: Replica) -> Sequence[tuple[MarkerKey, int, Marker]]:
                return node.read_markers(shard_range, after, place, through, count)

            newest: dict[MarkerKey, tuple[int, Marker]] = {}
            for key, timestamp, marker in itertools.chain(*await self._read("read_markers", request)):
                if key not in newest or newest[key][0] < timestamp:
                    newest[key] = timestamp, marker
            keys = sorted(newest)[:count]
            rows = [PlacedMarker(key[0], newest[key][1]) for key in keys]
            return rows, keys[-1] if len(keys) == count else None

        return Pages(read_page)

    # The frontier

    async def write_frontier(self, shard_range: int, registers: Mapping[str, int]) -> None:
        writes = self._history.frontier_begun(shard_range, registers) if self._history is not None else []
        kept = dict(registers)
        for name in kept:
            if name not in REGISTERS:
                raise ValueError(f"there is no register {name}")
        name = f"write_frontier:{next(iter(kept), '')}"
        await self._write(name, lambda node: node.write_frontier(shard_range, kept))
        if self._history is not None:
            self._history.frontier_acknowledged(writes)

    async def read_frontier(self, shard_range: int) -> Frontier:
        answers = await self._read("read_frontier", lambda node: node.read_frontier(shard_range))
        merged = {
            name: max(a[name] for a in answers if name in a) for name in REGISTERS if any(name in a for a in answers)
        }
        if len(merged) < len(REGISTERS):
            raise NotInitialised(self.url)
        return Frontier(**merged)

    # Leases and dispatchers

    async def read_leases(self) -> Sequence[Lease]:
        transactions = self._cluster.transactions
        return await self._call("read_leases", lambda: transactions.read(transactions.glance_at_leases))

    async def read_lease(self, shard_range: int) -> Lease:
        transactions = self._cluster.transactions
        return await self._call("read_lease", lambda: transactions.read(lambda: transactions.settle_lease(shard_range)))

    async def acquire_lease(self, lease: Lease, expected_epoch: int) -> bool:
        transactions = self._cluster.transactions
        apply = partial(transactions.acquire_lease, lease, expected_epoch)
        applied = await self._call("acquire_lease", lambda: transactions.submit(apply))
        transactions.settle_lease(lease.shard_range)
        return applied

    async def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        await self._write_heartbeat(heartbeat.dispatcher_id, heartbeat.number, heartbeat)

    async def delete_heartbeat(self, dispatcher_id: str) -> None:
        await self._write_heartbeat(dispatcher_id, _LAST, None)

    async def _write_heartbeat(self, dispatcher_id: str, order: int, heartbeat: Heartbeat | None) -> None:
        """Timestamps are the client's, as those of the driver are: they rise with each write of a process."""
        beat = self._cluster.true_ms(), heartbeat
        await self._write("heartbeat", lambda node: node.heartbeats.write(dispatcher_id, order, beat))

    async def read_heartbeats(self) -> Sequence[Heartbeat]:
        answers = await self._read("read_heartbeats", lambda node: dict(node.heartbeats))
        newest: dict[str, tuple[int, tuple[float, Heartbeat | None]]] = {}
        for name, cell in itertools.chain.from_iterable(answer.items() for answer in answers):
            if name not in newest or newest[name][0] < cell[0]:
                newest[name] = cell
        alive_from = self._cluster.true_ms() - self._cluster.heartbeat_ttl_ms
        beats = (beat for _, (_, beat) in sorted(newest.items()))
        return [heartbeat for at, heartbeat in beats if heartbeat is not None and at >= alive_from]


#: The order of what comes after every heartbeat.
_LAST = 2**63


def _merge(answers: Iterable[Sequence[PackRow]], count: int) -> list[PackRow]:
    """The first rows of the union. Each answer holds its node's first `count`, so none of the union's is missing."""
    return sorted({(row.position, row.pack_id): row for row in itertools.chain(*answers)}.values())[:count]
