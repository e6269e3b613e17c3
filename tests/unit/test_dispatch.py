"""From due to re-armed, one batch at a time: every outcome of a publish, and what is armed afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import date, time, timedelta
from typing import Any

import pytest
from unit.manual_clock import START_MS as GENESIS_MS
from unit.scripted_store import World, a_world

from tocsin.dispatcher.audits import Audits
from tocsin.dispatcher.dispatch import CHUNK, Dispatch
from tocsin.dispatcher.lately import Lately, identity
from tocsin.dispatcher.layouts import KnownLayouts
from tocsin.dispatcher.load import Load
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.dispatcher.services import Services
from tocsin.dispatcher.topics import Topics
from tocsin.dispatcher.waiting import Item, Status, Waiting
from tocsin.producer.calendars import CalendarCache
from tocsin.producer.extra_runs import BackfillTerms
from tocsin.producer.persistence import Persistence
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.instants import HOUR_MS, MINUTE_MS, SECOND_MS, to_datetime
from tocsin.schema.recurrence import Daily, Every, Once
from tocsin.schema.schedules import Calendar, CatchUp, Marker, Spec, encode_spec

#: Ten days later: nothing a test speaks of lies before genesis.
START_MS = GENESIS_MS + 240 * HOUR_MS

HOURLY = Spec(recurrence=Every(timedelta(hours=1), anchor=to_datetime(START_MS - 100 * HOUR_MS)), topic="t")


class Heard:
    """An Observer that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.events.append((name, *arguments))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [event[1:] for event in self.events if event[0] == name]


class Answers:
    """A Publisher that answers as told; the last answer stands for all that follow."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = [Outcome.ACKED]
        self.records: list[Record] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def start(self) -> None: ...

    async def close(self, timeout_ms: int) -> None: ...

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        self.records += records
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        self.meanwhile()
        return [outcome] * len(records)

    @property
    def keys(self) -> list[str]:
        return [record.key.decode() for record in self.records]


class Desk:
    """One range's dispatch with everything around it made by hand."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard = Heard()
        self.publisher = Answers()
        self.waiting = Waiting(Load())
        self.holds = True
        self.again: list[Item] = []
        self.expected: list[int] = []
        timing = world.levels.timing
        self.services = Services(
            dispatcher_id="d",
            store=world.store,  # type: ignore[arg-type]
            genesis=GENESIS_MS,
            levels=world.levels,
            timing=timing,
            clock=world.clock,
            store_clock=world.store_clock,
            frontiers=world.frontiers,
            inserter=world.inserter(marks_late=True),
            persistence=Persistence(world.clock, timing),
            publisher=self.publisher,
            lately=Lately(timing.memory_ms),
            topics=Topics(timing),
            calendars=CalendarCache(
                world.store,  # type: ignore[arg-type]
                world.clock,
                Persistence(world.clock, timing),
                fresh_ms=MINUTE_MS,
            ),
            load=Load(),
            audits=Audits(
                world.store,  # type: ignore[arg-type]
                world.levels,
                world.inserter(marks_late=True),
                store_clock=world.store_clock,
                clock=world.clock,
                slow=False,
            ),
            layouts=KnownLayouts(
                world.store,  # type: ignore[arg-type]
                world.levels,
                world.store_clock,
                Persistence(world.clock, timing),
            ),
            observer=self.heard,  # type: ignore[arg-type]
        )
        self.dispatch = Dispatch(
            self.services,
            world.levels.shard_range("s"),
            self.waiting,
            holds=lambda: self.holds,
            near_read=world.store_clock.now_ms,
            verify_again=self.again.append,
            expect=self.expected.append,
        )

    def due(self, spec: Spec = HOURLY, *, late_ms: int = 0, missed: bool = False, **fields: Any) -> Item:
        """An item of schedule `s` that was taken to be dispatched."""
        at = START_MS - late_ms
        entry = Entry("s", fields.pop("scheduled_for", at), at, 7, spec=encode_spec(spec), payload=b"p", **fields)
        item = self.waiting.add(entry, at, missed=missed)
        assert item is not None
        item.spec = spec
        item.status = Status.DISPATCHING
        return item

    async def armed(self) -> list[Entry]:
        return [entry for _, _, entry in await self.world.waiting()]


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_world() as world:
        world.clock.turn(START_MS - GENESIS_MS + 1)
        await world.store_clock.refresh()
        await world.seal(sealed_near=START_MS, sealed_minute=START_MS)
        yield Desk(world)


async def test_what_is_acknowledged_arms_the_next_and_is_remembered(desk: Desk) -> None:
    item = desk.due()
    await desk.dispatch.run([item])
    assert desk.publisher.keys == [item.entry.key]
    (armed,) = await desk.armed()
    assert (armed.scheduled_for, armed.version, armed.previous, armed.verify) == (
        START_MS + HOUR_MS,
        7,
        START_MS,
        False,
    )
    assert (armed.spec, armed.payload) == (item.entry.spec, b"p")
    assert desk.waiting.count == 0
    assert desk.services.lately.was_finished(identity(item.entry))


async def test_a_single_occurrence_arms_nothing(desk: Desk) -> None:
    await desk.dispatch.run([desk.due(Spec(recurrence=Once(to_datetime(START_MS)), topic="t"))])
    assert await desk.armed() == []
    assert desk.waiting.count == 0


async def test_a_lease_lost_before_the_publish_publishes_nothing(desk: Desk) -> None:
    desk.holds = False
    await desk.dispatch.run([desk.due()])
    assert desk.publisher.records == []
    assert await desk.armed() == []


async def test_a_lease_lost_during_the_publish_arms_nothing_and_is_not_published_twice(desk: Desk) -> None:
    def lose() -> None:
        desk.holds = False

    desk.publisher.meanwhile = lose
    item = desk.due()
    await desk.dispatch.run([item])
    assert await desk.armed() == []
    lately = desk.services.lately
    assert lately.was_published(identity(item.entry))
    assert not lately.was_finished(identity(item.entry))
    desk.holds = True
    again = Desk(desk.world)
    again.services.__dict__["lately"] = lately
    await again.dispatch.run([again.due()])
    assert again.publisher.records == []
    assert [entry.scheduled_for for entry in await again.armed()] == [START_MS + HOUR_MS]


async def test_a_planned_stop_publishes_nothing_new(desk: Desk) -> None:
    desk.dispatch.stopping = True
    await desk.dispatch.run([desk.due()])
    assert desk.publisher.records == []


async def test_a_marker_that_came_meanwhile_drops_it_and_arms_nothing(desk: Desk) -> None:
    item = desk.due()
    marker = Marker(schedule_id="s", version=8, from_ms=0, until_ms=START_MS + HOUR_MS, verify=False)
    desk.waiting.apply(marker)
    await desk.dispatch.run([item])
    assert desk.publisher.records == []
    assert await desk.armed() == []
    assert desk.waiting.count == 0


async def test_while_the_broker_is_away_it_is_tried_again_and_reading_stops(desk: Desk) -> None:
    desk.publisher.outcomes = [Outcome.BROKER_AWAY, Outcome.BROKER_AWAY, Outcome.ACKED]
    away: list[bool] = []
    desk.publisher.meanwhile = lambda: away.append(desk.services.topics.is_broker_away)
    await desk.dispatch.run([desk.due()])
    assert away == [False, True, True]
    assert not desk.services.topics.is_broker_away
    assert len(desk.publisher.keys) == 3
    assert [entry.scheduled_for for entry in await desk.armed()] == [START_MS + HOUR_MS]
    assert desk.heard.of("dead_lettered") == []


async def test_an_occurrence_cancelled_while_the_broker_is_away_is_not_tried_again(desk: Desk) -> None:
    desk.publisher.outcomes = [Outcome.BROKER_AWAY]
    marker = Marker(schedule_id="s", version=8, from_ms=0, until_ms=START_MS + HOUR_MS, verify=False)
    desk.publisher.meanwhile = lambda: desk.waiting.apply(marker)
    await desk.dispatch.run([desk.due()])
    assert len(desk.publisher.keys) == 1
    assert await desk.armed() == []


@pytest.mark.parametrize("outcome", [Outcome.TOPIC_FAILING, Outcome.UNKNOWN_TOPIC])
async def test_a_failing_topic_parks_its_occurrence_marked_and_committed_may_pass(desk: Desk, outcome: Outcome) -> None:
    desk.publisher.outcomes = [outcome]
    await desk.dispatch.run([desk.due()])
    ((_, position, parked),) = await desk.world.waiting()
    assert parked.scheduled_for == START_MS
    assert parked.verify
    assert position >= START_MS + desk.world.levels.timing.park_ms
    assert desk.waiting.count == 0
    assert [(topic, len(entries)) for topic, entries in desk.heard.of("parked")] == [("t", 1)]


async def test_the_pause_of_a_failing_topic_doubles_up_to_its_limit() -> None:
    async with a_world() as world:
        topics = Desk(world).services.topics
        pauses = [topics.failed("t") for _ in range(12)]
        assert pauses[:3] == [SECOND_MS, 2 * SECOND_MS, 4 * SECOND_MS]
        assert pauses[-1] == 5 * MINUTE_MS
        topics.acked("t")
        assert topics.failed("t") == SECOND_MS


async def test_a_topic_that_stays_unknown_ends_as_a_dead_letter_and_the_schedule_goes_on(desk: Desk) -> None:
    desk.publisher.outcomes = [Outcome.UNKNOWN_TOPIC]
    await desk.dispatch.run([desk.due()])
    desk.world.clock.turn(desk.world.levels.timing.unknown_topic_ms)
    await desk.dispatch.run([desk.due()])
    assert desk.heard.of("dead_lettered") == [("unknown_topic", "s@2026-12-10T10:00:00.000Z")]
    assert START_MS + HOUR_MS in [entry.scheduled_for for entry in await desk.armed()]


@pytest.mark.parametrize("outcome", [Outcome.TOO_LARGE, Outcome.NOT_AUTHORISED, Outcome.NOT_ALLOWED, Outcome.INVALID])
async def test_what_can_never_be_published_is_a_dead_letter_and_the_schedule_goes_on(
    desk: Desk, outcome: Outcome
) -> None:
    desk.publisher.outcomes = [outcome]
    await desk.dispatch.run([desk.due()])
    assert desk.heard.of("dead_lettered") == [(outcome.value, "s@2026-12-10T10:00:00.000Z")]
    pages = desk.world.store.inner.read_dead_letters(desk.world.levels.shard_range("s"), 0, START_MS + HOUR_MS)
    letters = [letter async for page in pages for letter in page]
    assert [letter.reason for letter in letters] == [outcome.value]
    assert [entry.scheduled_for for entry in await desk.armed()] == [START_MS + HOUR_MS]


async def test_an_expired_occurrence_is_skipped_and_the_schedule_goes_on(desk: Desk) -> None:
    spec = Spec(recurrence=HOURLY.recurrence, topic="t", expires_after_ms=SECOND_MS)
    await desk.dispatch.run([desk.due(spec, late_ms=HOUR_MS)])
    assert desk.publisher.keys == ["s@2026-12-10T10:00:00.000Z"]  # the one after it is due now, and on time
    assert desk.heard.of("skipped") == [("expired", 1)]
    assert [entry.scheduled_for for entry in await desk.armed()] == [START_MS + HOUR_MS]


async def test_an_occurrence_on_an_excluded_date_is_skipped_and_the_schedule_goes_on(desk: Desk) -> None:
    # 10:00 UTC on the tenth is the eleventh already in Kiritimati, 14 hours ahead.
    spec = Spec(recurrence=Daily(time(0), tz="Pacific/Kiritimati"), topic="t", exclude=("holidays",))
    days = frozenset({date(2026, 12, 11)})
    await desk.world.store.write_calendar(Calendar(name="holidays", dates=days, version=1, token=b"1"), 0)
    await desk.dispatch.run([desk.due(spec)])
    assert desk.publisher.keys == []
    assert desk.heard.of("skipped") == [("excluded", 1)]
    assert [entry.scheduled_for for entry in await desk.armed()] == [START_MS + 24 * HOUR_MS]


async def test_a_new_date_of_a_calendar_is_seen_within_a_minute(desk: Desk) -> None:
    spec = Spec(recurrence=HOURLY.recurrence, topic="t", exclude=("holidays",))
    await desk.dispatch.run([desk.due(spec)])
    days = frozenset({date(2026, 12, 10)})
    await desk.world.store.write_calendar(Calendar(name="holidays", dates=days, version=1, token=b"1"), 0)
    desk.world.clock.turn(MINUTE_MS)
    await desk.dispatch.run([desk.due(spec, late_ms=-HOUR_MS)])
    assert desk.publisher.keys == ["s@2026-12-10T10:00:00.000Z"]
    assert desk.heard.of("skipped") == [("excluded", 1)]


async def test_latest_publishes_the_newest_and_says_how_many_it_passed_over(desk: Desk) -> None:
    item = desk.due(late_ms=3 * HOUR_MS, missed=True)
    await desk.dispatch.run([item])
    assert desk.publisher.keys == ["s@2026-12-10T10:00:00.000Z"]
    assert dict(desk.publisher.records[0].headers)["ce_missed"] == b"3"
    assert [entry.scheduled_for for entry in await desk.armed()] == [START_MS + HOUR_MS]


async def test_all_publishes_each_in_order_and_rearms_after_a_chunk(desk: Desk) -> None:
    spec = Spec(
        recurrence=Every(timedelta(minutes=1), anchor=to_datetime(START_MS - 1000 * MINUTE_MS)),
        topic="t",
        catch_up=CatchUp.ALL,
    )
    await desk.dispatch.run([desk.due(spec, late_ms=150 * MINUTE_MS, missed=True)])
    assert len(desk.publisher.keys) == CHUNK
    assert desk.publisher.keys == sorted(desk.publisher.keys)
    (armed,) = await desk.armed()
    assert armed.scheduled_for == START_MS - (150 - CHUNK) * MINUTE_MS
    assert armed.verify  # it lies later than its due: old news by the time it is read


async def test_a_catch_up_that_meets_an_entry_waiting_here_ends_there(desk: Desk) -> None:
    spec = Spec(recurrence=HOURLY.recurrence, topic="t", catch_up=CatchUp.ALL)
    old = desk.due(spec, late_ms=2 * HOUR_MS, missed=True)
    waiting = Entry("s", START_MS - HOUR_MS, START_MS - HOUR_MS, 7, spec=encode_spec(spec))
    assert desk.waiting.add(waiting, START_MS - HOUR_MS, missed=True) is not None
    await desk.dispatch.run([old])
    assert desk.publisher.keys == ["s@2026-12-10T08:00:00.000Z"]
    assert await desk.armed() == []
    assert desk.waiting.count == 1


async def test_a_rearm_whose_source_is_committed_leaves_it_to_the_owner_who_did_it(desk: Desk) -> None:
    await desk.world.seal(committed=START_MS)
    item = desk.due()
    await desk.dispatch.run([item])
    assert desk.waiting.count == 0
    assert not desk.services.lately.was_finished(identity(item.entry))


async def test_a_trigger_runs_once_beside_the_rule(desk: Desk) -> None:
    await desk.dispatch.run([desk.due(kind=Kind.TRIGGER, request="r1", missed=True)])
    assert desk.publisher.keys == ["s@2026-12-10T10:00:00.000Z!r1"]
    assert await desk.armed() == []


async def test_a_backfill_publishes_one_turn_with_the_live_keys_and_stands_at_the_next(desk: Desk) -> None:
    terms = BackfillTerms("b1", START_MS, per_second=3)
    item = desk.due(kind=Kind.BACKFILL, request=terms.encode(), scheduled_for=START_MS - 5 * HOUR_MS)
    await desk.dispatch.run([item])
    assert desk.publisher.keys == [f"s@2026-12-10T{hour:02}:00:00.000Z" for hour in (5, 6, 7)]
    ((_, _, turn),) = await desk.world.waiting()
    assert (turn.kind, turn.scheduled_for, turn.due) == (Kind.BACKFILL, START_MS - 2 * HOUR_MS, START_MS + SECOND_MS)
    assert turn.request == terms.encode()


async def test_a_backfill_ends_before_the_end_of_its_window(desk: Desk) -> None:
    terms = BackfillTerms("b1", START_MS - 3 * HOUR_MS, per_second=100)
    await desk.dispatch.run(
        [desk.due(kind=Kind.BACKFILL, request=terms.encode(), scheduled_for=START_MS - 5 * HOUR_MS)]
    )
    assert desk.publisher.keys == ["s@2026-12-10T05:00:00.000Z", "s@2026-12-10T06:00:00.000Z"]
    assert await desk.armed() == []
    assert desk.waiting.count == 0


async def test_a_backfill_whose_topic_fails_is_parked_whole(desk: Desk) -> None:
    desk.publisher.outcomes = [Outcome.TOPIC_FAILING]
    terms = BackfillTerms("b1", START_MS, per_second=3)
    await desk.dispatch.run(
        [desk.due(kind=Kind.BACKFILL, request=terms.encode(), scheduled_for=START_MS - 5 * HOUR_MS)]
    )
    ((_, _, parked),) = await desk.world.waiting()
    assert (parked.kind, parked.scheduled_for, parked.request) == (
        Kind.BACKFILL,
        START_MS - 5 * HOUR_MS,
        terms.encode(),
    )


async def test_a_backfill_publishes_again_what_went_out_live_a_moment_ago(desk: Desk) -> None:
    live = desk.due()
    await desk.dispatch.run([live])
    terms = BackfillTerms("b1", START_MS + 1, per_second=3)
    await desk.dispatch.run([desk.due(kind=Kind.BACKFILL, request=terms.encode(), late_ms=-1, scheduled_for=START_MS)])
    assert desk.publisher.keys == [live.entry.key, live.entry.key]
