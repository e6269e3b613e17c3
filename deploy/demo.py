"""`tocsin demo`: the promise, shown in seconds on an embedded store: never early, at least once, nothing lost.

The dispatcher is a process of its own and is killed half-way, without warning, with occurrences under way. Another one
takes over once the dead one's leases have run out. In the end the sink's file is compared with the keys that the
recurrences yield; nothing else counts, not what any part of Tocsin says of itself.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from tocsin.deploy.demo_dispatcher import TIMING, Place, kill, stop
from tocsin.deploy.demo_plan import REGRET_ID, Plan
from tocsin.deploy.demo_screen import Screen
from tocsin.loadtest.verdict import Seen, Verdict, judge
from tocsin.producer.definition import NewSchedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.clock import SystemClock
from tocsin.schema.open_store import default_settings, open_store
from tocsin.schema.store import Store
from tocsin.schema.timing import Timing

SECONDS_MIN = 8
#: Creating everything takes this long on a slow disk; what is late all the same is dispatched late.
AHEAD = timedelta(seconds=2)
#: How long after the last due, and a takeover, something missing counts as lost.
LOST_AFTER = timedelta(seconds=15)
#: The parts of the demo at which something happens.
CANCEL_AT, KILL_AT = 0.25, 0.4
CREATES_AT_ONCE = 32


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(demo)


def demo(
    *, seconds: Annotated[int, typer.Option(min=SECONDS_MIN, max=600, help="For how long things fall due.")] = 15
) -> None:
    """Watch schedules being dispatched, the dispatcher being killed, and nothing being lost.

    Needs nothing but Python, and leaves nothing behind. Exit code 1 if anything was lost or early.
    """
    screen = Screen()
    directory = Path(tempfile.mkdtemp(prefix="tocsin-demo-"))
    try:
        verdict = asyncio.run(Demo(Place(directory), screen, timedelta(seconds=seconds)).run())
    except KeyboardInterrupt:
        shutil.rmtree(directory)
        raise
    except Exception:
        screen.kept(directory)
        raise
    screen.verdict(verdict)
    if not verdict.holds:
        screen.kept(directory)
        raise typer.Exit(1)
    shutil.rmtree(directory)


class Demo:
    """One run."""

    def __init__(self, place: Place, screen: Screen, duration: timedelta) -> None:
        self._place = place
        self._screen = screen
        self._duration = duration
        self._records: list[Seen] = []
        self._tolerated: tuple[str, ...] = ()
        self._timing = Timing(**TIMING)

    async def run(self) -> Verdict:
        """Tell the story; returns what became of it."""
        async with self._open_store() as store:
            dispatcher = await self._place.start_dispatcher()
            try:
                await self._all_owned(store, dispatcher)
                self._screen.opened(self._place.directory, dispatcher.pid)
                start = (datetime.now(UTC) + AHEAD).replace(microsecond=0)
                plan = Plan(start=start, until=start + self._duration)
                async with AsyncScheduler(store, timing=self._timing) as scheduler:
                    await self._create(scheduler, plan)
                    await self._watch(plan, plan.start + plan.duration * CANCEL_AT, dispatcher)
                    await self._cancel(scheduler)
                await self._watch(plan, plan.start + plan.duration * KILL_AT, dispatcher)
                killed, dispatcher = dispatcher, await self._replace(dispatcher)
                self._screen.killed(killed.pid, dispatcher.pid, self._timing.lease_ttl_ms)
                await self._watch(plan, plan.until, dispatcher)
                await self._rest(plan, dispatcher)
                await stop(dispatcher)
            finally:
                await kill(dispatcher)
        self._read()
        return judge(plan.expected(), self._records, tolerated=self._tolerated)

    @asynccontextmanager
    async def _open_store(self) -> AsyncIterator[Store]:
        clock = SystemClock()
        url = self._place.store_url
        store = open_store(url, timing=self._timing, clock=clock)
        await store.initialise(default_settings(url, clock.wall_ms()))
        try:
            yield store
        finally:
            await store.close()

    async def _all_owned(self, store: Store, dispatcher: asyncio.subprocess.Process) -> None:
        while any(lease.owner is None for lease in await store.read_leases()):
            self._place.require_running(dispatcher)
            await asyncio.sleep(0.05)

    async def _create(self, scheduler: AsyncScheduler, plan: Plan) -> None:
        room = asyncio.Semaphore(CREATES_AT_ONCE)

        async def create(schedule: NewSchedule) -> None:
            async with room:
                await scheduler.create(
                    schedule.schedule_id,
                    schedule.recurrence,
                    topic=schedule.topic,
                    payload=schedule.payload,
                    start=schedule.start,
                    until=schedule.until,
                )

        await asyncio.gather(*(create(schedule) for schedule in plan.schedules()))
        self._screen.created(plan)

    async def _cancel(self, scheduler: AsyncScheduler) -> None:
        change = await scheduler.cancel(REGRET_ID)
        self._tolerated = change.uncertain
        self._screen.cancelled(change)

    async def _replace(self, dispatcher: asyncio.subprocess.Process) -> asyncio.subprocess.Process:
        await kill(dispatcher)
        return await self._place.start_dispatcher()

    async def _watch(self, plan: Plan, until: datetime, dispatcher: asyncio.subprocess.Process) -> None:
        """A line for each second, up to an instant."""
        while (now := datetime.now(UTC)) < until:
            following = (now + timedelta(seconds=1)).replace(microsecond=0)
            await asyncio.sleep((min(following, until) - now).total_seconds())
            self._place.require_running(dispatcher)
            if following <= until:
                self._screen.second(following, self._read(), plan)

    async def _rest(self, plan: Plan, dispatcher: asyncio.subprocess.Process) -> None:
        """Wait for what is still missing, as long as it may take."""
        missing = set(plan.expected()) - {record.key for record in self._records}
        end = datetime.now(UTC) + LOST_AFTER
        while missing and datetime.now(UTC) < end:
            self._place.require_running(dispatcher)
            await asyncio.sleep(0.1)
            missing -= {record.key for record in self._read()}

    def _read(self) -> list[Seen]:
        records = self._place.new_records()
        self._records += records
        return records
