"""An open store with what operators' commands need of it: its geometry, its clock and the insert rule."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from tocsin.deploy.configuration import Configuration
from tocsin.producer.frontiers import Frontiers
from tocsin.producer.insert import Inserter
from tocsin.schema.clock import StoreClock, SystemClock
from tocsin.schema.fresh_ids import FreshIds
from tocsin.schema.levels import Levels
from tocsin.schema.open_store import open_store
from tocsin.schema.store import Settings, Store
from tocsin.schema.timing import Timing


class Opened(NamedTuple):
    """An open store."""

    store: Store
    settings: Settings
    levels: Levels
    clock: SystemClock
    store_clock: StoreClock
    inserter: Inserter


@asynccontextmanager
async def opened(configuration: Configuration) -> AsyncIterator[Opened]:
    """Open the configured store, read its clock, and close it afterwards.

    Raises:
        TocsinError: it is not there, or not initialised.
    """
    timing = configuration.protocol_timing()
    store = open_store(configuration.store, timing=timing)
    settings = await store.open()
    try:
        yield await attached(store, settings, timing)
    finally:
        await store.close()


async def attached(store: Store, settings: Settings, timing: Timing) -> Opened:
    """What commands need of a store that is open; whoever opened it closes it."""
    clock = SystemClock()
    levels = Levels(timing, settings.shard_ranges, settings.layouts)
    store_clock = StoreClock(store, clock, skew_ms_max=timing.skew_ms_max)
    await store_clock.refresh()
    inserter = Inserter(
        store,
        levels,
        store_clock=store_clock,
        clock=clock,
        frontiers=Frontiers(store, clock, timing),
        new_id=FreshIds(),
        marks_late=False,
    )
    return Opened(store, settings, levels, clock, store_clock, inserter)
