"""Scenarios aimed at one rule each, after holes that earlier wordings of the protocol had; run beside the seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import msgspec

from simulation.generate import generate
from simulation.network import NetworkFaults
from simulation.scenario import (
    TIMING,
    Audit,
    Call,
    Event,
    ExtraRun,
    Herd,
    HostClockStep,
    HostFault,
    Outage,
    Scenario,
    SetLayout,
    StoreClockStep,
    Wanted,
)
from simulation.traps import Trap
from tocsin.schema.schedules import CatchUp

#: A seed, or the name of a directed scenario with the seed of what it leaves open.
Job = int | tuple[str, int]

#: When, within a minute, the next one is sealed.
SEAL_MS = TIMING.minute_ms - TIMING.lead_ms
DIES_BEFORE_CONFIRM = Trap(action="kill", call="write_marker", spared=1, sent=False)


def held_at_takeover(_: Random) -> list[Event]:
    """A cancel is committed and not confirmed before an outage that is longer than its marker lives."""
    wanted = Wanted(period_ms=13_000, anchor_ms=537, catch_up=CatchUp.LATEST)
    names = [f"s{number}" for number in range(4)]
    creates = [Call(at_ms=3_000, operation="create", schedule_id=name, wanted=wanted) for name in names]
    cancels = [Call(at_ms=30_000, operation="cancel", schedule_id=name, traps=(DIES_BEFORE_CONFIRM,)) for name in names]
    return [*creates, *cancels, Outage(at_ms=32_000, duration_ms=43_000)]


def commits_slowly_and_dies(random: Random) -> list[Event]:
    """The first due comes while the commit is under way; then the client is gone."""
    slow = Trap(action="pause", call="commit", sent=False, duration_ms=1_000)
    dies = Trap(action="kill", call="write_pack", spared=1, sent=False)
    return [
        Call(
            at_ms=20_000 + 7_000 * number,
            operation="create",
            schedule_id=f"s{number}",
            wanted=Wanted(once_ms=20_300 + 7_000 * number + random.randint(0, 300)),
            traps=(slow, dies),
        )
        for number in range(4)
    ]


def clock_runs_ahead(random: Random) -> list[Event]:
    """The store's clock steps forward, and back much later."""
    step = StoreClockStep(at_ms=20_000, duration_ms=20_000 + random.randint(0, 3_000), step_ms=25_000, hosts=True)
    wanted = Wanted(period_ms=1_000, anchor_ms=100)
    return [Call(at_ms=10_000, operation="create", schedule_id="s0", wanted=wanted), step]


def repeated_much_later(random: Random) -> list[Event]:
    """A create whose client died is repeated when its first occurrences are long dispatched."""
    dies = Trap(action="kill", call="write_pack", spared=1, sent=True)
    return [
        Call(
            at_ms=8_000,
            operation="create",
            schedule_id=f"s{number}",
            wanted=Wanted(period_ms=period, anchor_ms=100),
            traps=(dies,),
            repeat_after_ms=random.randint(15_000, 45_000),
        )
        for number, period in enumerate((1_000, 1_000, 7_000))
    ]


def far_and_slow(random: Random) -> list[Event]:
    """A far pointer is judged while its commit is still under way."""
    slow = Trap(action="pause", call="commit", sent=False, duration_ms=random.randint(1_000, 2_900))
    at = TIMING.day_ms - 800
    return [
        Call(at_ms=at, operation="create", schedule_id=f"s{number}", wanted=Wanted(once_ms=130_000), traps=(slow,))
        for number in range(3)
    ]


def audit_stalls(random: Random) -> list[Event]:
    """An audit stands still between its look and its write."""
    stall = Trap(action="pause", call="write_pack", sent=False, duration_ms=random.randint(8_000, 20_000))
    wanted = Wanted(period_ms=7_000, anchor_ms=100)
    create = Call(at_ms=10_000, operation="create", schedule_id="s0", wanted=wanted)
    return [create, *(Audit(at_ms=25_000 + 9_000 * n, schedule_id="s0", traps=(stall,)) for n in range(4))]


def owner_stops_in_its_rearm(random: Random) -> list[Event]:
    """Owners stand still just before they write what comes next, and wake when others have gone on for long."""
    wanted = Wanted(period_ms=1_000, anchor_ms=100)
    creates = [Call(at_ms=5_000, operation="create", schedule_id=f"s{n}", wanted=wanted) for n in range(4)]
    stops = [
        HostFault(
            at_ms=at,
            host=host,
            trap=Trap(action="pause", call="write_pack", from_ms=at, sent=False, duration_ms=25_000),
        )
        for host, at in ((0, 20_000), (1, 20_000 + random.randint(0, 2_000)))
    ]
    return [*creates, *stops]


def timers_at_the_seal(random: Random) -> list[Event]:
    """Slow senders choose a minute just before it is sealed. A timer is one write: nothing heals it."""
    return [event for minute in range(1, 7) for event in _slow_timers(random, minute, stall_ms=(100, 4_000))]


def seal_is_not_heard(random: Random) -> list[Event]:
    """A seal reaches one replica only at first; senders that chose its minute write a little later."""
    events: list[Event] = []
    for minute in range(1, 7):
        sealed_at = minute * TIMING.minute_ms + SEAL_MS
        trap = Trap(action="muffle", call="write_frontier:sealed_minute", from_ms=sealed_at - 10, sent=False)
        events += [HostFault(at_ms=sealed_at - 400, host=host, trap=trap) for host in range(3)]
        events += _slow_timers(random, minute, stall_ms=(500, 4_000))
    return events


def sealer_dies(random: Random) -> list[Event]:
    """Owners die as they seal a minute, and others read it; senders that chose it before write only then."""
    events: list[Event] = []
    for minute in range(1, 7):
        sealed_at = minute * TIMING.minute_ms + SEAL_MS
        seal = "write_frontier:sealed_minute"
        muffle = Trap(action="muffle", call=seal, from_ms=sealed_at - 10, sent=False)
        kill = Trap(action="kill", call=seal, from_ms=sealed_at - 10)
        for host in range(3):
            events += [HostFault(at_ms=sealed_at - 400, host=host, trap=trap) for trap in (muffle, kill)]
        events += _slow_timers(random, minute, stall_ms=(2_500, 7_000))
    return events


def cascader_dies(random: Random) -> list[Event]:
    """Owners die in the middle of a day they cascade."""
    creates = [
        Call(
            at_ms=3_000 + 300 * number,
            operation="create",
            schedule_id=f"s{number}",
            wanted=Wanted(once_ms=2 * TIMING.day_ms + 1_000 * number),
        )
        for number in range(30)
    ]
    at = 2 * TIMING.day_ms - TIMING.far_seal_ms
    trap = Trap(action="kill", call="write_pack", from_ms=at - 50, spared=random.randint(0, 2), sent=False)
    return [*creates, *(HostFault(at_ms=at - 100, host=host, trap=trap) for host in range(3))]


def away_longer_than_rows_live(random: Random) -> list[Event]:
    """Nobody dispatches until what waited has left the store; who comes back first dies in the middle of its audit."""
    creates = [
        Call(
            at_ms=3_000 + 150 * number,
            operation="create",
            schedule_id=f"s{number}",
            wanted=Wanted(period_ms=period, anchor_ms=100 + 37 * number, catch_up=policy),
        )
        for number, (period, policy) in enumerate(itertools.product((1_100, 7_000, 31_000), CatchUp))
    ]
    once = Call(at_ms=6_000, operation="create", schedule_id="once", wanted=Wanted(once_ms=31_000))
    dies = Trap(action="kill", call="read_schedules", from_ms=60_000, spared=random.randint(0, 6), sent=False)
    return [
        *creates,
        once,
        Outage(at_ms=20_000, duration_ms=50_000),
        *(HostFault(at_ms=71_600 + wait, host=host, trap=dies) for host in range(3) for wait in (0, 300)),
    ]


def audited_all_along(random: Random) -> list[Event]:
    """Dispatchers audit everything, round after round, while schedules change and owners stand still in it."""
    events: list[Event] = []
    for number, policy in enumerate(CatchUp):
        name = f"s{number}"
        wanted = Wanted(period_ms=1_700 + 900 * number, anchor_ms=31 * number, catch_up=policy)
        slower = msgspec.structs.replace(wanted, period_ms=2_300)
        events += [
            Call(at_ms=3_000 + 200 * number, operation="create", schedule_id=name, wanted=wanted),
            Call(at_ms=random.randint(20_000, 26_000), operation="update", schedule_id=name, wanted=slower),
            Call(at_ms=random.randint(32_000, 36_000), operation="pause", schedule_id=name),
            Call(at_ms=random.randint(40_000, 45_000), operation="resume", schedule_id=name),
        ]
    events.append(Call(at_ms=random.randint(50_000, 55_000), operation="cancel", schedule_id="s0"))
    for host, call in itertools.product(range(3), ("read_schedules", "walk_schedules")):
        trap = Trap(action="pause", call=call, sent=True, spared=random.randint(0, 4), duration_ms=9_000)
        events.append(HostFault(at_ms=random.randint(15_000, 50_000), host=host, trap=trap))
    return events


def recalled_in_a_large_minute(random: Random) -> list[Event]:
    """Timers are recalled in a minute of many pages, which is only read when it has passed."""
    recalls = [
        ExtraRun(
            at_ms=15_000 + 100 * number,
            operation="send",
            name=f"t{number}",
            due_ms=random.randint(40_200, 49_800),
            recall_ms=22_000 + 100 * number,
        )
        for number in range(12)
    ]
    wanted = Wanted(period_ms=10_000, anchor_ms=40_000 + random.randint(0, 9_000), catch_up=CatchUp.EARLIEST)
    return [*recalls, Herd(at_ms=24_000, name="h", count=40, wanted=wanted), Outage(at_ms=32_000, duration_ms=27_000)]


def changed_and_left_alone(random: Random) -> list[Event]:
    """Schedules are cancelled, paused and updated; every owner is killed soon, and the next ones come much later."""
    events: list[Event] = []
    changed = 30_000 + random.randint(0, TIMING.minute_ms)
    for number, operation in enumerate(("cancel", "pause", "update")):
        wanted = Wanted(period_ms=TIMING.minute_ms, anchor_ms=random.randint(0, TIMING.minute_ms))
        edited = msgspec.structs.replace(wanted, payload="edited")
        events += [
            Call(at_ms=5_000, operation="create", schedule_id=f"s{number}", wanted=wanted),
            Call(
                at_ms=changed,
                operation=operation,
                schedule_id=f"s{number}",
                wanted=edited if operation == "update" else None,
            ),
        ]
    # Beyond the occurrence that waited when they were changed.
    down_ms = TIMING.minute_ms + random.randint(1_000, 3_000)
    # At once, or when committed has passed the change.
    killed = changed + random.choice((100, 2_500))
    return [*events, Outage(at_ms=killed, duration_ms=down_ms)]


def lease_of_a_minority(random: Random) -> list[Event]:
    """Who acquires a range gets no answer and dies before asking: the lease may stand on one replica only."""
    wanted = Wanted(period_ms=1_000, anchor_ms=100)
    events: list[Event] = [
        Call(at_ms=5_000, operation="create", schedule_id=f"s{number}", wanted=wanted) for number in range(4)
    ]
    for at in range(20_000, 75_000, 11_000):
        dies = Trap(action="kill", call="read_lease", from_ms=at, sent=False)
        events.append(Outage(at_ms=at, duration_ms=random.randint(100, 1_000)))
        events += [HostFault(at_ms=at + 2_900, host=host, trap=dies) for host in range(3)]
    return events


def stops_once_it_has_published(random: Random, duration_ms: int = 20_000) -> list[Event]:
    """Every owner stands still between Kafka's answer and its re-arm, until what is due meanwhile is missed."""
    creates = [
        Call(
            at_ms=5_000,
            operation="create",
            schedule_id=f"s{number}",
            wanted=Wanted(period_ms=1_000, anchor_ms=100 + 50 * number, catch_up=CatchUp.EARLIEST),
        )
        for number in range(4)
    ]
    stops = [
        HostFault(
            at_ms=at,
            host=host,
            trap=Trap(
                action="pause",
                call="publish",
                from_ms=at,
                spared=random.randint(0, 3),
                sent=True,
                duration_ms=duration_ms,
            ),
        )
        for host, at in ((0, 20_000), (1, 20_000), (2, 20_000))
    ]
    return [*creates, *stops]


def stops_for_about_the_grace(random: Random) -> list[Event]:
    """The same, so briefly that what went out is taken for missed, and what comes next is only late."""
    return stops_once_it_has_published(random, TIMING.misfire_grace_ms + random.randint(-500, 900))


def clocks_are_wrong(random: Random) -> list[Event]:
    """A host's clock is off by five seconds, one of the store's by five, then all of the store's step by an hour."""
    creates = [
        Call(
            at_ms=3_000 + 200 * number,
            operation="create",
            schedule_id=f"s{number}",
            wanted=Wanted(period_ms=1_300 + 2_100 * number, anchor_ms=70 * number),
        )
        for number in range(5)
    ]
    back = random.choice((-1, 1))
    return [
        *creates,
        HostClockStep(at_ms=12_000, duration_ms=25_000, host=random.randint(0, 2), step_ms=5_000 * back),
        StoreClockStep(at_ms=45_000 + random.randint(0, 5_000), duration_ms=15_000, step_ms=3_600_000 * back),
    ]


def split_while_busy(random: Random) -> list[Event]:
    """Minutes are split anew under load; clients know at once, owners stand still and may not have heard."""
    creates = [
        Call(
            at_ms=5_000 + 300 * number,
            operation="create",
            schedule_id=f"s{number}",
            wanted=Wanted(period_ms=1_500 + 700 * number, anchor_ms=100 * number),
        )
        for number in range(6)
    ]
    # Senders that start after the change have read the new settings; a timer is one write, and nothing heals it.
    timers = [
        ExtraRun(at_ms=random.randint(due - 35_000, due - 5_000), operation="send", name=f"t{number}", due_ms=due)
        for number, due in enumerate(range(55_000, 85_000, 700))
    ]
    stop = Trap(action="pause", call="write_frontier", sent=False, duration_ms=random.randint(20_000, 30_000))
    return [
        *creates,
        *timers,
        SetLayout(at_ms=8_000, from_ms=60_000, sub_partitions=16),
        # Too near: an owner may have looked just before.
        SetLayout(at_ms=60_000, from_ms=70_000, sub_partitions=32),
        *(HostFault(at_ms=9_000 + random.randint(0, 25_000), host=host, trap=stop) for host in range(3)),
    ]


def _slow_timers(random: Random, minute: int, *, stall_ms: tuple[int, int]) -> list[Event]:
    sealed_at = minute * TIMING.minute_ms + SEAL_MS
    timers: list[Event] = []
    for number in range(6):
        stall = Trap(action="pause", call="write_pack", sent=False, duration_ms=random.randint(*stall_ms))
        due = (minute + 1) * TIMING.minute_ms + random.randint(5_000, 9_999)
        name = f"t{minute}-{number}"
        at = sealed_at - random.randint(40, 200)
        timers.append(ExtraRun(at_ms=at, operation="send", name=name, due_ms=due, traps=(stall,)))
    return timers


DIRECTED: dict[str, tuple[Callable[[Random], list[Event]], NetworkFaults]] = {
    scenario.__name__: (scenario, network)
    for scenario, network in (
        (held_at_takeover, NetworkFaults(slow=0.4)),
        (commits_slowly_and_dies, NetworkFaults()),
        (clock_runs_ahead, NetworkFaults()),
        (repeated_much_later, NetworkFaults()),
        (far_and_slow, NetworkFaults()),
        (audit_stalls, NetworkFaults()),
        (owner_stops_in_its_rearm, NetworkFaults()),
        (timers_at_the_seal, NetworkFaults()),
        (seal_is_not_heard, NetworkFaults()),
        (sealer_dies, NetworkFaults()),
        (cascader_dies, NetworkFaults()),
        (recalled_in_a_large_minute, NetworkFaults()),
        (changed_and_left_alone, NetworkFaults()),
        (lease_of_a_minority, NetworkFaults(unknown=0.3)),
        (stops_once_it_has_published, NetworkFaults()),
        (stops_for_about_the_grace, NetworkFaults()),
        (away_longer_than_rows_live, NetworkFaults(slow=0.1)),
        (audited_all_along, NetworkFaults(slow=0.1)),
        (split_while_busy, NetworkFaults(slow=0.1)),
        (clocks_are_wrong, NetworkFaults(slow=0.1)),
    )
}
#: How long nodes keep what was due, where a scenario is about that.
RETENTION_MS = {"away_longer_than_rows_live": 21_000}


def scenario_of(job: Job) -> Scenario:
    """The scenario of a seed, or of a directed one."""
    if isinstance(job, int):
        return generate(job)
    name, seed = job
    make, network = DIRECTED[name]
    events = sorted(make(Random(seed)), key=lambda event: event.at_ms)
    return Scenario(
        seed=seed,
        hosts=3,
        network=network,
        skews_ms=(0, 5_000 if make is clocks_are_wrong else 0, 0),
        events=tuple(events),
        retention_ms=RETENTION_MS.get(name),
        audits=make is audited_all_along,
        layout_notice_ms=22_500 if make is split_while_busy else None,
    )
