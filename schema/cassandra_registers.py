"""The registers of every range's frontier, those of many ranges read and raised together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tocsin.schema import cassandra_statements as cql
from tocsin.schema.cassandra_driver import Call, Rows
from tocsin.schema.cassandra_together import READ_TOGETHER_MAX, Together
from tocsin.schema.store import REGISTERS, Frontier

#: Registers of so many ranges are raised in one batch: Cassandra warns of batches beyond ten partitions.
RAISED_TOGETHER_MAX = 10


class Registers:
    """Runs statements on the table `frontier`.

    Args:
        run: runs one.
        run_together: runs writes in one request; those of one partition are one mutation.
    """

    def __init__(
        self,
        run: Callable[[cql.Statement, Sequence[Any]], Awaitable[Rows]],
        run_together: Callable[[Sequence[Call]], Awaitable[None]],
    ) -> None:
        self._run = run
        self._run_together = run_together
        self._raising = Together(self._raise, most=RAISED_TOGETHER_MAX)
        self._reading = Together(self._read, most=READ_TOGETHER_MAX)

    async def write(self, shard_range: int, registers: Mapping[str, int]) -> None:
        """Raise registers of a range; a lower value than the one kept changes nothing. All in one mutation."""
        if not registers or not registers.keys() <= cql.RAISE_REGISTER.keys():
            raise ValueError(f"registers are {', '.join(REGISTERS)}; got {', '.join(registers)}")
        await self._raising.put((shard_range, registers))

    async def read(self, shard_range: int) -> Frontier | None:
        """The registers of a range; None: one is missing."""
        row = await self._reading.put(shard_range)
        return None if row is None or None in row else Frontier(**dict(zip(REGISTERS, row, strict=True)))

    async def _raise(self, raised: Sequence[tuple[int, Mapping[str, int]]]) -> Sequence[None]:
        await self._run_together(
            [
                Call(cql.RAISE_REGISTER[name], (value * 1000, value, shard_range))
                for shard_range, registers in raised
                for name, value in registers.items()
            ]
        )
        return [None] * len(raised)

    async def _read(self, shard_ranges: Sequence[int]) -> Sequence[Sequence[Any] | None]:
        if len(shard_ranges) == 1:
            rows = (await self._run(cql.READ_FRONTIER, (shard_ranges[0],))).rows
            return [rows[0] if rows else None]
        found = await self._run(cql.READ_FRONTIERS, (sorted(set(shard_ranges)),))
        registers = {row[0]: row[1:] for row in found.rows}
        return [registers.get(shard_range) for shard_range in shard_ranges]
