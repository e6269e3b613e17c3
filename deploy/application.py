"""The commands of `tocsin`, put together; each module brings its own."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from tocsin.deploy import (
    apply,
    audit,
    backup,
    bench,
    bucket,
    calendar,
    change,
    create,
    create_many,
    dead_letters,
    demo,
    dev,
    dispatch,
    doctor,
    extra_runs,
    import_crontab,
    ingest,
    initialise,
    layout,
    listing,
    loadtest,
    occurrences,
    show,
    status,
    timers,
    up,
    update,
)
from tocsin.deploy import next as next_
from tocsin.deploy.configuration import CONFIG_VARIABLE, chosen_file
from tocsin.deploy.examples import EXAMPLES

#: In the order in which a newcomer meets them.
_MODULES = (
    demo,
    dev,
    up,
    initialise,
    next_,
    create,
    create_many,
    apply,
    import_crontab,
    show,
    listing,
    occurrences,
    update,
    change,
    calendar,
    extra_runs,
    timers,
    dispatch,
    ingest,
    status,
    doctor,
    bucket,
    dead_letters,
    audit,
    layout,
    backup,
    bench,
    loadtest,
)


def application() -> typer.Typer:
    """The typer application."""
    app = typer.Typer(
        name="tocsin",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback(epilog=_examples("tocsin"))(tocsin)
    for module in _MODULES:
        module.register(app)
    for command in app.registered_commands:
        command.epilog = _examples(str(command.name or getattr(command.callback, "__name__", "")))
    for group in app.registered_groups:
        group.epilog = _examples(str(group.name))
        for command in group.typer_instance.registered_commands if group.typer_instance is not None else ():
            command.epilog = group.epilog
    return app


def tocsin(
    *,
    config: Annotated[
        Path | None,
        typer.Option(envvar=CONFIG_VARIABLE, metavar="FILE", help="Settings.", show_default="./tocsin.toml, if there"),
    ] = None,
    show_version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the release.")] = False,
) -> None:
    """Tocsin stores schedules and dispatches each occurrence at its instant: never early, at least once, none lost.

    Settings come from options, else the environment (TOCSIN_STORE, TOCSIN_SINK, …), else tocsin.toml.

    Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not found, 4 conflict, 5 outcome unknown, 6 unavailable.
    """
    if show_version:
        typer.echo(f"tocsin {version('tocsin')}")
        raise typer.Exit
    chosen_file.set(config)


def _examples(name: str) -> str:
    lines = "\n".join(f"  {line}" for line in EXAMPLES[name])
    return f"[bold]Examples[/bold]\n\n\b{lines}"
