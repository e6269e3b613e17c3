"""Knowing every layout that a minute can be written in before it is read; why stands in producer/layouts.py."""

from __future__ import annotations

import asyncio

from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import StoreClock
from tocsin.schema.levels import Levels
from tocsin.schema.store import Store


class KnownLayouts:
    """The layouts this process has heard of.

    Args:
        store: holds the settings.
        levels: learns of new ones.
        store_clock: tells when the settings were read.
        persistence: repeats a read that was not answered.
    """

    def __init__(self, store: Store, levels: Levels, store_clock: StoreClock, persistence: Persistence) -> None:
        self._store = store
        self._levels = levels
        self._store_clock = store_clock
        self._persistence = persistence
        #: Minutes that end by then are known in all their layouts; ms UTC.
        self._known_until = 0
        self._turn = asyncio.Lock()

    async def until_known(self, end: int) -> None:
        """Return once every layout is known in which minutes that end by this instant (ms UTC) can be written."""
        if end <= self._known_until:
            return
        async with self._turn:
            while end > self._known_until:  # Else it was read while this call waited.
                began = self._store_clock.now_ms()
                settings = await self._persistence.until_answered(self._store.read_settings)
                self._levels.learn(settings.layouts)
                self._known_until = began + self._levels.timing.layout_notice_ms
