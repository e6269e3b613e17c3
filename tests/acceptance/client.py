"""A program of users of Tocsin: creates one-shots from many tasks at once, and says what was acknowledged.

Told on the first line of standard input: {"store": URL, "topic": …, "prefix": …, "count": …, "delay_seconds": …,
"seed": …}. It says one JSON line per acknowledged create, with what it was promised. A call whose outcome is unknown is
repeated, as the error says; so a create that was told to nobody may exist, and none that was told is missing.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from tocsin import AsyncScheduler, Once
from tocsin.schema.entries import occurrence_key
from tocsin.schema.errors import TocsinError
from tocsin.schema.instants import ceil_ms

#: Calls under way at once.
TASKS = 8


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


async def create(scheduler: AsyncScheduler, schedule_id: str, topic: str, at: datetime) -> None:
    """Create one, and again until somebody says what became of it."""
    while True:
        try:
            await scheduler.create(schedule_id, Once(at), topic=topic, payload=schedule_id.encode())
        except TocsinError as error:
            say(action="failed", schedule_id=schedule_id, error=type(error).__name__, text=str(error))
            if not error.retriable:
                raise
        else:
            due = ceil_ms(at)
            say(action="created", key=occurrence_key(schedule_id, due), due=due)
            return


async def main(plan: dict[str, Any]) -> None:
    luck = random.Random(plan["seed"])
    numbers = iter(range(plan["count"]))

    async def work(scheduler: AsyncScheduler) -> None:
        for number in numbers:
            at = datetime.now(UTC) + timedelta(seconds=luck.uniform(0, plan["delay_seconds"]))
            await create(scheduler, f"{plan['prefix']}-{number}", plan["topic"], at)

    async with AsyncScheduler(plan["store"]) as scheduler, asyncio.TaskGroup() as tasks:
        for _ in range(TASKS):
            tasks.create_task(work(scheduler))
    say(action="done")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
