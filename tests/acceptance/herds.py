"""Herds of timers at one instant, who owned what when one of their owners was struck, and what came of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from acceptance.evidence import now_ms
from acceptance.processes import Running
from acceptance.pulse import OpenScheduler
from acceptance.records import Topic
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from tocsin import NewTimer
from tocsin.loadtest.verdict import Verdict, judge
from tocsin.schema.entries import occurrence_key, parse_occurrence_key
from tocsin.schema.instants import to_datetime
from tocsin.schema.timing import Timing

#: Minutes of five seconds, so that a herd waits on the minute level and yet comes soon; all else is as shipped.
SHORT_MINUTES = Timing(minute_ms=5_000, lead_ms=1_500)
#: A herd is created at least so long before it is due.
AHEAD_MS = 4_000
PATIENCE_SECONDS = 90


class Ranges(NamedTuple):
    """Every range's owner and progress at one moment, as the store has them."""

    #: The process that owns each range; None: nobody.
    owners: dict[int, int | None]
    #: Everything due up to it is dispatched and re-armed; ms UTC.
    committed: dict[int, int]

    def of(self, running: Running) -> frozenset[int]:
        """The ranges of a dispatcher."""
        return frozenset(number for number, owner in self.owners.items() if owner == running.process.pid)


class Registers:
    """Reads leases and frontiers behind Tocsin's back, from a majority."""

    def __init__(self, session: Any, store: str) -> None:
        self._session = session
        self._keyspace = store.rpartition("/")[2]

    def read(self) -> Ranges:
        """Owners and progress now."""
        owners = self._rows("SELECT shard_range, owner FROM {}.leases")
        committed = self._rows("SELECT shard_range, committed FROM {}.frontier")
        return Ranges({number: _pid(owner) for number, owner in owners}, dict(committed))

    def _rows(self, text: str) -> list[tuple[int, Any]]:
        statement = SimpleStatement(text.format(self._keyspace), consistency_level=ConsistencyLevel.QUORUM)
        return [tuple(row) for row in self._session.execute(statement)]


class Herd:
    """Many timers at one instant: a minute boundary."""

    def __init__(self, topic: Topic, count: int, minute_ms: int) -> None:
        self.topic = topic
        self.due = int(-(-(now_ms() + AHEAD_MS) // minute_ms)) * minute_ms
        self.expected = {occurrence_key(f"{topic.name}-{number}", self.due): self.due for number in range(count)}

    def create(self, open_scheduler: OpenScheduler) -> None:
        """Send all of them by the bulk path."""
        at = to_datetime(self.due)
        timers = [
            NewTimer(timer_id=parse_occurrence_key(key)[0], topic=self.topic.name, at=at) for key in self.expected
        ]
        with open_scheduler() as scheduler:
            failed = [result for result in scheduler.send_many(timers) if result.error is not None]
        assert failed == []

    def until_struck(self, part: float) -> float:
        """Return the moment that part of it has been published; when that is, ms UTC."""
        self.topic.until_written(int(part * len(self.expected)), seconds=PATIENCE_SECONDS)
        return now_ms()

    def judged(self) -> Verdict:
        """What became of it, once all of it has come."""
        self.topic.until(lambda it: it.keys >= self.expected.keys(), seconds=PATIENCE_SECONDS)
        return judge(self.expected, self.topic.seen)


def _pid(owner: str | None) -> int | None:
    """Of a dispatcher id: host, process, luck."""
    return int(owner.split("-")[-2]) if owner else None
