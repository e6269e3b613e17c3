"""How many occurrences the next minutes and the next full hour hold, looked up ahead of time.

A schedule has only its next occurrence armed, so what lies in the bucket of 10:00 five minutes before is not all that
will be due then: what runs each minute comes round there from a nearer bucket. Hence two figures:

    bucket_occurrences         what waits in each of the next minutes' buckets now
    herd_forecast_occurrences  what will be due in the first minute of the next hour: what waits there, and, of what
                               waits nearer, what its rule brings there

One look takes one shard range of this process: its memory, then near, then its minute buckets, oldest first. An
occurrence that is dispatched meanwhile is met again further on, never missed; a schedule counts once. What a change
marker has ended, or a recall takes back, does not count. Later changes do, with the next look.

The ranges are looked at one after another, for ever, each twice a minute at most. A look is never finished at the price
of what is due: it gives way after each bucket, and rests `REST_FACTOR` times as long as it took. In buckets too large
to be read whole, a part of the hash space stands for the whole, which an even hash makes right within a percent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

from tocsin.dispatcher.flight import cached_spec
from tocsin.dispatcher.forecast import MINUTES_AHEAD, Forecast, next_hour, next_minute
from tocsin.dispatcher.owner import RangeOwner
from tocsin.dispatcher.services import Services
from tocsin.schema.entries import Entry, Kind, Undecodable, decode_pack
from tocsin.schema.instants import MINUTE_MS, SECOND_MS
from tocsin.schema.levels import Bucket, Level

#: Entries of one sub-partition of one range, after which the rest of the range is estimated from those that were read.
ENTRIES_MAX = 20_000
#: Different rules followed to the next hour in one look; where there are more, the first stand for all.
RULES_MAX = 200
#: A rule's occurrences within one minute that are counted: one each second.
PER_MINUTE_MAX = 60
#: How far ahead near is read: what is due later waits for its minute.
NEAR_MS = 2 * MINUTE_MS
#: A look rests so many times as long as it took.
REST_FACTOR = 8
#: Distance between two looks at one range, at least.
LOOK_MS = 30 * SECOND_MS


class HerdForecast:
    """Looks ahead in the ranges that this process owns.

    Args:
        services: store, clocks and rules.
        owners: the ranges owned now.
        forecast: where it is told.
    """

    def __init__(self, services: Services, owners: Callable[[], Iterable[RangeOwner]], forecast: Forecast) -> None:
        self._services = services
        self._owners = owners
        self._forecast = forecast

    async def run(self) -> None:
        """Look until cancelled."""
        clock = self._services.clock
        while True:
            owners = list(self._owners())
            self._forecast.keep_only(owner.shard_range for owner in owners)
            for owner in owners:
                began = clock.monotonic_ms()
                try:
                    await self.look(owner)
                except Exception as error:  # noqa: BLE001 — a look must not end dispatching, and its failure is told
                    self._services.observer.troubled("forecast_unread", error)
                spent = clock.monotonic_ms() - began
                await clock.sleep_ms(max(LOOK_MS // len(owners), REST_FACTOR * spent))
            if not owners:
                await clock.sleep_ms(SECOND_MS)

    async def look(self, owner: RangeOwner) -> None:
        """Look at one range now.

        Raises:
            StoreTimeout, StoreUnavailable: the store did not answer.
            UnknownFormat: a newer release wrote a pack.
        """
        now = self._services.store_clock.now_ms()
        look = _Look(owner, now)
        look.meet(owner.waiting.entries())
        for bucket in self._services.levels.buckets(Level.NEAR, owner.shard_range, now, now + NEAR_MS):
            await self._read(bucket, look)
        whole, read = await self._read_minutes(look, now)
        herd = await self._herd(look, next_hour(now), whole / read)
        minutes = {minute: count * whole / read for minute, count in look.minutes.items()}
        self._forecast.saw(owner.shard_range, minutes, {next_hour(now): herd})

    async def _read_minutes(self, look: _Look, now: int) -> tuple[int, int]:
        """Read part after part of the range's hash space; of how many parts, and how many were read."""
        end = next_minute(now) + MINUTES_AHEAD * MINUTE_MS - 1
        parts: dict[tuple[int, int], list[Bucket]] = {}
        for bucket in self._services.levels.buckets(Level.MINUTE, look.shard_range, now, end):
            parts.setdefault((bucket.layout, bucket.sub), []).append(bucket)
        near_count = look.count
        read = 0
        for buckets in parts.values():
            for bucket in buckets:
                await self._read(bucket, look)
            read += 1
            if look.count - near_count > ENTRIES_MAX:
                break
        return len(parts), read

    async def _read(self, bucket: Bucket, look: _Look) -> None:
        async for page in self._services.store.read_packs(bucket):
            for row in page:
                try:
                    look.meet(decode_pack(row.body))
                except Undecodable:
                    continue  # its owner keeps it as a dead letter when it reads it
            await self._services.clock.sleep_ms(0)

    async def _herd(self, look: _Look, hour: int, scale: float) -> float:
        """What waits in that minute, and what comes round there, of the whole range."""
        there = look.minutes[hour]
        rules = look.coming_round(hour)
        followed = brought = 0
        for spec, count in sorted(rules.items())[:RULES_MAX]:
            followed += count
            brought += count * _occurrences_in(spec, hour)
            await self._services.clock.sleep_ms(0)
        return scale * (there + (brought * rules.total() / followed if followed else 0))


class _Look:
    """What one look has met so far; payloads are not kept."""

    def __init__(self, owner: RangeOwner, now: int) -> None:
        self.shard_range = owner.shard_range
        self.minutes: Counter[int] = Counter()
        self.count = 0
        self._waiting = owner.waiting
        self._from = next_minute(now)
        self._met: dict[tuple[str, int, str], tuple[int, Kind]] = {}
        #: Of each schedule its last occurrence: version, due, spec.
        self._last: dict[str, tuple[int, int, bytes]] = {}

    def meet(self, entries: Iterable[Entry]) -> None:
        """Count what was read; of one occurrence the highest version, of one schedule what is armed."""
        for entry in entries:
            self.count += 1
            occurrence = (entry.schedule_id, entry.scheduled_for, entry.request)
            known = self._met.get(occurrence)
            if known is not None and known[0] >= entry.version:
                continue
            if self._waiting.is_ended(entry.schedule_id, entry.version, entry.scheduled_for):
                continue
            self._met[occurrence] = entry.version, entry.kind
            if known is None or known[1] == Kind.RECALL:
                self._count(entry.due, entry.kind != Kind.RECALL)
            elif entry.kind == Kind.RECALL:
                self._count(entry.due, -1)
            if entry.kind == Kind.ARM:
                last = (entry.version, entry.due, entry.spec)
                self._last[entry.schedule_id] = max(last, self._last.get(entry.schedule_id, last))

    def coming_round(self, hour: int) -> Counter[bytes]:
        """The rules of schedules whose armed occurrence is due before that hour, and how many have each."""
        return Counter(spec for _, due, spec in self._last.values() if due < hour and spec)

    def _count(self, due: int, by: int) -> None:
        minute = due // MINUTE_MS * MINUTE_MS
        if minute >= self._from:
            self.minutes[minute] += by


def _occurrences_in(encoded: bytes, minute: int) -> int:
    """How many nominal times a rule has within a minute; jitter is not looked at, it moves them evenly."""
    nominal_times = cached_spec(encoded).nominal_times(minute, minute + MINUTE_MS)
    return sum(1 for _ in islice(nominal_times, PER_MINUTE_MAX))
