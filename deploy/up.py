"""`tocsin up` and `tocsin down`: real Cassandra and Kafka on this machine, until told otherwise."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tocsin.deploy.initialise import DEFAULT_REPLICATION
from tocsin.deploy.maven import Report, cache_folder
from tocsin.deploy.stack import LocalStack
from tocsin.deploy.stack_plan import StackPlan, read_plan
from tocsin.deploy.stack_security import StackSecurity
from tocsin.deploy.stack_topics import make_topics
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.producer.definition import check_topic

Directory = Annotated[
    Path | None, typer.Option(help="Where the stack keeps everything it has.", show_default="the user's cache folder")
]


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command()(up)
    app.command()(down)


def up(
    *,
    nodes: Annotated[int, typer.Option(help="Cassandra nodes: 1, or 3 for quorums that mean something.")] = 1,
    cassandra_port: Annotated[int | None, typer.Option(min=1, max=65_535, show_default="9042, else a free one")] = None,
    kafka_port: Annotated[int | None, typer.Option(min=1, max=65_535, show_default="9092, else a free one")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="A topic to create; may be given several times.")] = None,
    secure: Annotated[bool, typer.Option("--secure", help="With TLS and a password, as a real cluster.")] = False,
    directory: Directory = None,
) -> None:
    """Start a local Cassandra and Kafka, and print their URLs.

    Uses Docker where an engine answers, else Java 17 and Maven. Both listen on loopback only and run until tocsin down.
    While they run, the same command with --topic adds topics.
    """
    if nodes not in {1, 3}:
        raise typer.BadParameter("choose 1 or 3", param_hint="--nodes")
    for name in topic or ():
        check_topic(name)
    console = Console(stderr=True)
    begun = time.monotonic()
    place = directory or default_directory()
    with _interruptible(console):
        was_running = LocalStack(place).running
        with _progress_shown(console) as report:
            LocalStack(place, report=report).start(
                nodes=nodes, cassandra_port=cassandra_port, kafka_port=kafka_port, secure=secure
            )
    plan = read_plan(place)
    if plan is not None:
        environment = LocalStack(place).environment
        make_topics(plan.kafka_bootstrap, topic or (), KafkaSecurity.from_environment(environment))
        console.print("Already running." if was_running else f"Up in {time.monotonic() - begun:.0f} s.")
        _print_urls(Console(), plan, place)


def down(*, directory: Directory = None) -> None:
    """Stop what tocsin up started, and delete its data."""
    console = Console(stderr=True)
    place = directory or default_directory()
    if read_plan(place) is None:
        console.print(f"Nothing is running in {place}.", soft_wrap=True)
        return
    LocalStack(place).stop()
    console.print("Down: everything stopped, all its data deleted.")


def default_directory() -> Path:
    """Return where this user's stack is when no directory is named: the same from every working directory."""
    return cache_folder() / "stack"


def _print_urls(console: Console, plan: StackPlan, directory: Path) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("store", plan.store_url("tocsin"))
    table.add_row("sink", plan.sink_url)
    if plan.secure:
        table.add_row("access", f"source {StackSecurity(directory).environment_file}")
    fewer = f" --replication {plan.nodes}" if plan.nodes < DEFAULT_REPLICATION else ""
    table.add_row("next", f"tocsin init {plan.store_url('tocsin')}{fewer}")
    console.print(table)


@contextmanager
def _progress_shown(console: Console) -> Iterator[Report]:
    """Show one line per kind of work, as far as it is done."""
    columns = (SpinnerColumn(finished_text="[green]✓[/]"), TextColumn("{task.description}"), BarColumn(bar_width=30))
    tasks: dict[str, TaskID] = {}
    progress = Progress(*columns, MofNCompleteColumn(), TimeElapsedColumn(), console=console)

    def report(what: str, done: int, total: int) -> None:
        progress.start()
        if what not in tasks:
            tasks[what] = progress.add_task(what, total=total)
        progress.update(tasks[what], completed=done, total=total)

    try:
        yield report
    finally:
        if tasks:
            progress.stop()


@contextmanager
def _interruptible(console: Console) -> Iterator[None]:
    """Let SIGTERM end the work inside as Ctrl-C does, so that nothing half begun stays behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        console.print("Interrupted; what was begun is stopped.")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
