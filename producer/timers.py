"""Timers: occurrences of no schedule. One write each, and packs of many where many are sent.

A timer is an entry of kind TIMER, put on its level by the insert rule and nothing else: no row in `schedules`, no
conditional write, nothing to confirm. On far it is whole, for there is no row to read it from. There is nothing to
verify it against either, so a demoted one counts as it is. The same id and instant twice is one occurrence.

`recall` takes one back. While its minute or day is not sealed, an entry of kind RECALL goes to the very place where the
timer waits, at the start of its bucket: whoever reads the bucket, page by page, meets the recall before the timer, and
takes it for a change marker. Once the place is sealed the timer may be in its owner's memory already, so a change
marker follows it there, by the same rule and with the same promise as the marker of a cancelled schedule. A recall's
marker ends that one instant of that one id and no schedule of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from tocsin.producer.allowed_topics import AllowedTopics
from tocsin.producer.definition import NewSchedule, check_not_past, check_schedule_id
from tocsin.producer.insert import Inserter, Placement
from tocsin.schema.clock import StoreClock
from tocsin.schema.entries import Entry, Kind, parse_occurrence_key
from tocsin.schema.errors import InvalidSchedule, OutcomeUnknown, StoreTimeout, StoreUnavailable, TocsinError
from tocsin.schema.levels import Level, Levels
from tocsin.schema.recurrence import Once
from tocsin.schema.schedules import RECALL_VERSION, TIMER_VERSION, Marker, encode_spec


@dataclass(frozen=True, kw_only=True)
class NewTimer:
    """A timer to send; the arguments of `Scheduler.send_at`.

    Raises:
        InvalidSchedule: a field has the wrong type or is out of range.
    """

    timer_id: str
    topic: str
    #: When; timezone-aware.
    at: datetime
    payload: bytes = b""
    content_type: str | None = None
    headers: dict[str, str] | None = None
    partition_key: str | None = None
    expires_after: timedelta | None = None
    tenant: str = "default"

    def entry(self, now: int, grace_ms: int) -> Entry:
        """The entry it becomes. Raises InstantInPast where it lies more than `grace_ms` before now (ms UTC)."""
        check_schedule_id(self.timer_id, field="timer_id")
        definition = NewSchedule(
            schedule_id=self.timer_id,
            recurrence=Once(self.at),
            topic=self.topic,
            payload=self.payload,
            content_type=self.content_type,
            headers=self.headers,
            partition_key=self.partition_key,
            expires_after=self.expires_after,
            tenant=self.tenant,
        )
        spec = definition.spec(now)
        assert isinstance(spec.recurrence, Once)  # noqa: S101 — made above
        at = spec.recurrence.at_ms
        check_not_past("at", self.at, at, now, grace_ms)
        return Entry(
            self.timer_id,
            at,
            at,
            TIMER_VERSION,
            kind=Kind.TIMER,
            spec=encode_spec(spec),
            payload=self.payload,
        )


class SendResult(NamedTuple):
    """What became of one timer of many."""

    #: Its occurrence key; with an OutcomeUnknown too, for sending it again is safe.
    key: str | None
    error: TocsinError | None


class Timers:
    """Sends timers and takes them back."""

    def __init__(self, levels: Levels, inserter: Inserter, store_clock: StoreClock, topics: AllowedTopics) -> None:
        self._levels = levels
        self._timing = levels.timing
        self._inserter = inserter
        self._store_clock = store_clock
        self._topics = topics

    async def send(self, entries: Sequence[Entry], *, deadline: int) -> None:
        """Put timers on their levels, in packs by bucket and sub-partition.

        Raises:
            StoreTimeout, StoreUnavailable: the deadline passed; some may wait already. Sending the same again is safe.
        """
        await self._inserter.insert([Placement(entry) for entry in entries], deadline=deadline)

    async def send_each(self, timers: Sequence[NewTimer], *, deadline: int) -> list[SendResult]:
        """Send what is not refused; a key or an error for each, in order."""
        results: list[SendResult] = []
        entries: list[Entry] = []
        now = self._store_clock.now_ms()
        for timer in timers:
            try:
                self._topics.require(timer.topic)
                entry = timer.entry(now, self._timing.misfire_grace_ms)
            except InvalidSchedule as error:
                results.append(SendResult(None, error))
            else:
                entries.append(entry)
                results.append(SendResult(entry.key, None))
        try:
            await self.send(entries, deadline=deadline)
        except (StoreTimeout, StoreUnavailable):
            return [
                result if result.error else SendResult(result.key, OutcomeUnknown(timer.timer_id))
                for timer, result in zip(timers, results, strict=True)
            ]
        return results

    async def recall(self, key: str, *, deadline: int) -> bool:
        """Take a timer back; True: it will not be dispatched. False: it may have been, or may be just now.

        Raises:
            InvalidSchedule: the key is not that of a timer.
            StoreTimeout, StoreUnavailable: the deadline passed; recalling it again is safe.
        """
        timer_id, at, _ = parse_occurrence_key(key)
        check_schedule_id(timer_id)
        if self._levels.choose(at, self._store_clock.now_ms()) is not Level.NEAR:
            recall = Entry(timer_id, at, at, RECALL_VERSION, kind=Kind.RECALL)
            (place,) = await self._inserter.insert([Placement(recall)], deadline=deadline)
            if place is not None and place.level is not Level.NEAR:
                return True

        def marker_at(position: int) -> Marker:
            return recall_marker(timer_id, at, until_ms=max(at, position) + self._timing.marker_slack_ms)

        place, _ = await self._inserter.insert_marker(self._levels.shard_range(timer_id), marker_at, deadline=deadline)
        return at >= place.position


def recall_marker(timer_id: str, at: int, *, until_ms: int) -> Marker:
    """The change marker that ends one timer: the instant it was sent for, and until when it is to be known; ms UTC."""
    return Marker(schedule_id=timer_id, version=RECALL_VERSION, from_ms=at, until_ms=until_ms, verify=False)
