"""`tocsin loadtest verify`: is everything on a topic that should be there, once, in order, and not before its due?"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from tocsin.deploy import loadtest_objectives as slo
from tocsin.deploy.configuration import Configuration, SinkOption, StoreOption, read_configuration
from tocsin.deploy.opened import opened
from tocsin.deploy.output import Output, OutputOption
from tocsin.deploy.recurrence_options import read_instant
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.loadtest.expectation import expected_of_store, read_expected
from tocsin.loadtest.figures import Figures
from tocsin.loadtest.topic_reader import open_topics
from tocsin.loadtest.topic_verification import Stretch, verify_topic
from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import HOUR_MS, floor_ms

#: What is due later than this before now may still be on its way.
STILL_COMING_MS: Final = 10_000


def verify(
    *,
    topic: Annotated[str, typer.Option(help="The topic.")],
    sink: SinkOption = None,
    expected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What a run left beside its report.", show_default="by the store"),
    ] = None,
    store: StoreOption = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="Look at dues from here on.", show_default="-1h")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="INSTANT", help="And before here.", show_default="ten seconds ago")
    ] = None,
    hour: Annotated[str, typer.Option(metavar="DURATION", help="How long an hour was there.")] = "1h",
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="HTML; JSON beside it.")] = None,
    slo_lost: slo.LostOption = 0,
    slo_repeated: slo.RepeatedOption = None,
    slo_p99: slo.P99Option = None,
    slo_max: slo.LatestOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare a topic with what its schedules owe, or with what a run left: lost, early, repeated, out of order.

    The exit code is 1 where an objective is missed.
    """
    objectives = slo.objectives_of(lost=slo_lost, repeated=slo_repeated, p99=slo_p99, latest=slo_max)
    configuration = read_configuration(store=store, sink=sink)
    now = time.time_ns() // 1_000_000
    hour_ms = slo.milliseconds("hour", hour)
    if expected is not None:
        owed = read_expected(expected)
        if not owed:
            raise SettingsError(f"{expected} is empty: there is nothing to compare the topic with.")
        start_ms, end_ms = min(owed.values()), max(owed.values()) + 1
    else:
        end_ms = floor_ms(read_instant("to", end)) if end else now - STILL_COMING_MS
        start_ms = floor_ms(read_instant("from", first)) if first else end_ms - HOUR_MS
        if start_ms >= end_ms:
            raise SettingsError("--from lies at or after --to; exchange them.")
        owed = asyncio.run(_owed(configuration, topic, start_ms, end_ms))
    stretch = Stretch(start_ms=start_ms, end_ms=end_ms, hour_ms=hour_ms, is_complete=expected is not None)
    figures = _verified(configuration, topic, owed, stretch)
    slo.conclude(slo.Measured(figures, None), objectives, report=report, output=output, title=f"Topic {topic}")


async def _owed(configuration: Configuration, topic: str, start_ms: int, end_ms: int) -> Mapping[str, int]:
    async with opened(configuration) as there:
        return await expected_of_store(there.store, topic, start_ms, end_ms)


def _verified(configuration: Configuration, topic: str, owed: Mapping[str, int], stretch: Stretch) -> Figures:
    security = KafkaSecurity.from_environment(os.environ)
    # Records bear times of other clocks, and some are dispatched late: read a little more than what is asked for.
    reader = open_topics(configuration.sink, [topic], security, from_ms=stretch.start_ms - HOUR_MS)
    try:
        return verify_topic(reader, owed, stretch)
    finally:
        reader.close()
