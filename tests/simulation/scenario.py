"""What a run will go through: written down before it starts, so that it can be replayed, printed and shrunk.

A scenario is data: who asks for what and when, and what breaks. `ms` are virtual milliseconds since the start. All
durations of the protocol are scaled down (`TIMING`): a day has 60 s, a minute 10 s, so that a run of three minutes
sees days sealed, leases lost and markers forgotten.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from simulation.network import NetworkFaults
from simulation.traps import Trap
from tocsin.schema.schedules import CatchUp
from tocsin.schema.timing import Timing

TIMING = Timing(
    day_ms=60_000,
    minute_ms=10_000,
    near_slot_ms=5_000,
    changes_slot_ms=20_000,
    far_from_ms=60_000,
    far_seal_ms=58_750,
    far_limit_ms=200_000,
    lead_ms=2_000,
    misfire_grace_ms=6_000,
    lease_ttl_ms=3_000,
    lease_margin_ms=600,
    heartbeat_ms=500,
    undecided_tries_max=3,
    commit_limit_ms=3_000,
    marker_slack_ms=12_000,
    marker_limit_ms=132_000,
    jitter_ms_max=30_000,
    park_ms_max=8_000,
    memory_ms=30_000,
    far_check_ms=1_000,
    retry_ms_max=400,
)

#: Clients ask until here; faults strike until there; from QUIET on everything must be as if nothing had happened.
ACT_MS = 60_000
FAULTS_MS = 85_000
QUIET_MS = 120_000
END_MS = 170_000

Operation = Literal["create", "update", "pause", "resume", "cancel"]


class Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule to be: one instant, a period, or a cron expression."""

    #: ms since the start; None: it recurs.
    once_ms: int | None = None
    period_ms: int | None = None
    anchor_ms: int = 0
    cron: str | None = None
    jitter_ms: int = 0
    catch_up: CatchUp = CatchUp.ALL
    topic: str = "even"
    payload: str = ""


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call"):
    """A client process that makes one call, and may die of it."""

    at_ms: int
    operation: Operation
    schedule_id: str
    wanted: Wanted | None = None
    skew_ms: int = 0
    traps: tuple[Trap, ...] = ()
    #: Another process repeats the call this long after the first died; None: nobody does.
    repeat_after_ms: int | None = None


class Herd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="herd"):
    """One client process that creates many schedules which are due together."""

    at_ms: int
    name: str
    count: int
    wanted: Wanted


class Audit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="audit"):
    """A process that inserts what one schedule should have armed."""

    at_ms: int
    schedule_id: str
    traps: tuple[Trap, ...] = ()


class SetLayout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="layout"):
    """An operator splits minutes into another number of parts from an instant on."""

    at_ms: int
    from_ms: int
    sub_partitions: int
    traps: tuple[Trap, ...] = ()


class ExtraRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="extra"):
    """A client process that sends a timer, and may recall it, or triggers or backfills a schedule."""

    at_ms: int
    operation: Literal["send", "trigger", "backfill"]
    name: str
    due_ms: int = 0
    recall_ms: int | None = None
    #: How often a trigger or backfill is asked for again, with the same request.
    repeats: int = 0
    traps: tuple[Trap, ...] = ()


class HostFault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="host"):
    """A trap for a dispatcher's host; it strikes whichever process runs there then."""

    at_ms: int
    host: int
    trap: Trap


class Leave(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="leave"):
    """A dispatcher is stopped as planned, and started again later."""

    at_ms: int
    host: int
    duration_ms: int


class Outage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="outage"):
    """Every dispatcher is killed, and none is started for a while."""

    at_ms: int
    duration_ms: int


class ReplicaDown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="replica"):
    """One node of the store is away; what was written meanwhile may reach it later."""

    at_ms: int
    duration_ms: int
    replica: int


class BrokerAway(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="broker"):
    """Kafka does not answer."""

    at_ms: int
    duration_ms: int


class TopicFailing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="topic"):
    """One topic takes no records."""

    at_ms: int
    duration_ms: int
    topic: str


class StoreClockStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="store_clock"):
    """All clocks of the store step, and step back at the end; hosts follow where `hosts` says so."""

    at_ms: int
    duration_ms: int
    step_ms: int
    hosts: bool = False


class HostClockStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="host_clock"):
    """The wall clock of one dispatcher's host steps."""

    at_ms: int
    duration_ms: int
    host: int
    step_ms: int


Event = (
    Call
    | Herd
    | Audit
    | ExtraRun
    | SetLayout
    | HostFault
    | Leave
    | Outage
    | ReplicaDown
    | BrokerAway
    | TopicFailing
    | StoreClockStep
    | HostClockStep
)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One run. The seed decides what the scenario leaves open: delays, which messages are lost, ids."""

    seed: int
    hosts: int = 2
    network: NetworkFaults = NetworkFaults()
    #: Clock skews of the store's nodes, ms.
    skews_ms: tuple[int, int, int] = (0, 0, 0)
    #: Share of acknowledgements of Kafka that are late.
    broker_slow: float = 0
    #: How long the nodes keep what was due; None: longer than any run.
    retention_ms: int | None = None
    #: How long before it holds a layout is made known; None: longer than any run.
    layout_notice_ms: int | None = None
    #: Whether dispatchers audit everything all along.
    audits: bool = False
    events: tuple[Event, ...] = ()

    def text(self) -> str:
        """The scenario as JSON lines, one event each."""
        head = msgspec.structs.replace(self, events=())
        return "\n".join(msgspec.json.encode(part).decode() for part in (head, *self.events))
