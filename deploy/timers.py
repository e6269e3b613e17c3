"""`tocsin send` and `tocsin recall`: timers, records sent at an instant without a schedule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.create import read_headers, read_moment, read_payload
from tocsin.deploy.output import Output, OutputOption, console, print_json
from tocsin.deploy.scheduling import with_scheduler
from tocsin.dispatcher.publisher_lines import printable
from tocsin.producer.results import ChangeOutcome


def register(app: typer.Typer) -> None:
    """Add both commands to an application."""
    app.command()(send)
    app.command()(recall)


def send(
    *,
    at: Annotated[str, typer.Option(metavar="INSTANT", help="2026-12-24T18:00+01:00, or +10m from now.")],
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Where it goes.")],
    payload: Annotated[str, typer.Option(metavar="WHAT", help="Text, @file, or - for standard input.")] = "",
    header: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A header; repeat it for more.")] = None,
    timer_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Sent twice with one id and instant, it is one.", show_default="fresh"),
    ] = None,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send one record at an instant; answers with the occurrence key, by which it can be recalled."""
    moment = read_moment("at", at, datetime.now(UTC))
    content, headers = read_payload(payload), read_headers(header or ())
    key = with_scheduler(
        store,
        lambda scheduler: scheduler.send_at(topic, content, at=moment, timer_id=timer_id, headers=headers or None),
    )
    if output is Output.JSON:
        print_json({"key": key})
    else:
        console().print(Text.assemble("waits as ", (printable(key), "bold")))


def recall(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The occurrence key that send answered with.")],
    *,
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a timer back. Again, or a key that nobody sent, is harmless: nothing is ever dispatched for it then."""
    answer = with_scheduler(store, lambda scheduler: scheduler.recall(key))
    if output is Output.JSON:
        print_json({"outcome": answer.outcome.value, "uncertain": list(answer.uncertain)})
    elif answer.outcome is ChangeOutcome.PREVENTED:
        console().print(Text("prevented: nothing of this key will be dispatched from now on", style="green"))
    else:
        console().print(Text("possibly dispatched: it was due, or is just now", style="yellow"))
