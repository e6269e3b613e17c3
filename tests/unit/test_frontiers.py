"""One read of the frontier serves everybody who asked before it began, and nobody who asked later."""

from __future__ import annotations

import asyncio

import pytest
from unit.manual_clock import ManualClock

from tocsin.producer.frontiers import Frontiers
from tocsin.schema.errors import StoreTimeout
from tocsin.schema.store import Frontier
from tocsin.schema.timing import Timing


class SlowReads:
    """A store whose reads of the frontier end when the test says so; each answers when it began."""

    def __init__(self) -> None:
        self.begun = 0
        self.answers: list[asyncio.Future[None]] = []

    async def read_frontier(self, shard_range: int) -> Frontier:
        number = self.begun
        self.begun += 1
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[number]
        return Frontier(sealed_far=0, sealed_minute=0, sealed_near=number, committed=0, committed_far=0)


@pytest.fixture
def store() -> SlowReads:
    return SlowReads()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def frontiers(store: SlowReads, clock: ManualClock) -> Frontiers:
    return Frontiers(store, clock, Timing())


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_thousand_callers_cost_two_reads(store: SlowReads, frontiers: Frontiers) -> None:
    first = asyncio.create_task(frontiers.read(0))
    await settle()
    others = [asyncio.create_task(frontiers.read(0)) for _ in range(999)]
    await settle()
    assert store.begun == 1
    store.answers[0].set_result(None)
    await settle()
    assert store.begun == 2
    store.answers[1].set_result(None)
    assert (await first).sealed_near == 0
    assert {(await other).sealed_near for other in others} == {1}


async def test_a_caller_never_gets_a_read_that_began_before_it_asked(store: SlowReads, frontiers: Frontiers) -> None:
    first = asyncio.create_task(frontiers.read(0))
    await settle()
    second = asyncio.create_task(frontiers.read(0))
    await settle()
    store.answers[0].set_result(None)
    await settle()
    third = asyncio.create_task(frontiers.read(0))
    await settle()
    store.answers[1].set_result(None)
    await settle()
    store.answers[2].set_result(None)
    assert [(await task).sealed_near for task in (first, second, third)] == [0, 1, 2]


@pytest.mark.parametrize("steps", range(8))
async def test_a_caller_between_two_reads_is_served(store: SlowReads, frontiers: Frontiers, steps: int) -> None:
    tasks = [asyncio.create_task(frontiers.read(0))]
    await settle()
    tasks.append(asyncio.create_task(frontiers.read(0)))
    await settle()
    store.answers[0].set_result(None)
    for _ in range(steps):
        await asyncio.sleep(0)
    asked_at = store.begun
    late = asyncio.create_task(frontiers.read(0))
    for _ in range(4):
        await settle()
        for answer in store.answers:
            if not answer.done():
                answer.set_result(None)
    await asyncio.gather(*tasks)
    assert (await late).sealed_near >= asked_at
    assert store.begun <= 3


async def test_a_failed_read_fails_those_who_shared_it_and_nobody_later(store: SlowReads, frontiers: Frontiers) -> None:
    first = asyncio.create_task(frontiers.read(0))
    await settle()
    second = asyncio.create_task(frontiers.read(0))
    await settle()
    store.answers[0].set_exception(StoreTimeout())
    await settle()
    store.answers[1].set_result(None)
    with pytest.raises(StoreTimeout):
        await first
    assert (await second).sealed_near == 1


async def test_a_caller_that_gives_up_does_not_take_the_answer_from_others(
    store: SlowReads, frontiers: Frontiers
) -> None:
    first = asyncio.create_task(frontiers.read(0))
    await settle()
    second = asyncio.create_task(frontiers.read(0))
    await settle()
    first.cancel()
    await settle()
    store.answers[0].set_result(None)
    await settle()
    store.answers[1].set_result(None)
    assert (await second).sealed_near == 1


async def test_the_position_clock_goes_on_with_our_monotonic_clock(frontiers: Frontiers, clock: ManualClock) -> None:
    frontiers.saw(0, 10_000)
    assert await frontiers.position_clock(0) == 10_000 + Timing().tick_ms
    clock.turn(700)
    assert await frontiers.position_clock(0) == 10_700 + Timing().tick_ms
    clock.step(-3_600_000)
    assert await frontiers.position_clock(0) == 10_700 + Timing().tick_ms
