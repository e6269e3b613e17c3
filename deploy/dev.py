"""`tocsin dev`: everything a newcomer needs in one window: a store in a file, records on the screen."""

from __future__ import annotations

import asyncio

import typer
from rich.syntax import Syntax
from rich.text import Text

from tocsin.deploy.configuration import Configuration, SinkOption, StoreOption, read_configuration
from tocsin.deploy.dispatcher_process import run_dispatcher
from tocsin.deploy.output import notes
from tocsin.dispatcher.log import configure_log
from tocsin.dispatcher.publisher_lines import printable


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(dev)


def dev(*, store: StoreOption = None, sink: SinkOption = None) -> None:
    """Run an embedded store and one dispatcher until Ctrl-C; records appear here.

    The store is sqlite:///tocsin.db unless configured; it is made where it is missing.
    """
    configuration = read_configuration(store=store, sink=sink)
    configure_log(as_json=configuration.log == "json")
    asyncio.run(run_dispatcher(configuration, create=True, says_status=False, greet=lambda: _greet(configuration)))


def _greet(configuration: Configuration) -> None:
    screen = notes()
    screen.print(Text.assemble(("Tocsin", "bold"), f" on {printable(configuration.store)}. In another window, try:\n"))
    screen.print(Syntax(first_schedule(configuration.store), "python", background_color="default"))
    screen.print(Text("Its records appear below. Ctrl-C stops; what is scheduled stays.\n", style="dim"))


def first_schedule(store: str) -> str:
    """The three lines of Python to try against this store."""
    return (
        "from datetime import timedelta\n"
        "from tocsin import Every, Scheduler\n"
        f'Scheduler({store!r}).create("tea", Every(timedelta(seconds=5)), topic="tea", payload=b"hot")\n'
    )
