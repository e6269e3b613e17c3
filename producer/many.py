"""Many calls at once, their results in order.

So many are under way at a time and no more, and one is begun only when the oldest result was taken: a slow reader of
results holds back the reader of the input, and the input is never consumed more than `WINDOW` ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from tocsin.producer.results import Schedule
from tocsin.schema.errors import TocsinError

#: Calls under way at once: enough to fill packs and keep every node busy, few enough that each ends in its time.
WINDOW = 1_000

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class CreateResult:
    """What became of one item of `create_many`: its schedule, or the error that `create` would have raised."""

    schedule_id: str
    schedule: Schedule | None = None
    error: TocsinError | None = None


async def result_of(schedule_id: str, creating: Awaitable[Schedule]) -> CreateResult:
    """What becomes of it."""
    try:
        return CreateResult(schedule_id=schedule_id, schedule=await creating)
    except TocsinError as error:
        return CreateResult(schedule_id=schedule_id, error=error)


async def in_order(
    items: Iterable[Item], call: Callable[[Item], Awaitable[Result]], *, window: int = WINDOW
) -> AsyncIterator[Result]:
    """The result of each call, in the order of the items. What a call or the iteration raises ends it all."""
    under_way: deque[asyncio.Task[Result]] = deque()
    remaining = iter(items)

    async def run(item: Item) -> Result:
        return await call(item)

    try:
        while True:
            for item in remaining:
                under_way.append(asyncio.get_running_loop().create_task(run(item)))
                if len(under_way) == window:
                    break
            if not under_way:
                return
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
