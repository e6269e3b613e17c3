"""`tocsin bench`: how fast each part is, as a ratio to a bare loop in the same run.

The benchmarks start a Cassandra node and a Kafka broker of their own and stop them afterwards, unless a store and a
sink are named; they write to a keyspace and topics of their own either way.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tocsin.deploy.output import Output, OutputOption, console, notes, print_json
from tocsin.deploy.stack import LocalStack
from tocsin.dispatcher.publisher import Publisher
from tocsin.dispatcher.sink import KAFKA_CLIENTS, open_publisher
from tocsin.loadtest import (
    bench_create,
    bench_dispatch,
    bench_publish,
    bench_recurrence,
    bench_scale,
    bench_steady,
)
from tocsin.schema.errors import SettingsError
from tocsin.schema.open_store import open_store
from tocsin.schema.store import Settings, Store

Work = TypeVar("Work")


class Benchmark(enum.StrEnum):
    """What is measured."""

    #: Read, publish and re-arm a herd that is due already, in one process.
    DISPATCH = "dispatch"
    #: Publish a herd that was read before its instant: lateness, and drain against bare produces.
    HERD = "herd"
    #: Cost of one occurrence while ten thousand, a hundred thousand, a million others are armed.
    SCALE = "scale"
    #: Lateness without a herd: schedules of a short period, and runs created seconds ahead.
    STEADY = "steady"
    #: Create schedules one by one from many callers, and by one call, against bare conditional inserts.
    CREATE = "create"
    #: Send timers singly and in packs, against bare inserts.
    TIMERS = "timers"
    #: Publish by both Kafka clients, against their own bare loops.
    PUBLISH = "publish"
    #: Ask rules for their next time, against bare croniter.
    NEXT = "next"


#: Occurrences, schedules or timers where no count is given.
COUNTS = {Benchmark.CREATE: 5_000, Benchmark.SCALE: 1_000_000, Benchmark.STEADY: 2_000}
COUNT_DEFAULT = 100_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bench)


def bench(
    what: Annotated[Benchmark, typer.Argument(help=", ".join(Benchmark), metavar="WHAT")],
    *,
    count: Annotated[
        int | None,
        typer.Option(min=100, max=5_000_000, show_default="100000; scale: 1000000; create: 5000; steady: 2000"),
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="cassandra://host1,host2", show_default="its own")
    ] = None,
    sink: Annotated[str | None, typer.Option(metavar="URL", help="kafka://host:9092", show_default="its own")] = None,
    kafka_client: Annotated[str, typer.Option(help=" or ".join(KAFKA_CLIENTS))] = KAFKA_CLIENTS[0],
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure one part, as a ratio to a bare loop over the same services in the same run.

    dispatch and herd: one process reads, publishes and re-arms many occurrences of one instant, late or ahead.
    scale: what that costs while up to a million others are armed. steady: lateness without a herd.
    create and timers: schedules and timers come in. publish and next: both Kafka clients, and the rules.
    """
    count = count or COUNTS.get(what, COUNT_DEFAULT)
    if what is Benchmark.NEXT:
        console().print(bench_recurrence.table(bench_recurrence.run()))
        return
    with _services(store, sink) as (store_url, sink_url):
        figures = _measure(what, store_url, sink_url, kafka_client, count)
    for each in figures:
        _show(each, output)


def _measure(what: Benchmark, store_url: str, sink_url: str, kafka_client: str, count: int) -> Sequence[msgspec.Struct]:
    if what is Benchmark.CREATE:
        many = partial(bench_create.create_many, count=count)
        return [
            _on_store("create", store_url, partial(bench_create.create, count=count)),
            _on_store("create_many", store_url, many),
            _on_store("create_many, generated ids", store_url, partial(many, generated=True)),
        ]
    if what is Benchmark.TIMERS:
        single = _on_store("send_at", store_url, partial(bench_create.send_at, count=min(count, 20_000)))
        return [single, _on_store("send_many", store_url, partial(bench_create.send_many, count=count))]
    servers = sink_url.removeprefix("kafka://")
    if what is Benchmark.PUBLISH:
        with _working("publish"):
            return [bench_publish.measure(servers, client) for client in KAFKA_CLIENTS]
    with bench_publish.fresh_topic(servers) as topic, bench_publish.fresh_topic(servers) as beside:

        async def work(store: Store, settings: Settings) -> Sequence[msgspec.Struct]:
            async with _publisher(sink_url, kafka_client) as publisher:
                with_dispatcher = partial(_measure_dispatch, what, store, settings, publisher)
                return await with_dispatcher(topic=topic, beside=beside, count=count)

        return _on_store(what.value, store_url, work)


async def _measure_dispatch(
    what: Benchmark, store: Store, settings: Settings, publisher: Publisher, *, topic: str, beside: str, count: int
) -> Sequence[msgspec.Struct]:
    if what is Benchmark.STEADY:
        steady = await bench_steady.steady(store, settings, publisher, topic=topic, count=count)
        return [steady, await bench_steady.created(store, settings, publisher, topic=beside)]
    if what is Benchmark.SCALE:
        return [cost async for cost in bench_scale.scale(store, settings, publisher, topic=topic, count=count)]
    if what is Benchmark.DISPATCH:
        return [await bench_dispatch.dispatch(store, settings, publisher, topic=topic, count=count)]
    return [await bench_dispatch.herd_ahead(store, settings, publisher, topic=topic, beside=beside, count=count)]


def _on_store(name: str, store_url: str, measure: Callable[[Store, Settings], Awaitable[Work]]) -> Work:
    """Measure on a keyspace of its own."""

    async def work() -> Work:
        store = open_store(f"{store_url}/bench_{uuid.uuid4().hex[:8]}", create=True, replication=1)
        try:
            return await measure(store, await store.open())
        finally:
            await store.close()

    with _working(name):
        return asyncio.run(work())


@contextlib.asynccontextmanager
async def _publisher(sink_url: str, kafka_client: str) -> AsyncIterator[Publisher]:
    publisher = open_publisher(sink_url, kafka_client=kafka_client)
    await publisher.start()
    try:
        yield publisher
    finally:
        await publisher.close(10_000)


@contextlib.contextmanager
def _services(store: str | None, sink: str | None) -> Iterator[tuple[str, str]]:
    """The URLs to use: those named, else of a stack that lives as long as the benchmark."""
    if store is not None and sink is not None:
        yield store.rstrip("/"), sink
        return
    if store is not None or sink is not None:
        raise SettingsError("name a store and a sink, or neither: then the benchmark starts its own")
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-", ignore_cleanup_errors=True) as directory:
        stack = LocalStack(Path(directory) / "stack", short_lived=True)
        try:
            with _working("starting Cassandra and Kafka"):
                stack.start(nodes=1)
            yield stack.store_url("").rstrip("/"), stack.sink_url
        finally:
            stack.stop()


@contextlib.contextmanager
def _working(what: str) -> Iterator[None]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=notes(), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def _show(figures: msgspec.Struct, output: Output) -> None:
    fields: dict[str, Any] = msgspec.structs.asdict(figures)
    if output is Output.JSON:
        print_json(fields)
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in fields.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else str(value))
    console().print(table)
