from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from simulation.event_loop import DeadlockError, LivelockError, Process, VirtualLoop, current_process


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


async def _sleep_and_note(notes: list[float], *durations: float) -> None:
    for duration in durations:
        await asyncio.sleep(duration)
        notes.append(asyncio.get_running_loop().time())


def test_time_jumps_to_the_next_timer_and_no_further(loop: VirtualLoop) -> None:
    notes: list[float] = []
    loop.run_until_complete(_sleep_and_note(notes, 3600, 0.5, 0))
    assert notes == [3600, 3600.5, 3600.5]


def test_a_wait_that_nothing_can_end_is_a_deadlock(loop: VirtualLoop) -> None:
    with pytest.raises(DeadlockError):
        loop.run_until_complete(asyncio.Event().wait())


def test_a_loop_that_lets_no_time_pass_is_a_livelock(loop: VirtualLoop) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    spin()
    with pytest.raises(LivelockError):
        loop.run_until_complete(asyncio.sleep(1))


def test_a_paused_process_stands_still_in_the_middle_and_then_goes_on_late(loop: VirtualLoop) -> None:
    stopped, running = Process("stopped"), Process("running")
    late: list[float] = []
    on_time: list[float] = []
    loop.call_later(1.5, loop.pause, stopped)
    loop.call_later(10, loop.resume, stopped)
    tasks = [
        loop.spawn(stopped, _sleep_and_note(late, 1, 1, 1)),
        loop.spawn(running, _sleep_and_note(on_time, 1, 1, 1)),
    ]
    loop.run_until_complete(asyncio.wait(tasks))
    assert on_time == [1, 2, 3]
    assert late == [1, 10, 11]


def test_a_killed_process_runs_no_finally_and_makes_no_noise(
    loop: VirtualLoop, recwarn: pytest.WarningsRecorder
) -> None:
    unwound: list[str] = []

    async def child() -> None:
        await asyncio.sleep(100)

    async def parent() -> None:
        try:
            async with asyncio.timeout(50), asyncio.TaskGroup() as group:
                group.create_task(child())
        finally:
            unwound.append("parent")
            await asyncio.sleep(1)

    process = Process("killed")
    loop.spawn(process, parent())
    loop.call_later(5, loop.kill, process)
    loop.run_until_complete(asyncio.sleep(200))
    assert unwound == []
    loop.close()
    assert not recwarn.list


def test_children_belong_to_the_process_of_their_parent(loop: VirtualLoop) -> None:
    seen: list[Process | None] = []

    async def grandchild() -> None:
        await asyncio.sleep(0.1)
        seen.append(current_process())

    async def parent() -> None:
        await asyncio.gather(grandchild(), asyncio.create_task(grandchild()))
        asyncio.get_running_loop().call_later(1, lambda: seen.append(current_process()))
        await asyncio.sleep(2)

    process = Process("family")
    loop.run_until_complete(loop.spawn(process, parent()))
    assert seen == [process] * 3


def test_an_exception_nobody_fetches_is_kept_as_a_failure(loop: VirtualLoop) -> None:
    async def fail() -> None:
        await asyncio.sleep(0.1)
        raise ValueError("lost")

    async def parent() -> None:
        asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(1)

    loop.run_until_complete(loop.spawn(Process("careless"), parent()))
    assert "lost" in "".join(loop.failures)
