"""A program of users of Tocsin who keep changing their minds: it creates schedules and changes them until told to stop.

Told on the first line of standard input: {"store": URL, "topic": …, "prefix": …, "tasks": …, "seed": …, "timing": {…}}.
It goes on until its standard input ends. Each task leads one schedule after another through its life, one call at a
time. It says what it was promised ("acknowledged") and every row it knows of ("applied"), so that a judge sees each
version that took effect; a call whose outcome is unknown is repeated until it is known.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from tocsin import AsyncScheduler, CatchUp, Every, Once
from tocsin.producer.results import Change, ChangeOutcome, Schedule
from tocsin.schema.errors import StoreTimeout, StoreUnavailable, TocsinError
from tocsin.schema.open_store import open_store
from tocsin.schema.store import Store
from tocsin.schema.timing import Timing

#: Calls to a schedule at most.
CALLS_MAX = 8
#: Users think so long between two calls.
PAUSE_SECONDS = (0.2, 4.0)

Call = Callable[[], Coroutine[Any, Any, Schedule | Change]]


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


class Life:
    """One schedule, from its creation to its end."""

    def __init__(self, store: Store, scheduler: AsyncScheduler, plan: dict[str, Any], luck: random.Random) -> None:
        self._store = store
        self._scheduler = scheduler
        self._topic = plan["topic"]
        self._luck = luck
        self.schedule_id = f"{plan['prefix']}-{luck.getrandbits(40):010x}"

    async def lead(self, stopping: asyncio.Event) -> None:
        """Create it, and change it a few times."""
        definition = self._definition()
        recurrence = definition.pop("recurrence")
        await self._until_known(
            "create", partial(self._scheduler.create, self.schedule_id, recurrence, topic=self._topic, **definition)
        )
        paused = False
        for _ in range(self._luck.randint(0, CALLS_MAX)):
            await self._think(stopping)
            if stopping.is_set():
                return
            if paused:
                if not await self._until_known("resume", partial(self._scheduler.resume, self.schedule_id)):
                    return
                paused = False
            elif self._luck.random() < 0.35:
                await self._until_known("pause", partial(self._scheduler.pause, self.schedule_id))
                paused = True
            else:
                changes = self._definition()
                await self._until_known("update", partial(self._scheduler.update, self.schedule_id, **changes))
        if self._luck.random() < 0.85:
            await self._until_known("cancel", partial(self._scheduler.cancel, self.schedule_id))

    def _definition(self) -> dict[str, Any]:
        luck = self._luck
        policies = [CatchUp.ALL, CatchUp.ALL, CatchUp.ALL, CatchUp.LATEST, CatchUp.EARLIEST, CatchUp.SKIP]
        soon = datetime.now(UTC) + timedelta(seconds=luck.uniform(0, 20))
        period = timedelta(seconds=luck.choice([1, 1, 2, 3, 10, 70]))
        return {
            "recurrence": Once(soon) if luck.random() < 0.2 else Every(period),
            "jitter": timedelta(milliseconds=luck.choice([0, 0, 0, 900])),
            "catch_up": luck.choice(policies),
            "payload": luck.randbytes(20),
        }

    async def _until_known(self, operation: str, call: Call) -> bool:
        """Whether it was granted: a one-shot, for one, cannot be resumed once its instant has passed."""
        while True:
            try:
                result = await call()
            except TocsinError as error:
                if not error.retriable:
                    say(action="refused", operation=operation, schedule_id=self.schedule_id, error=repr(error))
                    return False
                say(action="failed", operation=operation, schedule_id=self.schedule_id, error=repr(error))
                await self._say_row()
                continue
            schedule = result if isinstance(result, Schedule) else result.schedule
            say(
                action="acknowledged",
                at_ms=time.time() * 1000,
                operation=operation,
                schedule_id=self.schedule_id,
                version=schedule.version,
                prevented=isinstance(result, Change) and result.outcome is ChangeOutcome.PREVENTED,
                uncertain=[] if isinstance(result, Schedule) else list(result.uncertain),
            )
            await self._say_row()
            return True

    async def _say_row(self) -> None:
        """What `schedules` holds now, serially: this is how a version of a call without an answer is known, too."""
        while True:
            try:
                rows = await self._store.read_schedules([self.schedule_id])
            except (StoreTimeout, StoreUnavailable):
                continue
            if self.schedule_id in rows:
                row = msgspec.msgpack.encode(rows[self.schedule_id])
                say(action="applied", row=base64.b64encode(row).decode())
            return

    async def _think(self, stopping: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._luck.uniform(*PAUSE_SECONDS)):
                await stopping.wait()
        except TimeoutError:
            return


async def main(plan: dict[str, Any]) -> None:
    luck = random.Random(plan["seed"])
    stopping = asyncio.Event()
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    told.add_done_callback(lambda _: stopping.set())
    timing = Timing(**plan["timing"])
    store = open_store(plan["store"], timing=timing)
    await store.open()

    async def work(scheduler: AsyncScheduler) -> None:
        while not stopping.is_set():
            await Life(store, scheduler, plan, luck).lead(stopping)

    async with AsyncScheduler(store, timing=timing) as scheduler, asyncio.TaskGroup() as tasks:
        for _ in range(plan["tasks"]):
            tasks.create_task(work(scheduler))
    await store.close()
    say(action="done")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
