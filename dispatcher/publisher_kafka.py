"""What both Kafka publishers share: order, room, topic look-ups, and telling an absent broker from a failing topic.

A batch is cut by topic, and every topic has a lane. A batch enters all its lanes in the moment `publish` is called, and
each lane hands over in that order: so order holds per topic across any number of batches under way, and a topic that
waits for its metadata or for room holds up nobody but itself. What a lane hands over at once is a parcel; a parcel
counts its answers down and is finished by the last one, so there is one future per parcel, none per record.

    publish ──► lane(topic): turn ► partition count known? ► room? ──► client.hand_over(parcel)
                                         │                                   │ answers, any order
                                look-up in a thread                    parcel finished ► room given back

The event loop never waits for the cluster: look-ups run in threads, one per topic at a time, and their answer is shared
by whoever waits. A partition count is refreshed in the background, as a topic may gain partitions; an answer that a
topic is unknown holds for a moment only, so that a topic created late is found.

A record without an answer until the delivery timeout says nothing about whose fault it was. Then the topic is looked
up once more: no reply means the broker is away; an unknown topic says so itself; and a topic that has no leader, or
that stays silent while other topics were acknowledged, is failing by itself.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tocsin.dispatcher.publisher import Outcome
from tocsin.dispatcher.room import Room, Share
from tocsin.dispatcher.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tocsin.dispatcher.publisher import PublisherSettings, Record

#: Records of one parcel at most: a few milliseconds of the loop, then others have their turn.
PARCEL_COUNT_MAX = 500
#: Bytes of one parcel at most, unless a single record is larger.
PARCEL_BYTES_MAX = 4 * 1024 * 1024
#: How long the answer that a topic cannot be used now is taken as still true, in seconds.
VERDICT_TTL_S = 0.5
#: Look-ups under way at once; more topics than this wait for each other only while the cluster does not answer.
LOOK_UPS_MAX = 4
#: Framing of key, value and headers in a request; clients count it towards the largest record they take.
FRAMING_BYTES = 16 * 1024
#: Lanes kept; beyond it the idle ones are forgotten, for topic names come from whoever creates schedules.
LANES_MAX = 10_000


class TopicView(NamedTuple):
    """A topic as the cluster describes it."""

    partition_count: int
    leaderless_count: int = 0


class LookUpFailed(Exception):
    """The cluster did not describe the topic; `outcome` says what that means for its records."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.value)


class KafkaClient(Protocol):
    """The part in which the two clients differ."""

    def start(self) -> None:
        """Make ready, without waiting for a broker."""

    def look_up(self, topic: str) -> TopicView:
        """Ask the cluster, in a calling thread that may block. Raises LookUpFailed."""

    def hand_over(self, parcel: Parcel) -> None:
        """Take all records in order, never block; the parcel is answered on the loop."""

    async def close(self) -> None:
        """Give up what is still under way and free every resource."""


class Parcel:
    """Records of one topic handed over at once, and their answers as they come in, on the event loop."""

    __slots__ = ("finished", "handed_over_at", "outcomes", "partition_count", "pending", "records", "topic")

    def __init__(self, topic: str, records: Sequence[Record], partition_count: int, now: float) -> None:
        self.topic = topic
        self.records = records
        self.partition_count = partition_count
        self.handed_over_at = now
        #: An acknowledgement changes nothing here: the usual answer costs one decrement.
        self.outcomes = [Outcome.ACKED] * len(records)
        self.pending = len(records)
        #: Done once every record has its answer.
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(self, index: int, outcome: Outcome) -> None:
        """The answer of one record."""
        self.outcomes[index] = outcome
        self.answered()

    def answered(self) -> None:
        """One more record has its answer."""
        self.pending -= 1
        if not self.pending and not self.finished.done():
            self.finished.set_result(None)

    def answer_all(self, outcome: Outcome) -> Parcel:
        """Every record has this answer, whatever came in before, or will."""
        self.outcomes = [outcome] * len(self.records)
        self.pending = 0
        if not self.finished.done():
            self.finished.set_result(None)
        return self


class Turn:
    """A place in a lane's order, taken the moment it is made."""

    __slots__ = ("_before", "_over")

    def __init__(self, lane: Lane) -> None:
        self._before = lane.last
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.last = self._over

    async def comes(self) -> None:
        """Wait for everybody before."""
        if self._before is not None and not self._before.done():
            await asyncio.wait((self._before,))
        self._before = None

    def over(self) -> None:
        """Let the next one go."""
        self._over.set_result(None)


class Lane:
    """What is known of one topic, and the order of its batches."""

    __slots__ = ("acked_at", "asked_at", "asking", "last", "share", "topic", "verdict", "view")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.share = Share()
        self.last: asyncio.Future[None] | None = None
        self.view: TopicView | None = None
        #: What the last look-up said against the topic; a view may outlive a broker that is away.
        self.verdict: Outcome | None = None
        self.asked_at = float("-inf")
        self.asking: asyncio.Task[None] | None = None
        self.acked_at = float("-inf")

    @property
    def idle(self) -> bool:
        """Nobody is under way here."""
        return not self.share.count and self.asking is None and (self.last is None or self.last.done())


class KafkaPublisher:
    """The publisher of kafka:// sinks, over either client. One event loop, no call from another thread."""

    def __init__(self, client: KafkaClient, settings: PublisherSettings) -> None:
        self._client = client
        self._refresh_s = settings.metadata_refresh_ms / 1000
        self._room = Room(count_max=settings.unacked_count_max, bytes_max=settings.unacked_bytes_max)
        self._parcel_count_max = max(1, min(PARCEL_COUNT_MAX, settings.unacked_count_max // 2))
        self._parcel_bytes_max = min(PARCEL_BYTES_MAX, settings.unacked_bytes_max // 2)
        self._lanes: dict[str, Lane] = {}
        self._parcels: set[Parcel] = set()
        #: One parcel in each pass of the loop: lanes take turns, and whatever else is ready is served in between.
        self._turns = Turns()
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    @property
    def unacked_count(self) -> int:
        """Records handed over and not yet answered."""
        return self._room.count

    @property
    def unacked_bytes(self) -> int:
        """Their keys, values and headers, in bytes."""
        return self._room.size_bytes

    async def start(self) -> None:
        """Make ready; does not wait for a broker, which may be away now and back later."""
        self._threads = ThreadPoolExecutor(LOOK_UPS_MAX, thread_name_prefix="tocsin-look-up")
        self._client.start()

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Hand all records over, wait for every answer, return one outcome per record in the same order."""
        by_topic: dict[str, list[int]] = {}
        for index, record in enumerate(records):
            by_topic.setdefault(record.topic, []).append(index)
        if len(by_topic) == 1:
            lane = self._lane(records[0].topic)
            return await self._carry(lane, Turn(lane), records)
        carried = []
        for topic, indices in by_topic.items():
            lane = self._lane(topic)
            carried.append(self._carry(lane, Turn(lane), [records[index] for index in indices]))
        outcomes = [Outcome.ACKED] * len(records)
        for indices, answers in zip(by_topic.values(), await asyncio.gather(*carried), strict=True):
            for index, outcome in zip(indices, answers, strict=True):
                outcomes[index] = outcome
        return outcomes

    async def close(self, timeout_ms: int) -> None:
        """Wait up to `timeout_ms` for the answers in flight, then give up what is left as BROKER_AWAY."""
        if self._closed:
            return
        if self._parcels:
            await asyncio.wait([parcel.finished for parcel in self._parcels], timeout=timeout_ms / 1000)
        self._closed = True
        await self._client.close()
        for parcel in tuple(self._parcels):
            parcel.answer_all(Outcome.BROKER_AWAY)
        for lane in self._lanes.values():
            if lane.asking is not None:
                lane.asking.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def _carry(self, lane: Lane, turn: Turn, records: Sequence[Record]) -> list[Outcome]:
        parcels: list[Parcel] = []
        try:
            await turn.comes()
            for part, size_bytes in self._parts(records):
                parcels.append(await self._hand_over(lane, part, size_bytes))
        finally:
            turn.over()
        outcomes: list[Outcome] = []
        for parcel in parcels:
            await asyncio.shield(parcel.finished)
            if Outcome.BROKER_AWAY in parcel.outcomes:
                await self._find_fault(lane, parcel)
            outcomes += parcel.outcomes
        return outcomes

    async def _hand_over(self, lane: Lane, records: Sequence[Record], size_bytes: int) -> Parcel:
        view = None if self._closed else await self._view(lane)
        if view is not None:
            await self._room.take(lane.share, len(records), size_bytes)
        parcel = Parcel(lane.topic, records, view.partition_count if view else 0, self._now())
        if view is None:
            return parcel.answer_all(lane.verdict or Outcome.BROKER_AWAY)
        self._parcels.add(parcel)
        parcel.finished.add_done_callback(lambda _: self._finish(lane, parcel, size_bytes))
        await self._in_turn(parcel)
        return parcel

    async def _in_turn(self, parcel: Parcel) -> None:
        its_turn_came = False
        try:
            async with self._turns:
                its_turn_came = not self._closed
                if its_turn_came:
                    self._client.hand_over(parcel)
        finally:
            if not its_turn_came:
                parcel.answer_all(Outcome.BROKER_AWAY)

    def _finish(self, lane: Lane, parcel: Parcel, size_bytes: int) -> None:
        self._parcels.discard(parcel)
        self._room.give_back(lane.share, len(parcel.records), size_bytes)
        acked_count = parcel.outcomes.count(Outcome.ACKED)
        if acked_count:
            lane.acked_at = self._now()
        if acked_count < len(parcel.records):
            self._doubt(lane, parcel.outcomes)

    def _doubt(self, lane: Lane, outcomes: Sequence[Outcome]) -> None:
        """After such answers the topic is looked up again; what was said of the topic itself holds until then."""
        for verdict in (Outcome.NOT_AUTHORISED, Outcome.UNKNOWN_TOPIC):
            if verdict in outcomes:
                lane.view, lane.verdict, lane.asked_at = None, verdict, self._now()
                return
        if Outcome.TOPIC_FAILING in outcomes:
            lane.view, lane.verdict = None, None

    def _parts(self, records: Sequence[Record]) -> Iterator[tuple[Sequence[Record], int]]:
        sizes = [record.bytes_unacked for record in records]
        size_bytes = sum(sizes)
        if len(records) <= self._parcel_count_max and size_bytes <= self._parcel_bytes_max:
            yield records, size_bytes
            return
        start = size_bytes = 0
        for index, record_bytes in enumerate(sizes):
            if index > start and (
                index - start >= self._parcel_count_max or size_bytes + record_bytes > self._parcel_bytes_max
            ):
                yield records[start:index], size_bytes
                start, size_bytes = index, 0
            size_bytes += record_bytes
        yield records[start:], size_bytes

    def _lane(self, topic: str) -> Lane:
        lane = self._lanes.get(topic)
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                self._lanes = {name: kept for name, kept in self._lanes.items() if not kept.idle}
            lane = self._lanes[topic] = Lane(topic)
        return lane

    async def _view(self, lane: Lane) -> TopicView | None:
        age_s = self._now() - lane.asked_at
        if lane.view is None:
            if lane.verdict is None or age_s > VERDICT_TTL_S:
                await self._ask(lane)
        elif age_s > self._refresh_s:
            self._start_asking(lane)
        return lane.view

    async def _ask(self, lane: Lane) -> None:
        await asyncio.wait((self._start_asking(lane),))

    def _start_asking(self, lane: Lane) -> asyncio.Task[None]:
        if lane.asking is None:
            lane.asking = asyncio.create_task(self._look_up(lane))
        return lane.asking

    async def _look_up(self, lane: Lane) -> None:
        try:
            lane.view = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._client.look_up, lane.topic
            )
            lane.verdict = None
        except LookUpFailed as failed:
            lane.verdict = failed.outcome
            if failed.outcome is not Outcome.BROKER_AWAY:
                lane.view = None
        finally:
            lane.asked_at = self._now()
            lane.asking = None

    async def _find_fault(self, lane: Lane, parcel: Parcel) -> None:
        if self._now() - lane.asked_at > VERDICT_TTL_S and not self._closed:
            await self._ask(lane)
        fault = lane.verdict or (Outcome.TOPIC_FAILING if self._fails_alone(lane, parcel) else Outcome.BROKER_AWAY)
        parcel.outcomes = [fault if outcome is Outcome.BROKER_AWAY else outcome for outcome in parcel.outcomes]

    def _fails_alone(self, lane: Lane, parcel: Parcel) -> bool:
        if lane.view is not None and lane.view.leaderless_count:
            return True
        half_way = (parcel.handed_over_at + self._now()) / 2
        return any(other.acked_at > half_way for other in self._lanes.values() if other is not lane)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
