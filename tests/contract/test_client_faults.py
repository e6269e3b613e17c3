"""A store that stops answering at each step of each call: the outcome is told as unknown, and a repeat settles it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from tocsin import AsyncScheduler, Every, NewSchedule, NewTimer, OutcomeUnknown, ScheduleNotFound, State
from tocsin.schema.clock import SystemClock
from tocsin.schema.errors import StoreTimeout, StoreUnavailable, TocsinError
from tocsin.schema.store import Store

from .conftest import TIMING, Fresh

HOURLY = Every(timedelta(hours=1), anchor=datetime(2026, 1, 1, tzinfo=UTC))
LATER = datetime(2036, 1, 1, tzinfo=UTC)
#: No call of a client makes more calls to the store than this before it is done.
STEPS_MAX = 40


class Hurried(SystemClock):
    """Whoever waits has waited at once."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self._ahead_ms

    async def sleep_ms(self, duration_ms: int) -> None:
        self._ahead_ms += max(0, duration_ms)


class Dying:
    """Passes calls on; from one of them on nothing answers any more, whether that one was done or not."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._count = 0
        self._dies_at: int | None = None
        self._applied = False

    def die(self, at: int, *, applied: bool) -> None:
        self._count, self._dies_at, self._applied = 0, at, applied

    def heal(self) -> bool:
        """Answer again. True: it had died."""
        died = self._dies_at is not None and self._count > self._dies_at
        self._dies_at = None
        return died

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def call(*arguments: Any) -> Any:
            number, self._count = self._count, self._count + 1
            if self._dies_at is None or number < self._dies_at:
                return await attribute(*arguments)
            if number == self._dies_at and self._applied:
                await attribute(*arguments)
            raise StoreTimeout

        return call


Act = Callable[[AsyncScheduler, str], Awaitable[object]]


class Verb(NamedTuple):
    """One call, what has to be before it, and what has to be after it."""

    act: Act
    before: Act | None = None
    after: Callable[[AsyncScheduler, str], Awaitable[bool]] | None = None


async def _create(scheduler: AsyncScheduler, name: str) -> object:
    return await scheduler.create(name, HOURLY, topic="t")


async def _set_calendar(scheduler: AsyncScheduler, name: str) -> object:
    return await scheduler.set_calendar(name, [date(2036, 1, 1)])


async def _create_excluding(scheduler: AsyncScheduler, name: str) -> object:
    return await scheduler.create(name, HOURLY, topic="t", exclude=[name])


async def _pause(scheduler: AsyncScheduler, name: str) -> object:
    await _create(scheduler, name)
    return await scheduler.pause(name)


async def _all_of(results: AsyncIterator[Any]) -> object:
    """Every result of many; the first error."""
    found = [result async for result in results]
    for result in found:
        if result.error is not None:
            raise result.error
    return found


async def _apply(scheduler: AsyncScheduler, name: str) -> object:
    declared = [NewSchedule(schedule_id=f"{name}-{number}", recurrence=HOURLY, topic="t") for number in range(2)]
    for error in (result := await scheduler.apply(declared, owner=name)).failed.values():
        raise error
    return result


def _new(name: str) -> list[NewSchedule]:
    return [NewSchedule(schedule_id=f"{name}-{number}", recurrence=HOURLY, topic="t") for number in range(2)]


def _timers(name: str) -> list[NewTimer]:
    return [NewTimer(timer_id=f"{name}-{number}", topic="t", at=LATER) for number in range(2)]


def _is(state: State, **fields: Any) -> Callable[[AsyncScheduler, str], Awaitable[bool]]:
    async def check(scheduler: AsyncScheduler, name: str) -> bool:
        found = await scheduler.get(name)
        return found.state is state and all(getattr(found, field) == value for field, value in fields.items())

    return check


async def _both_are_there(scheduler: AsyncScheduler, name: str) -> bool:
    return all([(await scheduler.get(f"{name}-{number}")).state is State.ACTIVE for number in range(2)])


async def _calendar_is_set(scheduler: AsyncScheduler, name: str) -> bool:
    return (await scheduler.get_calendar(name)).dates == {date(2036, 1, 1)}


def _backfill(scheduler: AsyncScheduler, name: str) -> Awaitable[object]:
    start, end = datetime.now(UTC) - timedelta(hours=5), datetime.now(UTC) - timedelta(hours=1)
    return scheduler.backfill(name, start, end, request_id="again")


VERBS: dict[str, Verb] = {
    "create": Verb(_create, after=_is(State.ACTIVE)),
    "create excluding": Verb(_create_excluding, _set_calendar, _is(State.ACTIVE)),
    "update": Verb(lambda s, name: s.update(name, note="n"), _create, _is(State.ACTIVE, note="n")),
    "pause": Verb(lambda s, name: s.pause(name), _create, _is(State.PAUSED)),
    "resume": Verb(lambda s, name: s.resume(name), _pause, _is(State.ACTIVE)),
    "cancel": Verb(lambda s, name: s.cancel(name), _create, _is(State.CANCELLED)),
    "trigger": Verb(lambda s, name: s.trigger(name, request_id="once"), _create),
    "backfill": Verb(_backfill, _create),
    "create_many": Verb(lambda s, name: _all_of(s.create_many(_new(name))), after=_both_are_there),
    "apply": Verb(_apply, after=_both_are_there),
    "send_at": Verb(lambda s, name: s.send_at("t", at=LATER, timer_id=name)),
    "send_many": Verb(lambda s, name: _all_of(s.send_many(_timers(name)))),
    "recall": Verb(lambda s, name: s.recall(f"{name}@2036-01-01T00:00:00.000Z")),
    "set_calendar": Verb(_set_calendar, after=_calendar_is_set),
}


async def _version(scheduler: AsyncScheduler, name: str) -> int:
    try:
        return (await scheduler.get(name)).version
    except ScheduleNotFound:
        return 0


async def _outcome(acting: Awaitable[object]) -> TocsinError | None:
    try:
        await acting
    except TocsinError as error:
        return error
    return None


@pytest.mark.parametrize("verb", VERBS)
async def test_a_call_that_a_dying_store_interrupts_is_told_as_unknown_and_settled_by_a_repeat(
    store: Store, fresh: Fresh, verb: str
) -> None:
    dying = Dying(store)
    act, before, after = VERBS[verb]
    async with AsyncScheduler(dying, timing=TIMING, clock=Hurried()) as scheduler:  # type: ignore[arg-type]
        for step in range(STEPS_MAX):
            name = fresh.schedule_id()
            if before is not None:
                await before(scheduler, name)
            version = await _version(scheduler, name)
            # Done or not done: each step in one of both ways, and either way with every second step.
            dying.die(step // 2, applied=bool(step % 2))
            error = await _outcome(act(scheduler, name))
            died = dying.heal()
            assert type(error) in {type(None), OutcomeUnknown, StoreUnavailable}, (step, error)
            if isinstance(error, StoreUnavailable):
                assert await _version(scheduler, name) == version, "nothing was changed"
            assert await _outcome(act(scheduler, name)) is None, step
            assert after is None or await after(scheduler, name), step
            if not died:
                assert step > 2
                return
    raise AssertionError(f"{verb} makes more than {STEPS_MAX // 2} calls")
