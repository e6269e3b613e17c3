"""One occurrence on its way out: what it stands for, and what was decided about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tocsin.dispatcher.publisher import Record
from tocsin.dispatcher.record import record_of
from tocsin.dispatcher.waiting import Item
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.schedules import Spec, decode_spec

cached_spec: Callable[[bytes], Spec] = lru_cache(maxsize=16_384)(decode_spec)


@lru_cache(maxsize=16_384)
def next_nominal(spec: bytes, nominal: int) -> int | None:
    """The nominal time after this one; a herd shares one answer."""
    return cached_spec(spec).next_after(nominal)


def is_plain(entry: Entry, spec: Spec) -> bool:
    """Whether an occurrence that is on time goes out whatever the clock and the calendars say."""
    return entry.kind != Kind.BACKFILL and spec.expires_after_ms is None and not spec.exclude


class Flight:
    """One occurrence on its way out, and the item it belongs to."""

    __slots__ = ("acked", "chosen", "entry", "follow", "item", "passed_over", "publish", "rounds", "skipped", "spec")

    def __init__(
        self,
        item: Item,
        spec: Spec,
        entry: Entry,
        *,
        passed_over: str = "",
        skipped: int = 0,
        rounds: int = 1,
        acked: bool = False,
    ) -> None:
        self.item = item
        self.spec = spec
        #: The occurrence it stands for: the item's, or a later one of a catch-up.
        self.entry = entry
        self.publish = not passed_over
        #: Why it is not dispatched; empty: it is.
        self.passed_over = passed_over
        #: Which occurrence this run of the item began with; see `Entry.chosen`.
        self.chosen = entry.scheduled_for
        #: Occurrences the catch-up policy passed over before this one.
        self.skipped = skipped
        self.rounds = rounds
        #: Whether what follows the item is armed once this one is out: the last one of a backfill's turn.
        self.follow = True
        self.acked = acked

    def record(self) -> Record:
        """The item's own record where it was built ahead and still fits."""
        if self.entry is self.item.entry and not self.skipped and self.item.record is not None:
            return self.item.record
        return record_of(self.entry, self.spec, missed=self.skipped)
