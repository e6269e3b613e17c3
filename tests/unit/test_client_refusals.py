"""Every argument's bad values, at every call that takes it: refused by field and reason, and nothing written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from unit.manual_clock import START_MS, ManualClock
from unit.scripted_store import ScriptedStore

from tocsin import (
    AsyncScheduler,
    CatchUp,
    Cron,
    Daily,
    Every,
    InstantInPast,
    InvalidSchedule,
    NeverOccurs,
    NewSchedule,
    Once,
    PayloadTooLarge,
    Scheduler,
)
from tocsin.schema.instants import to_datetime
from tocsin.schema.open_store import open_store

START = to_datetime(START_MS)
HOURLY = Every(timedelta(hours=1))
INSTANT = "2036-12-01T00:00:00.000Z"
NAIVE = datetime(2027, 1, 1)  # noqa: DTZ001 — what is refused
WRITES = {"write_pack", "write_marker", "insert_schedule", "replace_schedule"}


@pytest.fixture
async def store() -> AsyncIterator[ScriptedStore]:
    clock = ManualClock()
    store = ScriptedStore(open_store("sqlite:///:memory:", clock=clock, create=True))
    store.clock = clock
    yield store
    await store.close()


@pytest.fixture
async def scheduler(store: ScriptedStore) -> AsyncIterator[AsyncScheduler]:
    async with AsyncScheduler(store, clock=store.clock) as scheduler:
        await scheduler.create("there", HOURLY, topic="t", start=START)
        yield scheduler


#: Fields that create and update take, a bad value each, and the field that is named.
BAD_FIELDS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"topic": ""}, "topic"),
    ({"topic": "no topic"}, "topic"),
    ({"topic": "x" * 250}, "topic"),
    ({"topic": ".."}, "topic"),
    ({"topic": 7}, "topic"),
    ({"recurrence": "* * * * *"}, "recurrence"),
    ({"recurrence": None}, "recurrence"),
    ({"recurrence": Once(START - timedelta(days=1))}, "recurrence"),
    ({"payload": "text"}, "payload"),
    ({"payload": b"x" * (64 * 1024 + 1)}, "payload"),
    ({"content_type": "a\nb"}, "content_type"),
    ({"headers": {"ce_id": "x"}}, "headers"),
    ({"headers": {"Content-Type": "x"}}, "headers"),
    ({"headers": {"name": 7}}, "headers"),
    ({"headers": {"": "x"}}, "headers"),
    ({"headers": {"name": "x" * 8 * 1024}}, "headers"),
    ({"headers": [("name", "value")]}, "headers"),
    ({"partition_key": ""}, "partition_key"),
    ({"partition_key": b"key"}, "partition_key"),
    ({"start": NAIVE}, "start"),
    ({"start": "2027-01-01"}, "start"),
    ({"until": NAIVE}, "until"),
    ({"start": START + timedelta(days=2), "until": START + timedelta(days=1)}, "until"),
    ({"max_runs": 0}, "max_runs"),
    ({"max_runs": 2.0}, "max_runs"),
    ({"max_runs": True}, "max_runs"),
    ({"max_runs": 10**9}, "max_runs"),
    ({"jitter": timedelta(hours=1)}, "jitter"),
    ({"jitter": timedelta(hours=13), "recurrence": Daily(time(9), tz="UTC")}, "jitter"),
    ({"jitter": -timedelta(seconds=1)}, "jitter"),
    ({"jitter": 30}, "jitter"),
    ({"catch_up": "latest"}, "catch_up"),
    ({"max_catch_up": 0}, "max_catch_up"),
    ({"max_catch_up": 10**7}, "max_catch_up"),
    ({"expires_after": timedelta(0)}, "expires_after"),
    ({"expires_after": timedelta(days=400)}, "expires_after"),
    ({"expires_after": 60}, "expires_after"),
    ({"exclude": "holidays"}, "exclude"),
    ({"exclude": ["holidays"]}, "exclude"),
    ({"exclude": [7]}, "exclude"),
    ({"tenant": ""}, "tenant"),
    ({"tenant": "a\x00b"}, "tenant"),
    ({"tenant": "x" * 129}, "tenant"),
    ({"tenant": None}, "tenant"),
    ({"tags": "tag"}, "tags"),
    ({"tags": [f"t{number}" for number in range(65)]}, "tags"),
    ({"tags": ["a\tb"]}, "tags"),
    ({"tags": [[]]}, "tags"),
    ({"definition": ""}, "definition"),
    ({"note": "x" * 4097}, "note"),
    ({"note": None}, "note"),
    ({"no_such_field": 1}, "no_such_field"),
)


async def refused(store: ScriptedStore, call: Callable[[], Awaitable[object]]) -> InvalidSchedule:
    """The refusal, with its reason; nothing is written."""
    begun = sum(name in WRITES for name in store.made)
    with pytest.raises(InvalidSchedule) as error:
        await call()
    assert error.value.reason
    assert sum(name in WRITES for name in store.made) == begun
    return error.value


@pytest.mark.parametrize(("fields", "field"), BAD_FIELDS)
async def test_a_bad_field_of_a_new_schedule_is_refused(
    store: ScriptedStore, scheduler: AsyncScheduler, fields: dict[str, Any], field: str
) -> None:
    given = {"schedule_id": "s", "recurrence": HOURLY, "topic": "t"} | fields
    error = await refused(store, lambda: scheduler.create(given.pop("schedule_id"), given.pop("recurrence"), **given))
    assert error.field == field or field in str(error)


@pytest.mark.parametrize(("fields", "field"), BAD_FIELDS)
async def test_a_bad_field_of_an_update_is_refused(
    store: ScriptedStore, scheduler: AsyncScheduler, fields: dict[str, Any], field: str
) -> None:
    before = await scheduler.get("there")
    error = await refused(store, lambda: scheduler.update("there", **fields))
    assert error.field == field
    assert await scheduler.get("there") == before


async def test_jitter_may_take_half_a_day_where_the_rule_leaves_room(scheduler: AsyncScheduler) -> None:
    made = await scheduler.create("s", Daily(time(9), tz="UTC"), topic="t", jitter=timedelta(hours=12))
    assert made.jitter == timedelta(hours=12)


@pytest.mark.parametrize("schedule_id", ["", "x" * 256, "a\nb", "a\u2028b", "\ud800", 7, b"s"])
async def test_a_bad_id_is_refused_by_every_call_that_takes_one(
    store: ScriptedStore, scheduler: AsyncScheduler, schedule_id: Any
) -> None:
    for call in (
        lambda: scheduler.create(schedule_id, HOURLY, topic="t"),
        lambda: scheduler.get(schedule_id),
        lambda: scheduler.update(schedule_id, note="x"),
        lambda: scheduler.pause(schedule_id),
        lambda: scheduler.resume(schedule_id),
        lambda: scheduler.cancel(schedule_id),
        lambda: scheduler.upcoming(schedule_id),
    ):
        assert (await refused(store, call)).field == "schedule_id"


@pytest.mark.parametrize("key", [7, None, b"k", "s", f"\ud800@{INSTANT}", f"a\nb@{INSTANT}", f"{'x' * 256}@{INSTANT}"])
async def test_recalling_what_is_no_timers_key_is_refused(
    store: ScriptedStore, scheduler: AsyncScheduler, key: Any
) -> None:
    assert (await refused(store, lambda: scheduler.recall(key))).field in {"key", "schedule_id"}


@pytest.mark.parametrize("request_id", [7, b"r", "", "x" * 129, "a@b", "a!b", "a\nb", "\ud800"])
async def test_a_bad_request_id_is_refused_by_every_call_that_takes_one(
    store: ScriptedStore, scheduler: AsyncScheduler, request_id: Any
) -> None:
    for call in (
        lambda: scheduler.trigger("there", request_id=request_id),
        lambda: scheduler.backfill("there", START - timedelta(hours=2), START, request_id=request_id),
    ):
        assert (await refused(store, call)).field == "request_id"


async def test_what_never_occurs_and_what_is_past_and_what_is_too_large_have_errors_of_their_own(
    store: ScriptedStore, scheduler: AsyncScheduler
) -> None:
    february = Daily(time(9), tz="UTC")
    end = START + timedelta(hours=1)
    never = await refused(store, lambda: scheduler.create("s", february, topic="t", until=end, catch_up=CatchUp.ALL))
    assert type(never) is NeverOccurs
    past = await refused(store, lambda: scheduler.create("s", Once(START - timedelta(hours=1)), topic="t"))
    assert type(past) is InstantInPast
    large = await refused(store, lambda: scheduler.create("s", HOURLY, topic="t", payload=b"x" * 10**6))
    assert type(large) is PayloadTooLarge


@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("resume_from", [START + timedelta(minutes=5), NAIVE, "now", 7])
async def test_resuming_from_the_future_or_from_no_instant_is_refused(
    store: ScriptedStore, scheduler: AsyncScheduler, resume_from: Any, paused: bool
) -> None:
    if paused:
        await scheduler.pause("there")
    elif isinstance(resume_from, datetime) and resume_from.tzinfo is not None:
        return  # An active schedule is resumed already, from whenever.
    error = await refused(store, lambda: scheduler.resume("there", resume_from=resume_from))
    assert error.field == "resume_from"


@pytest.mark.parametrize(("changes", "field"), [({"paused": True}, "paused"), ({"schedule_id": "x"}, "schedule_id")])
async def test_what_an_update_cannot_change_is_refused(
    store: ScriptedStore, scheduler: AsyncScheduler, changes: dict[str, Any], field: str
) -> None:
    async def update() -> object:
        return await scheduler.update("there", **changes)

    if field == "schedule_id":
        with pytest.raises(TypeError):
            await update()
    else:
        assert (await refused(store, update)).field == field


@pytest.mark.parametrize(
    "make",
    [
        lambda: Every(timedelta(milliseconds=999)),
        lambda: Every(timedelta(seconds=1, microseconds=1)),
        lambda: Cron("* * *"),
        lambda: Cron("0 9 * * *", tz="Europe/Atlantis"),
        lambda: Daily(time(9, tzinfo=UTC), tz="UTC"),
        lambda: Once(NAIVE),
    ],
)
def test_a_rule_that_is_none_is_refused_where_it_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidSchedule) as error:
        make()
    assert error.value.field
    assert error.value.reason


async def test_a_bad_item_is_refused_before_many_are_created(store: ScriptedStore, scheduler: AsyncScheduler) -> None:
    async def create() -> None:
        async for _ in scheduler.create_many([NewSchedule(schedule_id="s", recurrence=HOURLY, topic="")]):
            pass

    assert (await refused(store, create)).field == "topic"


# Calls beside create and update, on both clients

Call = Callable[[Any], Any]


def _backfill(**arguments: Any) -> Call:
    window = {"start": START - timedelta(hours=2), "end": START - timedelta(minutes=1)}
    return lambda scheduler: scheduler.backfill("there", **(window | arguments))


def _apply(*ids: str | None, **fields: Any) -> Call:
    declared = [NewSchedule(schedule_id=each, recurrence=HOURLY, topic="t", **fields) for each in ids]
    return lambda scheduler: scheduler.apply(declared, owner="mine")


def _send(**arguments: Any) -> Call:
    timer = {"at": START + timedelta(hours=1), "timer_id": "timer"} | arguments
    topic = timer.pop("topic", "t")
    return lambda scheduler: scheduler.send_at(topic, **timer)


BAD_CALLS: dict[str, tuple[Call, str]] = {
    "backfill from no zone": (_backfill(start=NAIVE), "start"),
    "backfill from a text": (_backfill(start="yesterday"), "start"),
    "backfill to no zone": (_backfill(end=NAIVE), "end"),
    "backfill backwards": (_backfill(start=START, end=START - timedelta(hours=1)), "end"),
    "backfill of nothing": (_backfill(start=START), "end"),
    "backfill of the future": (_backfill(end=START + timedelta(hours=1)), "end"),
    "backfill at no rate": (_backfill(per_second=0), "per_second"),
    "backfill too fast": (_backfill(per_second=10**6), "per_second"),
    "backfill at a rate that is no number": (_backfill(per_second="fast"), "per_second"),
    "backfill at half a rate": (_backfill(per_second=0.5), "per_second"),
    "backfill of ten million": (
        lambda scheduler: scheduler.backfill("fast", START - timedelta(days=120), START - timedelta(minutes=1)),
        "start",
    ),
    "apply of one id twice": (_apply("a", "b", "a"), "schedule_id"),
    "apply without an id": (_apply("a", None), "schedule_id"),
    "apply of what is somebody else's": (_apply("there"), "schedule_id"),
    "apply of a number of runs": (_apply("a", max_runs=3), "max_runs"),
    "apply with another owner": (_apply("a", tags=["owner:theirs"]), "tags"),
    "apply of no owner": (lambda scheduler: scheduler.apply([], owner=""), "owner"),
    "apply of an owner that is no text": (lambda scheduler: scheduler.apply([], owner=7), "owner"),
    "send at no zone": (_send(at=NAIVE), "at"),
    "send at a text": (_send(at="soon"), "at"),
    "send into the past": (_send(at=START - timedelta(hours=1)), "at"),
    "send to no topic": (_send(topic="no topic"), "topic"),
    "send a text": (_send(payload="text"), "payload"),
    "send too much": (_send(payload=b"x" * (64 * 1024 + 1)), "payload"),
    "send under no id": (_send(timer_id="a\nb"), "timer_id"),
    "send headers of ours": (_send(headers={"ce_id": "x"}), "headers"),
    "send for no tenant": (_send(tenant=""), "tenant"),
    "send what is expired at once": (_send(expires_after=timedelta(0)), "expires_after"),
    "send what is unknown": (_send(colour="red"), "definition"),
    "a calendar without a name": (lambda scheduler: scheduler.set_calendar("", []), "calendar"),
    "a calendar of a text": (lambda scheduler: scheduler.set_calendar("off", "2036-01-01"), "dates"),
    "a calendar of instants": (lambda scheduler: scheduler.set_calendar("off", [START]), "dates"),
    "a calendar of numbers": (lambda scheduler: scheduler.set_calendar("off", [7]), "dates"),
    "update at a version that is none": (
        lambda scheduler: scheduler.update("there", expected_version="1", note="n"),
        "expected_version",
    ),
    "pause with a note that is none": (lambda scheduler: scheduler.pause("there", note=7), "note"),
    "pause with a note too long": (lambda scheduler: scheduler.pause("there", note="x" * 4097), "note"),
    "create what is unknown": (lambda scheduler: scheduler.create("s", HOURLY, topic="t", colour="red"), "definition"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
async def test_a_bad_argument_is_refused_by_its_field_before_anything_is_written(
    store: ScriptedStore, scheduler: AsyncScheduler, name: str
) -> None:
    call, field = BAD_CALLS[name]
    await scheduler.create("fast", Every(timedelta(seconds=1), anchor=START - timedelta(days=200)), topic="t")
    assert (await refused(store, lambda: call(scheduler))).field == field


def test_the_synchronous_client_refuses_the_same() -> None:
    clock = ManualClock()
    store = ScriptedStore(open_store("sqlite:///:memory:", clock=clock, create=True))
    with Scheduler(store, clock=clock) as scheduler:  # type: ignore[arg-type]
        scheduler.create("there", HOURLY, topic="t", start=START)
        scheduler.create("fast", Every(timedelta(seconds=1), anchor=START - timedelta(days=200)), topic="t")
        written = sum(name in WRITES for name in store.made)
        for call, field in BAD_CALLS.values():
            with pytest.raises(InvalidSchedule) as error:
                call(scheduler)
            assert (error.value.field, bool(error.value.reason)) == (field, True)
        assert sum(name in WRITES for name in store.made) == written
