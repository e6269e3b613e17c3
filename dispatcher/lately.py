"""What this process dispatched lately: a second copy of it is not published again.

Only saves repeats, so it is memory and never rebuilt by reading. An occurrence is forgotten only once its re-arm is
acknowledged: forgotten earlier, a copy that arrives in between would be neither published nor re-armed.
"""

from __future__ import annotations

from collections import OrderedDict

from tocsin.schema.entries import Entry

#: Occurrences remembered at most after their re-arm; the oldest are forgotten first.
REMEMBERED_MAX = 100_000

Identity = tuple[str, int, int, str]


def identity(entry: Entry, scheduled_for: int) -> Identity:
    """One occurrence of one version."""
    return entry.schedule_id, scheduled_for, entry.version, entry.request


class Lately:
    """The occurrences this process has published."""

    def __init__(self, memory_ms: int) -> None:
        self._memory_ms = memory_ms
        self._published: set[Identity] = set()
        #: Those that nobody here works on any more: when that was, and whether the re-arm is acknowledged.
        self._past: OrderedDict[Identity, tuple[int, bool]] = OrderedDict()

    def published(self, occurrence: Identity) -> None:
        """Kafka acknowledged it; its re-arm is still to come."""
        if occurrence not in self._past:
            self._published.add(occurrence)

    def finished(self, occurrence: Identity, now: int) -> None:
        """Its re-arm is acknowledged, or it has none."""
        self._leave(occurrence, now, finished=True)

    def abandoned(self, occurrence: Identity, now: int) -> None:
        """The range was lost before its re-arm; whoever owns the range sees to that."""
        if occurrence in self._published:
            self._leave(occurrence, now, finished=False)

    def was_published(self, occurrence: Identity) -> bool:
        """Do not publish it again."""
        return occurrence in self._published or occurrence in self._past

    def was_finished(self, occurrence: Identity) -> bool:
        """There is nothing left to do for it."""
        return self._past.get(occurrence, (0, False))[1]

    def _leave(self, occurrence: Identity, now: int, *, finished: bool) -> None:
        self._published.discard(occurrence)
        self._past[occurrence] = now, finished
        self._past.move_to_end(occurrence)
        while len(self._past) > REMEMBERED_MAX or next(iter(self._past.values()))[0] < now - self._memory_ms:
            self._past.popitem(last=False)
