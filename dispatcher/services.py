"""What every part of a dispatcher is given: nothing in here is global, so the same code runs under virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tocsin.dispatcher.audits import Audits
from tocsin.dispatcher.lately import Lately
from tocsin.dispatcher.layouts import KnownLayouts
from tocsin.dispatcher.load import Load
from tocsin.dispatcher.publisher import Publisher
from tocsin.dispatcher.topics import Topics
from tocsin.producer.calendars import CalendarCache
from tocsin.producer.frontiers import Frontiers
from tocsin.producer.insert import Inserter
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import Clock, StoreClock
from tocsin.schema.entries import Entry
from tocsin.schema.levels import Levels
from tocsin.schema.store import Store
from tocsin.schema.timing import Timing


class Observer(Protocol):
    """Hears what happens; metrics and the status line are made of it. It must not raise, block or await."""

    def dispatched(self, topic: str, entries: Sequence[Entry], now: int) -> None:
        """Kafka acknowledged these occurrences of one topic; `now` is the store's time, ms UTC."""

    def skipped(self, reason: str, count: int) -> None:
        """Occurrences were passed over, as their schedule's policy says."""

    def verified(self, answer: str) -> None:
        """A marked entry or marker was compared with `schedules`."""

    def parked(self, topic: str, entries: Sequence[Entry]) -> None:
        """Occurrences of a failing topic went back to near."""

    def demoted(self, level: str, count: int) -> None:
        """Entries were written again one level down, because their place on this level was sealed already."""

    def dead_lettered(self, reason: str, key: str) -> None:
        """An occurrence will not be dispatched."""

    def owns(self, shard_range: int, epoch: int) -> None:
        """A shard range was acquired."""

    def lost(self, shard_range: int, epoch: int, reason: str) -> None:
        """A shard range was released or lost."""

    def troubled(self, action: str, error: Exception) -> None:
        """Something failed and will be tried again."""


@dataclass(frozen=True, kw_only=True)
class Services:
    """Store, clocks, publisher and what is shared by all ranges of one process."""

    dispatcher_id: str
    store: Store
    #: ms UTC; nothing was written before it.
    genesis: int
    levels: Levels
    timing: Timing
    clock: Clock
    store_clock: StoreClock
    frontiers: Frontiers
    inserter: Inserter
    persistence: Persistence
    publisher: Publisher
    lately: Lately
    topics: Topics
    calendars: CalendarCache
    load: Load
    audits: Audits
    layouts: KnownLayouts
    observer: Observer
