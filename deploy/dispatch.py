"""`tocsin dispatch`: dispatchers until they are told to stop, one in this process or several beside each other.

Several are several programs, never forks: a driver's and a Kafka client's threads do not survive a fork. The command
then only watches them. One that ends unasked ends all, loudly and with its exit code, so that whatever supervises this
command sees it and starts anew.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Annotated

import structlog
import typer

from tocsin.deploy.configuration import (
    CONFIG_VARIABLE,
    Configuration,
    SinkOption,
    StoreOption,
    chosen_file,
    read_configuration,
)
from tocsin.deploy.dispatcher_process import EXIT_AT_ONCE, run_dispatcher
from tocsin.deploy.metrics_server import next_address
from tocsin.dispatcher.log import configure_log

#: How long the processes have for a planned stop before they are killed; longer than each of them takes.
STOP_SECONDS = 15

_log = structlog.get_logger("tocsin.dispatch")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(dispatch)


def dispatch(
    *,
    store: StoreOption = None,
    sink: SinkOption = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=256, help="Dispatchers beside each other.", show_default="1")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT|off", help="/metrics, /healthz, /readyz.", show_default="a free port on loopback"
        ),
    ] = None,
    log: Annotated[
        str | None, typer.Option(metavar="auto|text|json", help="auto: text on a terminal, else JSON lines.")
    ] = None,
    supervisor: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Dispatch what is due, until SIGTERM or Ctrl-C; a second one leaves at once.

    It says one line a second: ranges, lag, what was dispatched.
    """
    configuration = read_configuration(store=store, sink=sink, processes=processes, metrics=metrics, log=log)
    start_log(configuration)
    if supervisor is not None:
        structlog.contextvars.bind_contextvars(process=os.getpid())
    if configuration.processes == 1:
        asyncio.run(run_dispatcher(configuration, supervisor=supervisor))
        return
    code = asyncio.run(_run_processes(configuration))
    if code:
        raise typer.Exit(code)


def start_log(configuration: Configuration) -> None:
    """Log as configured: for people where a terminal is, for programs elsewhere."""
    configure_log(as_json=_log_form(configuration) == "json")


def dispatcher_command(store: str, sink: str, *, metrics: str, log: str) -> list[str]:
    """The command line of one dispatcher that stops when this process has gone."""
    options = {"--store": store, "--sink": sink, "--metrics": metrics, "--log": log}
    words = [word for option in options.items() for word in option]
    program = [sys.executable, "-m", "tocsin.deploy.main", "dispatch", "--processes", "1"]
    return [*program, "--supervisor", str(os.getpid()), *words]


def inherited_environment() -> dict[str, str]:
    """Ours, with the file that --config named: its settings hold for every process of the command."""
    file = chosen_file.get()
    return dict(os.environ) | ({} if file is None else {CONFIG_VARIABLE: str(file)})


def _log_form(configuration: Configuration) -> str:
    if configuration.log == "auto":
        return "text" if sys.stderr.isatty() else "json"
    return configuration.log


async def _run_processes(configuration: Configuration) -> int:
    """Run as many as are configured; returns the exit code."""
    # Each in a session of its own: Ctrl-C reaches this process only, which passes it on once.
    running = [
        await asyncio.create_subprocess_exec(
            *dispatcher_command(
                configuration.store,
                configuration.sink,
                metrics=next_address(configuration.metrics, number),
                log=_log_form(configuration),
            ),
            env=inherited_environment(),
            start_new_session=True,
        )
        for number in range(configuration.processes)
    ]
    ends = {asyncio.ensure_future(process.wait()): process for process in running}
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, _pass_on, running, stopping)
    told = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({*ends, told}, return_when=asyncio.FIRST_COMPLETED)
    unasked = [] if stopping.is_set() else [process for process in running if process.returncode is not None]
    for process in unasked:
        _log.error(
            f"Dispatcher {process.pid} ended with code {process.returncode}; the others stop too.",
            action="dispatcher_ended",
        )
    if unasked:
        _pass_on(running, stopping)
    _, late = await asyncio.wait(ends, timeout=STOP_SECONDS)
    for end in late:
        ends[end].kill()
        await end
    told.cancel()
    return max((_code(process.returncode or 0) for process in unasked), default=0)


def _pass_on(running: list[asyncio.subprocess.Process], stopping: asyncio.Event) -> None:
    """The first time stop them all, the second time kill them and leave."""
    again = stopping.is_set()
    stopping.set()
    for process in running:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL if again else signal.SIGTERM)
    if again:
        os._exit(EXIT_AT_ONCE)


def _code(returncode: int) -> int:
    """An exit code as shells have it: a signal counts from 128."""
    return returncode if returncode >= 0 else 128 - returncode
