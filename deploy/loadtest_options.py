"""The options of `tocsin loadtest run`: what is scheduled, where, and what happens to it meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tocsin.loadtest.profiles import Profile

ProfileOption = Annotated[Profile, typer.Option(help="What is scheduled.")]
MinutesOption = Annotated[float, typer.Option(min=0.3, max=24 * 60, help="How long the window is.")]
ScaleOption = Annotated[
    float | None, typer.Option(help="Times the profile's own size.", show_default="1; reference: 0.0001")
]
HourOption = Annotated[str, typer.Option(metavar="DURATION", help="How long an hour takes here.")]
PeakOption = Annotated[int, typer.Option(min=1, max=60, help="How many times the mean a peak minute holds.")]
PeakWidthOption = Annotated[str, typer.Option(metavar="DURATION", help="0s: a peak is one instant.")]
TopicOption = Annotated[
    str | None, typer.Option(help="An existing topic, kept afterwards.", show_default="one of its own, deleted")
]
EmbeddedOption = Annotated[bool, typer.Option("--embedded", help="SQLite and a file, nothing else.")]
NodesOption = Annotated[int, typer.Option(help="Cassandra nodes of its own stack: 1 or 3.")]
DispatchersOption = Annotated[
    int | None, typer.Option(min=0, max=64, help="Of its own.", show_default="2; with --store: 0")
]
KillOption = Annotated[
    list[float] | None,
    typer.Option("--kill-dispatcher-at", metavar="MINUTE", help="Kill one of them; may be repeated."),
]
StopNodeOption = Annotated[
    list[float] | None,
    typer.Option("--stop-node-at", metavar="MINUTE", help="Kill a Cassandra node of its own stack."),
]
NodeDownOption = Annotated[str, typer.Option(metavar="DURATION", help="Until it is started again.")]
WarmupOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Time to create schedules.", show_default="by their number")
]
PatienceOption = Annotated[str, typer.Option(metavar="DURATION", help="Wait for what is missing at the end.")]
ReportOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="HTML; JSON beside it.", show_default="loadtest-<run>.html")
]
