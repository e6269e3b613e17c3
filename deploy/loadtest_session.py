"""One load test from the command line to its figures: the place, the store, the topic, the dispatchers, the faults."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tocsin.deploy.configuration import Configuration
from tocsin.deploy.loadtest_objectives import Measured
from tocsin.deploy.loadtest_services import Place, RunningParts, topic_of
from tocsin.deploy.output import notes
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.loadtest.load_run import AHEAD_MS, Fault, LoadRun
from tocsin.loadtest.profiles import Load, Profile
from tocsin.loadtest.topic_reader import open_topics
from tocsin.schema.clock import SystemClock
from tocsin.schema.instants import MINUTE_MS, SECOND_MS
from tocsin.schema.open_store import default_settings, open_store

#: Schedules that are created in a second at least, for the time that is left for it.
CREATES_A_SECOND: Final = 200


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the options ask for; durations in ms."""

    profile: Profile
    run_id: str
    #: An existing topic; None: one of its own.
    topic: str | None
    minutes: float
    scale: float
    hour_ms: int
    peak: int
    peak_width_ms: int
    #: None: by the number of schedules.
    warmup_ms: int | None
    patience_ms: int
    dispatchers: int
    #: Minutes from the start of the window.
    kills: tuple[float, ...] = ()
    node_stops: tuple[float, ...] = ()
    node_down_ms: int = 30 * SECOND_MS

    def load(self, *, now: int) -> Load:
        """What is scheduled, where the test is at this instant, ms UTC: its window begins with a full minute or "hour".

        Raises:
            SettingsError: the sizes do not fit each other.
        """

        def starting(start_ms: int) -> Load:
            return Load(
                profile=self.profile,
                run_id=self.run_id,
                topic=self.topic or self.run_id,
                start_ms=start_ms,
                end_ms=start_ms + round(self.minutes * MINUTE_MS),
                scale=self.scale,
                hour_ms=self.hour_ms,
                peak=self.peak,
                peak_width_ms=self.peak_width_ms,
            )

        warmup_ms = self.warmup_ms
        if warmup_ms is None:
            warmup_ms = starting(0).schedule_count * SECOND_MS // CREATES_A_SECOND + 5 * SECOND_MS
        step_ms = min(self.hour_ms, MINUTE_MS) if self.profile is Profile.HOURLY_PEAK else MINUTE_MS
        return starting(-(-(now + AHEAD_MS + warmup_ms) // step_ms) * step_ms)


async def measure(wanted: Wanted, place: Place, configuration: Configuration) -> Measured:
    """Run the test there.

    Raises:
        TocsinError: the store or the sink is not there, or a setting does not fit.
    """
    timing = configuration.protocol_timing()
    clock = SystemClock()
    security = KafkaSecurity.from_environment(os.environ)
    store = open_store(place.store_url, timing=timing, replication=place.replication or 1)
    try:
        if place.replication is None:
            settings = await store.open()
        else:
            settings = await store.initialise(default_settings(place.store_url, clock.wall_ms()))
        parts = RunningParts(place, store)
        with contextlib.ExitStack() as stack:
            topic = wanted.topic or stack.enter_context(topic_of(place, wanted.run_id, security))
            async with parts.dispatchers(wanted.dispatchers, settings.shard_ranges):
                load = wanted.load(now=clock.wall_ms())
                reader = open_topics(place.sink_url, [topic], security, from_ms=clock.wall_ms())
                stack.callback(reader.close)
                screen = stack.enter_context(_shown(load))
                run = LoadRun(
                    load,
                    store,
                    settings,
                    partial(asyncio.to_thread, reader.read),
                    timing=timing,
                    clock=clock,
                    parts=parts,
                    faults=_faults(wanted, parts),
                    patience_ms=wanted.patience_ms,
                    screen=screen,
                )
                return Measured(await run.run(_told(wanted, place)), run.expected)
    finally:
        await store.close()


def _faults(wanted: Wanted, parts: RunningParts) -> list[Fault]:
    faults = [Fault(at_minute=at, what="dispatcher killed", do=parts.kill_dispatcher) for at in wanted.kills]
    down_minutes = wanted.node_down_ms / MINUTE_MS
    for at in wanted.node_stops:
        faults.append(Fault(at_minute=at, what="node killed", do=parts.stop_node))
        faults.append(Fault(at_minute=at + down_minutes, what="node started", do=parts.start_node))
    return faults


def _told(wanted: Wanted, place: Place) -> dict[str, str]:
    told = {
        "profile": str(wanted.profile),
        "scale": f"{wanted.scale:g}",
        "window": f"{wanted.minutes:g} min",
        "where": place.told,
        "dispatchers": str(wanted.dispatchers) if wanted.dispatchers else "those of the store",
    }
    if wanted.profile is Profile.HOURLY_PEAK:
        width = f"over {wanted.peak_width_ms / 1000:g} s" if wanted.peak_width_ms else "at one instant"
        told["peak"] = f"{wanted.peak} times the mean minute, {width}, each {wanted.hour_ms / 1000:g} s"
    return told


class _Bar:
    """Where the run is, on a terminal."""

    def __init__(self, progress: Progress, load: Load) -> None:
        self._progress = progress
        self._creating = progress.add_task("creating", total=load.schedule_count)
        self._running: TaskID | None = None
        self._window_seconds = (load.end_ms - load.start_ms) / 1000

    def created(self, count: int) -> None:
        """So many schedules are created."""
        self._progress.update(self._creating, completed=count)

    def dispatched(self, count: int, expected: int, seconds_left: float) -> None:
        """So many records have come, of so many expected by the end."""
        if self._running is None:
            self._progress.update(self._creating, visible=False)
            self._running = self._progress.add_task("running", total=self._window_seconds)
        until_start = seconds_left - self._window_seconds
        what = f"begins in {until_start:.0f} s" if until_start > 0 else f"{count:,} of {expected:,} dispatched"
        self._progress.update(self._running, description=what, completed=max(0, self._window_seconds - seconds_left))


@contextlib.contextmanager
def _shown(load: Load) -> Iterator[_Bar]:
    screen = notes()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal, transient=True) as progress:
        yield _Bar(progress, load)
