"""From due to re-armed: publish, wait for the acknowledgement, arm the next occurrence.

A batch holds due items of one topic, so a topic that fails or is slow delays nobody else. For each item, in this order:

    1. Has a marker ended it meanwhile? Then it is dropped and not re-armed.
    2. Which occurrence does it stand for (catch_up.py)? Is it expired, or published by this process already?
    3. Do we still trust the lease? Then publish. Kafka's acknowledgement makes it dispatched.
    4. The next nominal time is computed, *then* the lease is looked at again, then it is inserted: an owner that was
       paused in between can only write where the rules already look.
    5. The insert is acknowledged: the item is finished, and committed may pass it.

Outcomes other than an acknowledgement: broker away, the same records again after a pause; topic failing, parked: back
to near, marked verify, so that committed moves on; permanent, a dead letter, and the schedule goes on.

Where the next occurrence is due already, of a chain that is late or catching up, the item goes round again with it, up
to `CHUNK` times, in order; then the rest is re-armed like any other. Were it re-armed each time, a schedule of short
period would lag for ever once a re-arm takes longer than its period, and under `skip` find each occurrence missed.

A batch of which nothing has to be chosen or looked up, on time and unchanged, goes the short way: the records that
were built ahead are handed over as they are. All else is done before its instant or afterwards, for in a herd each
occurrence pays for all before it; what follows waits until the herd is out (load.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from tocsin.dispatcher.catch_up import Horizon, choose, following, passed_over
from tocsin.dispatcher.flight import Flight, next_nominal
from tocsin.dispatcher.giving_up import give_up_entry
from tocsin.dispatcher.lately import identity
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.dispatcher.services import Services
from tocsin.dispatcher.waiting import Item, Status, Waiting
from tocsin.producer.extra_runs import backfill_turn, next_turn_due
from tocsin.producer.insert import Placement
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.levels import Level
from tocsin.schema.schedules import Spec

#: Late occurrences of one schedule dispatched in one go.
CHUNK = 100


class Dispatch:
    """Dispatches items of one range.

    Args:
        services: store, publisher, clocks.
        shard_range: which range.
        waiting: the owner's memory.
        holds: whether the lease is still trusted.
        near_read: up to where near is sealed and read.
        verify_again: called with an item of which a copy was read while it was parked.
        expect: called with the instant at which something that was put on near is to be read.
    """

    def __init__(
        self,
        services: Services,
        shard_range: int,
        waiting: Waiting,
        *,
        holds: Callable[[], bool],
        near_read: Callable[[], int],
        verify_again: Callable[[Item], None],
        expect: Callable[[int], None],
    ) -> None:
        self._services = services
        self._shard_range = shard_range
        self._waiting = waiting
        self._holds = holds
        self._near_read = near_read
        self._verify_again = verify_again
        self._expect = expect
        #: Set once nothing new may be published: a planned stop.
        self.stopping = False

    async def run(self, items: Iterable[Item]) -> None:
        """See a batch of one topic through, from publish to re-arm."""
        batch = list(items)
        if self._may_publish() and all(map(self._is_plain, batch)):
            flights, outcomes = await self._publish_plain(batch)
        else:
            flights, outcomes = await self._publish_chosen(batch)
        rearms: list[tuple[Flight, Placement]] = []
        while flights:
            failing = {
                id(flight.item)
                for flight, outcome in zip(flights, outcomes, strict=True)
                if outcome is Outcome.TOPIC_FAILING or outcome is Outcome.UNKNOWN_TOPIC
            }
            again: list[Flight] = []
            async with self._services.load.turns:
                due_by = min(self._near_read(), self._services.store_clock.now_ms())
                for flight, outcome in zip(flights, outcomes, strict=True):
                    if outcome is Outcome.ACKED and flight.follow and id(flight.item) not in failing:
                        self._follow(flight, due_by, again, rearms)
            if not self._holds():
                self._abandon([*flights, *(flight for flight, _ in rearms)])
                return
            if failing:
                await self._park([flight for flight in flights if id(flight.item) in failing and flight.follow])
            flights, outcomes = again, await self._publish(again)
        await self._rearm(rearms)

    # Which occurrence, and whether it goes out

    def _prepare(self, item: Item) -> Sequence[Flight]:
        entry, spec = item.entry, item.spec
        assert spec is not None  # noqa: S101 — decoded when it was released to its topic
        if self._is_ended(item, entry.scheduled_for):
            self._waiting.drop(item)
            return ()
        if self._waiting.is_held(entry.schedule_id):
            self._waiting.put_back(item)
            return ()
        if entry.kind == Kind.BACKFILL:
            return self._backfill(item, spec)
        if not item.missed or entry.kind != Kind.ARM:
            return (self._flight(item, spec, entry),)
        chosen = choose(spec, entry.schedule_id, entry.scheduled_for, entry.due, self._horizon(item))
        if chosen.skipped:
            self._services.observer.skipped("missed", chosen.skipped)
        if chosen.scheduled_for != entry.scheduled_for:
            if not self._stand_for(item, chosen.scheduled_for):
                return ()
            entry = msgspec.structs.replace(entry, scheduled_for=chosen.scheduled_for, due=chosen.due)
        return (self._flight(item, spec, entry, counts=chosen.counts, skipped=chosen.skipped),)

    def _backfill(self, item: Item, spec: Spec) -> Sequence[Flight]:
        """The occurrences of this turn, with the keys the live ones had."""
        nominals, _ = backfill_turn(item.entry, spec)
        flights = [
            self._flight(item, spec, msgspec.structs.replace(item.entry, scheduled_for=at, due=at, request=""))
            for at in nominals
        ]
        for flight in flights[:-1]:
            flight.follow = False
        if not flights:
            self._finish(item)
        return flights

    def _is_ended(self, item: Item, scheduled_for: int) -> bool:
        entry = item.entry
        return scheduled_for >= item.end or self._waiting.is_ended(entry.schedule_id, entry.version, scheduled_for)

    def _flight(
        self, item: Item, spec: Spec, entry: Entry, *, counts: bool = True, skipped: int = 0, rounds: int = 1
    ) -> Flight:
        reason = "" if counts else "missed"
        dates = self._services.calendars.dates(spec.exclude)
        if counts and (reason := passed_over(spec, entry, self._services.store_clock.now_ms(), dates)):
            self._services.observer.skipped(reason, 1)
        flight = Flight(item, spec, entry, passed_over=reason, skipped=skipped, rounds=rounds)
        # A backfill is asked for: what went out live a moment ago goes out again.
        if entry.kind != Kind.BACKFILL and self._services.lately.was_published(identity(entry)):
            flight.publish = False
        return flight

    def _stand_for(self, item: Item, scheduled_for: int) -> bool:
        """Let the item stand for a later occurrence; False: that one waits here already, and the chain ends there."""
        entry = item.entry
        found = self._waiting.find(entry.schedule_id, scheduled_for, entry.version, entry.request)
        if found is not None and found is not item:
            self._finish(item)
            return False
        item.also |= {scheduled_for}
        return True

    def _horizon(self, item: Item) -> Horizon:
        assert item.spec is not None  # noqa: S101 — decoded when it was released to its topic
        return Horizon(
            now=self._services.store_clock.now_ms(),
            near_read=self._near_read(),
            end=self._waiting.end_of(item),
            grace_ms=self._services.timing.misfire_grace_ms,
            dates=self._services.calendars.dates(item.spec.exclude),
        )

    # Publish

    def _is_plain(self, item: Item) -> bool:
        """Whether the record that was built ahead goes out as it is: the usual case, and nearly all of a herd."""
        entry = item.entry
        return (
            item.plain
            and not self._waiting.is_changing(entry.schedule_id)
            and not self._services.lately.was_published(identity(entry))
        )

    async def _publish_plain(self, batch: Sequence[Item]) -> tuple[list[Flight], list[Outcome]]:
        """The short way. In a herd each occurrence pays for all before it, so nothing is made here but the call."""
        records = [item.record for item in batch if item.record is not None]
        outcomes = await self._hand_over(records)
        all_acked = outcomes.count(Outcome.ACKED) == len(batch)
        if all_acked:
            self._acknowledged(records[0].topic, [item.entry for item in batch])
            await self._services.load.herd_is_out()
        flights = [Flight(item, item.spec, item.entry, acked=all_acked) for item in batch if item.spec is not None]
        if all_acked:
            return flights, outcomes
        unanswered = self._heed(flights, outcomes, range(len(batch)), outcomes)
        return flights, await self._persist(flights, outcomes, unanswered)

    async def _publish_chosen(self, batch: Sequence[Item]) -> tuple[list[Flight], list[Outcome]]:
        if any(item.spec is not None and item.spec.exclude for item in batch):
            await self._services.calendars.keep_fresh()
        flights = [flight for item in batch for flight in self._prepare(item)]
        return flights, await self._publish(flights)

    async def _publish(self, flights: Sequence[Flight]) -> list[Outcome]:
        """One outcome per flight; BROKER_AWAY where the range was lost, or the occurrence ended, before an answer."""
        outcomes = [Outcome.ACKED] * len(flights)
        unanswered = await self._attempt(flights, outcomes, [i for i, flight in enumerate(flights) if flight.publish])
        return await self._persist(flights, outcomes, unanswered)

    async def _persist(
        self, flights: Sequence[Flight], outcomes: list[Outcome], unanswered: list[int]
    ) -> list[Outcome]:
        """Publish again what the broker did not answer for, until it does or the range is lost."""
        if unanswered:
            with self._services.topics.broker_away():
                pause_ms = self._services.timing.retry_ms
                while unanswered and self._may_publish():
                    await self._services.clock.sleep_ms(pause_ms)
                    pause_ms = min(2 * pause_ms, self._services.timing.retry_ms_max)
                    unanswered = await self._attempt(flights, outcomes, unanswered)
        await self._settle_permanent(flights, outcomes)
        return outcomes

    async def _attempt(self, flights: Sequence[Flight], outcomes: list[Outcome], indexes: Sequence[int]) -> list[int]:
        """Publish these flights; those for which the broker did not answer."""
        sent = []
        records = []
        for index in indexes:
            outcomes[index] = Outcome.BROKER_AWAY
            flight = flights[index]
            if self._is_ended(flight.item, flight.entry.scheduled_for):
                self._waiting.drop(flight.item)
            else:
                sent.append(index)
                records.append(flight.record())
        if not records or not self._may_publish():
            return sent
        return self._heed(flights, outcomes, sent, await self._hand_over(records))

    async def _hand_over(self, records: Sequence[Record]) -> list[Outcome]:
        load = self._services.load
        load.publishing(len(records))
        try:
            return list(await self._services.publisher.publish(records))
        finally:
            load.publishing(-len(records))

    def _heed(
        self, flights: Sequence[Flight], outcomes: list[Outcome], sent: Sequence[int], answers: Sequence[Outcome]
    ) -> list[int]:
        """Take in the answers for the flights that were sent; those for which the broker did not answer."""
        unanswered = []
        acked = []
        for index, outcome in zip(sent, answers, strict=True):
            outcomes[index] = outcome
            if outcome is Outcome.ACKED:
                flights[index].acked = True
                acked.append(flights[index].entry)
            elif outcome is Outcome.BROKER_AWAY:
                unanswered.append(index)
        if acked:
            self._acknowledged(flights[0].spec.topic, acked)
        return unanswered

    def _acknowledged(self, topic: str, entries: Sequence[Entry]) -> None:
        self._services.topics.acked(topic)
        self._services.observer.dispatched(topic, entries, self._services.store_clock.now_ms())

    def _may_publish(self) -> bool:
        return not self.stopping and self._holds()

    async def _settle_permanent(self, flights: Sequence[Flight], outcomes: list[Outcome]) -> None:
        """Dead letters for what cannot be published; an unknown topic is waited for first."""
        for index, flight in enumerate(flights):
            outcome = outcomes[index]
            if not outcome.permanent:
                continue
            unknown = outcome is Outcome.UNKNOWN_TOPIC
            now = self._services.clock.monotonic_ms()
            if unknown and not self._services.topics.is_given_up(flight.spec.topic, now):
                continue
            await give_up_entry(self._services, self._shard_range, flight.entry, outcome.value)
            outcomes[index] = Outcome.ACKED

    async def _park(self, flights: Sequence[Flight]) -> None:
        """Back to near, marked, so that committed moves on without them."""
        delay_ms = self._services.topics.failed(flights[0].spec.topic)
        self._services.observer.parked(flights[0].spec.topic, [flight.entry for flight in flights])
        placements = []
        for flight in flights:
            flight.item.status = Status.PARKING
            # Of a row of missed ones the head, not the one chosen of it: the next try chooses, and counts, anew.
            whole = flight.rounds == 1 or flight.entry.kind == Kind.BACKFILL
            entry = (flight.item.entry if whole else flight.entry).marked(tries=0)
            placements.append(Placement(entry, source=flight.item.source, delay_ms=delay_ms))
        await self._services.inserter.insert(placements)
        self._abandon(flights)
        for flight in flights:
            if self._waiting.moved(flight.item, Status.PARKING):
                self._verify_again(flight.item)

    # What follows

    def _follow(self, flight: Flight, due_by: int, again: list[Flight], rearms: list[tuple[Flight, Placement]]) -> None:
        """Compute what comes after a dispatched or skipped occurrence; the lease is looked at afterwards."""
        item, spec, entry = flight.item, flight.spec, flight.entry
        if entry.kind != Kind.ARM:
            self._follow_extra_run(flight, rearms)
            return
        if not item.missed:
            nominal = next_nominal(entry.spec, entry.scheduled_for)
        else:
            horizon = self._horizon(item)
            nominal, skipped = following(spec, entry.schedule_id, entry.scheduled_for, horizon, counted=flight.publish)
            if skipped:
                self._services.observer.skipped("missed", skipped)
                flight.chosen = 0
        if nominal is None or nominal >= self._waiting.end_of(item):
            self._finish(item)
            return
        due = spec.due_of(entry.schedule_id, nominal)
        later = Entry(
            entry.schedule_id,
            nominal,
            due,
            entry.version,
            previous=entry.scheduled_for,
            chosen=flight.chosen,
            skipped=flight.passed_over,
            spec=entry.spec,
            payload=entry.payload,
        )
        if due <= due_by and flight.rounds < CHUNK and not self._waiting.is_held(entry.schedule_id):
            # It is due already: it follows in this batch.
            if self._stand_for(item, nominal):
                again.append(self._flight(item, spec, later, rounds=flight.rounds + 1))
                if flight.passed_over != "missed":
                    again[-1].chosen = flight.chosen
            return
        rearms.append((flight, Placement(later, source=item.source)))

    def _follow_extra_run(self, flight: Flight, rearms: list[tuple[Flight, Placement]]) -> None:
        """Timers and triggers run once; a backfill has another turn."""
        item = flight.item
        if item.entry.kind == Kind.BACKFILL:
            _, stands_at = backfill_turn(item.entry, flight.spec)
            if stands_at is not None:
                due = next_turn_due(item.entry)
                turn = msgspec.structs.replace(item.entry, scheduled_for=stands_at, due=due, verify=False, tries=0)
                rearms.append((flight, Placement(turn, source=item.source)))
                return
        self._finish(item)

    async def _rearm(self, rearms: Sequence[tuple[Flight, Placement]]) -> None:
        if not rearms:
            return
        places = await self._services.inserter.insert([placement for _, placement in rearms])
        for (flight, _), place in zip(rearms, places, strict=True):
            if place is None:  # another owner has re-armed it; remember only that it is published
                self._abandon([flight])
                self._waiting.drop(flight.item)
            else:
                if place.level is Level.NEAR:
                    self._expect(place.position)
                self._finish(flight.item)

    def _finish(self, item: Item) -> None:
        """Dispatched, or skipped, and re-armed: no copy of it has anything left to do."""
        now = self._services.clock.monotonic_ms()
        self._services.lately.finished(identity(item.entry), now)
        for scheduled_for in item.also:
            self._services.lately.finished(identity(item.entry, scheduled_for), now)
        self._waiting.drop(item)

    def _abandon(self, flights: Iterable[Flight]) -> None:
        """Somebody else sees to the re-arm; what we published we do not publish again."""
        now = self._services.clock.monotonic_ms()
        for flight in flights:
            last = flight.entry.scheduled_for
            for scheduled_for in (flight.item.entry.scheduled_for, *flight.item.also):
                earlier = flight.rounds > 1 and scheduled_for < last
                if earlier or (flight.acked and scheduled_for == last):
                    self._services.lately.published(identity(flight.item.entry, scheduled_for), now)
