"""`tocsin ingest`: schedules as commands on a Kafka topic, until it is told to stop.

Any number of these may run beside each other, in one consumer group. SIGTERM or Ctrl-C ends what was begun, commits and
leaves the group; where the store does not answer for so long, what was begun is given up and read again by others.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from datetime import timedelta
from importlib.resources import files
from typing import Annotated, Final
from urllib.parse import urlsplit

import structlog
import typer

from tocsin.deploy.command_topic import CommandTopic
from tocsin.deploy.configuration import Configuration, StoreOption, read_configuration
from tocsin.deploy.dispatch import start_log
from tocsin.deploy.ingestion import Ingestion
from tocsin.dispatcher.inbox import ClaimingInbox
from tocsin.dispatcher.inbox_sqlite import SqliteInbox
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.sink import kafka_servers, open_publisher
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.clock import SystemClock
from tocsin.schema.errors import SettingsError

#: How long what was begun may take to end after SIGTERM.
STOP_SECONDS: Final = 10.0
#: Distance between two lines of the log that tell how many commands were done.
SAID_EVERY_MS: Final = 1_000
#: How long the error topic may take to take what is under way when we leave.
CLOSE_MS: Final = 5_000
SCHEMA_FILE: Final = "commands.schema.json"

_log = structlog.get_logger("tocsin.ingest")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(ingest)


def ingest(
    *,
    source: Annotated[
        str | None, typer.Option(metavar="URL", help="kafka://host:9092.", show_default="the configured sink")
    ] = None,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Where commands come from.")] = "tocsin.commands",
    errors: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where refused ones go.", show_default="TOPIC.errors")
    ] = None,
    group: Annotated[str, typer.Option(metavar="GROUP", help="The consumer group.")] = "tocsin-ingest",
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a command, and end.")] = False,
    store: StoreOption = None,
    log: Annotated[
        str | None, typer.Option(metavar="auto|text|json", help="auto: text on a terminal, else JSON lines.")
    ] = None,
) -> None:
    """Create and change schedules by commands on a Kafka topic: CloudEvents in JSON, each done once, in order.

    Offsets are committed after the effect. A command that is refused goes to the error topic, with the reason.
    """
    if schema:
        typer.echo(files("tocsin.deploy").joinpath(SCHEMA_FILE).read_text(), nl=False)
        return
    configuration = read_configuration(store=store, sink=source, log=log)
    start_log(configuration)
    asyncio.run(run_ingestion(configuration, topic, errors or f"{topic}.errors", group))


async def run_ingestion(configuration: Configuration, topic: str, error_topic: str, group: str) -> None:
    """Do commands until SIGTERM or SIGINT.

    Raises:
        TocsinError: a setting is refused, the store is not there, or a topic is missing.
    """
    servers = _servers(configuration.sink)
    security = KafkaSecurity.from_environment(os.environ)
    stopping = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stopping.set)
    async with AsyncExitStack() as opened:
        scheduler = await opened.enter_async_context(_scheduler(configuration))
        inbox = await opened.enter_async_context(inbox_beside(configuration.store))
        publisher = open_publisher(configuration.sink, settings=configuration.publisher_settings(), security=security)
        await publisher.start()
        opened.push_async_callback(publisher.close, CLOSE_MS)
        commands = CommandTopic(servers, topic, group, security)
        opened.push_async_callback(commands.close)
        ingestion = Ingestion(scheduler, inbox, publisher, error_topic, SystemClock())
        _log.info(f"Reading commands from {topic} as {group}; refused ones go to {error_topic}.", action="started")
        await _until_stopped(commands, ingestion, stopping)
        _log.info(f"Stopped: {ingestion.tally}.", action="stopped", figures=vars(ingestion.tally))


def inbox_beside(store: str) -> ClaimingInbox:
    """An inbox where the store is. Raises SettingsError where the URL is none of a store."""
    if store.startswith("cassandra://"):
        from tocsin.dispatcher.inbox_cassandra import CassandraInbox

        return CassandraInbox(store)
    return SqliteInbox(store)


def _scheduler(configuration: Configuration) -> AsyncScheduler:
    return AsyncScheduler(
        configuration.store,
        timeout=timedelta(milliseconds=configuration.timeout_ms),
        timing=configuration.protocol_timing(),
        allowed_topics=configuration.allowed_topics,
    )


def _servers(source: str) -> str:
    parts = urlsplit(source)
    if parts.scheme != "kafka":
        raise SettingsError(f"commands come from Kafka, not from {source!r}; give --source kafka://host:9092.")
    return kafka_servers(parts.netloc)


async def _until_stopped(commands: CommandTopic, ingestion: Ingestion, stopping: asyncio.Event) -> None:
    clock = SystemClock()
    said, said_at = "", clock.monotonic_ms()
    while not stopping.is_set():
        if deliveries := await commands.read():
            work = asyncio.ensure_future(ingestion.take(deliveries))
            if not await _finish(commands, work, stopping):
                _log.warning("Gave up what was begun; it is read again.", action="given_up")
                return
            await commands.commit(deliveries)
        if str(ingestion.tally) != said and clock.monotonic_ms() - said_at >= SAID_EVERY_MS:
            said, said_at = str(ingestion.tally), clock.monotonic_ms()
            _log.info(f"Commands: {said}.", action="status", figures=vars(ingestion.tally))


async def _finish(commands: CommandTopic, work: asyncio.Future[None], stopping: asyncio.Event) -> bool:
    """Wait for work, but not for long once we are told to stop; whether it was finished. Raises what it raises."""
    waiting = asyncio.ensure_future(commands.work(work))
    told = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({waiting, told}, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    await asyncio.wait({waiting}, timeout=STOP_SECONDS)
    if not waiting.done():
        work.cancel()
        await asyncio.wait({waiting})
        return False
    await waiting
    return True
