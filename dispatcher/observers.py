"""Several observers as one."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.dispatcher.services import Observer
from tocsin.schema.entries import Entry


class Observers:
    """An Observer that tells each of these."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def dispatched(self, topic: str, entries: Sequence[Entry], now: int) -> None:
        """Kafka acknowledged a batch; the lateness of each is `now` − its due, in ms of the store's clock."""
        for observer in self._observers:
            observer.dispatched(topic, entries, now)

    def skipped(self, reason: str, count: int) -> None:
        """Occurrences were passed over, as their schedule's policy says."""
        for observer in self._observers:
            observer.skipped(reason, count)

    def verified(self, answer: str) -> None:
        """A marked entry or marker was compared with `schedules`."""
        for observer in self._observers:
            observer.verified(answer)

    def parked(self, topic: str, entries: Sequence[Entry]) -> None:
        """Occurrences of a failing topic went back to near."""
        for observer in self._observers:
            observer.parked(topic, entries)

    def demoted(self, level: str, count: int) -> None:
        """Entries were written again one level down, because their place on this level was sealed already."""
        for observer in self._observers:
            observer.demoted(level, count)

    def dead_lettered(self, reason: str, key: str) -> None:
        """An occurrence will not be dispatched."""
        for observer in self._observers:
            observer.dead_lettered(reason, key)

    def owns(self, shard_range: int, epoch: int) -> None:
        """A shard range was acquired."""
        for observer in self._observers:
            observer.owns(shard_range, epoch)

    def lost(self, shard_range: int, epoch: int, reason: str) -> None:
        """A shard range was released or lost."""
        for observer in self._observers:
            observer.lost(shard_range, epoch, reason)

    def troubled(self, action: str, error: Exception) -> None:
        """Something failed and will be tried again."""
        for observer in self._observers:
            observer.troubled(action, error)
