"""How far every shard range is: from leases, heartbeats and frontiers, for every range, by whoever asks.

A dispatcher that hangs cannot report itself, so each one reports all ranges, unowned ones included.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tocsin.schema.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeProgress:
    """One shard range at one moment."""

    shard_range: int
    #: The dispatcher whose lease it is; None: free.
    owner: str | None
    #: Whether that dispatcher's heartbeat is there. A killed owner's stays until it runs out.
    owner_present: bool
    epoch: int
    #: Everything due up to it is dispatched and re-armed; ms UTC.
    committed: int
    #: An upper bound of the age of the oldest due, undispatched occurrence: now − committed.
    lag_ms: int

    @property
    def is_owned(self) -> bool:
        """Whether a dispatcher that was heard of lately has it."""
        return self.owner is not None and self.owner_present


async def read_progress(store: Store, shard_ranges: int, now: int) -> list[RangeProgress]:
    """Every range's progress, in order of ranges, at `now` (ms UTC, the store's clock).

    Raises:
        StoreUnavailable, StoreTimeout: the store did not answer.
    """
    leases, heartbeats = await asyncio.gather(store.read_leases(), store.read_heartbeats())
    present = {heartbeat.dispatcher_id for heartbeat in heartbeats}
    by_range = {lease.shard_range: lease for lease in leases}
    frontiers = await asyncio.gather(*(store.read_frontier(shard_range) for shard_range in range(shard_ranges)))
    return [
        RangeProgress(
            shard_range=shard_range,
            owner=by_range[shard_range].owner,
            owner_present=by_range[shard_range].owner in present,
            epoch=by_range[shard_range].epoch,
            committed=frontier.committed,
            lag_ms=max(0, now - frontier.committed),
        )
        for shard_range, frontier in enumerate(frontiers)
    ]
