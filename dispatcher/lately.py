"""What this process dispatched lately: a second copy of it is not published again.

Only saves repeats, so it is memory and never rebuilt by reading. While a range works on an occurrence, copies of it
join its item (waiting.py); it comes here when the range is done with it. One that was published but not re-armed is
published no second time, yet a copy of it still counts: somebody has to arm what follows.
"""

from __future__ import annotations

from collections import OrderedDict

from tocsin.schema.entries import Entry

#: Occurrences remembered at most after their re-arm; the oldest are forgotten first.
REMEMBERED_MAX = 100_000

Identity = tuple[str, int, int, str]


def identity(entry: Entry, scheduled_for: int | None = None) -> Identity:
    """One occurrence of one version: the entry's, or a later one it stands for."""
    at = entry.scheduled_for if scheduled_for is None else scheduled_for
    return entry.schedule_id, at, entry.version, entry.request


class Lately:
    """Occurrences that no range of this process works on any more."""

    def __init__(self, memory_ms: int) -> None:
        self._memory_ms = memory_ms
        #: When it was left, on the monotonic clock, and whether nothing is left to do for it.
        self._left: OrderedDict[Identity, tuple[int, bool]] = OrderedDict()

    def published(self, occurrence: Identity, now: int) -> None:
        """Kafka acknowledged it, and the range was lost before the re-arm; whoever owns the range sees to that."""
        if not self.was_finished(occurrence):
            self._leave(occurrence, now, finished=False)

    def finished(self, occurrence: Identity, now: int) -> None:
        """Its re-arm is acknowledged, or it has none."""
        self._leave(occurrence, now, finished=True)

    def was_published(self, occurrence: Identity) -> bool:
        """Do not publish it again."""
        return occurrence in self._left

    def was_finished(self, occurrence: Identity) -> bool:
        """There is nothing left to do for it."""
        return self._left.get(occurrence, (0, False))[1]

    def _leave(self, occurrence: Identity, now: int, *, finished: bool) -> None:
        left = self._left
        left[occurrence] = now, finished
        left.move_to_end(occurrence)
        while len(left) > REMEMBERED_MAX or next(iter(left.values()))[0] < now - self._memory_ms:
            left.popitem(last=False)
