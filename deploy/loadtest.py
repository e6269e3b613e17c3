"""`tocsin loadtest run`, `verify` and `plan`: what is run before a launch, and what is looked at afterwards."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Final

import typer

from tocsin.deploy import loadtest_objectives as slo
from tocsin.deploy import loadtest_options as options
from tocsin.deploy import loadtest_plan, loadtest_verify
from tocsin.deploy.configuration import SinkOption, StoreOption, read_configuration
from tocsin.deploy.loadtest_services import place_of
from tocsin.deploy.loadtest_session import Wanted, measure
from tocsin.deploy.output import Output, OutputOption
from tocsin.loadtest.profiles import Profile
from tocsin.schema.errors import SettingsError

#: A factor for whoever names none: the reference size is not for a laptop.
SCALES: Final = {Profile.REFERENCE: 0.0001}
#: Dispatchers of its own where the store is its own.
DISPATCHERS: Final = 2


def register(app: typer.Typer) -> None:
    """Add the group to an application."""
    group = typer.Typer(no_args_is_help=True, help="Run hourly peaks, verify topics, plan capacity.")
    group.command()(run)
    group.command()(loadtest_verify.verify)
    group.command()(loadtest_plan.plan)
    app.add_typer(group, name="loadtest")


def run(
    *,
    profile: options.ProfileOption = Profile.HOURLY_PEAK,
    minutes: options.MinutesOption = 5,
    scale: options.ScaleOption = None,
    hour: options.HourOption = "1m",
    peak: options.PeakOption = 20,
    peak_width: options.PeakWidthOption = "0s",
    store: StoreOption = None,
    sink: SinkOption = None,
    topic: options.TopicOption = None,
    embedded: options.EmbeddedOption = False,
    nodes: options.NodesOption = 3,
    dispatchers: options.DispatchersOption = None,
    kill_dispatcher_at: options.KillOption = None,
    stop_node_at: options.StopNodeOption = None,
    node_down: options.NodeDownOption = "30s",
    warmup: options.WarmupOption = None,
    patience: options.PatienceOption = "1m",
    report: options.ReportOption = None,
    slo_lost: slo.LostOption = 0,
    slo_repeated: slo.RepeatedOption = None,
    slo_p99: slo.P99Option = None,
    slo_peak_p99: slo.PeakP99Option = None,
    slo_max: slo.LatestOption = None,
    slo_drain: slo.DrainOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create schedules, let their window pass, and check every expected key on the topic.

    Without a store and a sink it starts its own, and its own dispatchers, on loopback. The exit code is 1 where an
    objective is missed; lost and early are always among them.
    """
    objectives = slo.objectives_of(
        lost=slo_lost, repeated=slo_repeated, p99=slo_p99, peak_p99=slo_peak_p99, latest=slo_max, drain=slo_drain
    )
    count = dispatchers if dispatchers is not None else DISPATCHERS if store is None else 0
    wanted = Wanted(
        profile=profile,
        run_id=f"loadtest-{secrets.token_hex(4)}",
        topic=topic,
        minutes=minutes,
        scale=scale if scale is not None else SCALES.get(profile, 1.0),
        hour_ms=slo.milliseconds("hour", hour),
        peak=peak,
        peak_width_ms=slo.milliseconds("peak-width", peak_width),
        warmup_ms=None if warmup is None else slo.milliseconds("warmup", warmup),
        patience_ms=slo.milliseconds("patience", patience),
        dispatchers=count,
        kills=tuple(kill_dispatcher_at or ()),
        node_stops=tuple(stop_node_at or ()),
        node_down_ms=slo.milliseconds("node-down", node_down),
    )
    _refuse_contradictions(wanted, has_stack=store is None and not embedded, nodes=nodes)
    with place_of(store, sink, embedded=embedded, nodes=nodes) as place:
        measured = asyncio.run(measure(wanted, place, read_configuration(store=place.store_url, sink=place.sink_url)))
    title = f"Load test {profile}, {wanted.run_id}"
    slo.conclude(measured, objectives, report=report or Path(f"{wanted.run_id}.html"), output=output, title=title)


def _refuse_contradictions(wanted: Wanted, *, has_stack: bool, nodes: int) -> None:
    """Before anything is started."""
    if nodes not in {1, 3}:
        raise typer.BadParameter("choose 1 or 3", param_hint="--nodes")
    if wanted.kills and not wanted.dispatchers:
        raise SettingsError("a dispatcher can be killed only where it is one of the test's own; give --dispatchers.")
    if wanted.node_stops and not (has_stack and nodes == 3):
        raise SettingsError("a node can be killed only where it is one of three of the test's own stack.")
    if any(not 0 <= at <= wanted.minutes for at in (*wanted.kills, *wanted.node_stops)):
        raise SettingsError(f"what happens must happen within the window of {wanted.minutes:g} minutes.")
    wanted.load(now=0)
