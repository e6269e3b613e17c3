"""Sends and recalls a profile's timers at their instants, whatever the calls before are doing: an open loop.

A call that stalls delays no other. What is sent late keeps its due, and so is measured as late. A timer is expected
once it was sent, unless it is to be recalled; one that a recall could not prevent, or of which it is not known, may be
there or not.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from tocsin.loadtest.profiles import Load, PlannedTimer
from tocsin.producer.results import ChangeOutcome
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.clock import Clock
from tocsin.schema.entries import occurrence_key
from tocsin.schema.errors import TocsinError

#: Timers of so long a time are sent together, and share packs.
STEP_MS: Final = 50


class TimerSender:
    """Sends the timers of one load.

    Args:
        load: which.
        scheduler: by which client.
        expected: grows by what was sent and is not to be recalled: keys and dues.
        clock: this host's.
    """

    def __init__(self, load: Load, scheduler: AsyncScheduler, expected: dict[str, int], clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._scheduler = scheduler
        self._expected = expected
        self._recalls: list[tuple[int, str]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        #: Keys that may be dispatched or not.
        self.tolerated: set[str] = set()
        #: What calls failed with.
        self.errors: list[TocsinError] = []
        self.sent_count = 0

    @property
    def is_waiting(self) -> bool:
        """Whether calls are under way."""
        return bool(self._tasks)

    async def run(self) -> None:
        """Send and recall all of them; returns after the last was begun."""
        step: list[PlannedTimer] = []
        for planned in self._load.timers():
            if step and planned.sent_at - step[0].sent_at >= STEP_MS:
                await self._begin(step)
                step = []
            step.append(planned)
        if step:
            await self._begin(step)
        await self._recall_until(self._load.end_ms)

    async def _begin(self, step: Sequence[PlannedTimer]) -> None:
        await self._recall_until(step[0].sent_at)
        self._spawn(self._send(step))
        for planned in step:
            if planned.recalled_at is not None:
                heapq.heappush(self._recalls, (planned.recalled_at, _key(planned)))

    async def _recall_until(self, instant: int) -> None:
        """Begin the recalls of up to an instant, each at its own, and return at that instant."""
        while self._recalls and self._recalls[0][0] <= instant:
            at, key = heapq.heappop(self._recalls)
            await self._until(at)
            self._spawn(self._recall(key))
        await self._until(instant)

    async def _send(self, step: Sequence[PlannedTimer]) -> None:
        planned = {_key(each): each for each in step}
        async for result in self._scheduler.send_many([each.timer for each in step]):
            if result.error is not None:
                self.errors.append(result.error)
                if result.key is not None:
                    self.tolerated.add(result.key)
            elif result.key is not None and planned[result.key].recalled_at is None:
                self._expected[result.key] = planned[result.key].due
        self.sent_count += len(step)

    async def _recall(self, key: str) -> None:
        try:
            recall = await self._scheduler.recall(key)
        except TocsinError as error:
            self.errors.append(error)
            self.tolerated.add(key)
            return
        if recall.outcome is not ChangeOutcome.PREVENTED:
            self.tolerated.add(key)

    async def _until(self, instant: int) -> None:
        await self._clock.sleep_ms(max(0, instant - self._clock.wall_ms()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _key(planned: PlannedTimer) -> str:
    return occurrence_key(planned.timer.timer_id, planned.due)
