"""Run one piece of work with a scheduler on the configured store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from tocsin.deploy.configuration import read_configuration
from tocsin.producer.scheduler import AsyncScheduler

Result = TypeVar("Result")


def with_scheduler(store: str | None, work: Callable[[AsyncScheduler], Awaitable[Result]]) -> Result:
    """Open the store that the option, the environment or the file names, work, and close it.

    Raises:
        TocsinError: what the work raises, and what opening the store does.
    """
    configuration = read_configuration(store=store)

    async def run() -> Result:
        scheduler = AsyncScheduler(
            configuration.store,
            timeout=timedelta(milliseconds=configuration.timeout_ms),
            timing=configuration.protocol_timing(),
            creates_per_second=configuration.create_rates,
            allowed_topics=configuration.allowed_topics,
        )
        async with scheduler:
            return await work(scheduler)

    return asyncio.run(run())
