"""Scenarios from seeds. Swarm: whole kinds of faults are switched off per run, so that each also meets a calm."""

from __future__ import annotations

from random import Random

import msgspec

from simulation import extra_runs
from simulation.network import NetworkFaults
from simulation.scenario import (
    ACT_MS,
    FAULTS_MS,
    QUIET_MS,
    TIMING,
    Audit,
    BrokerAway,
    Call,
    Event,
    Herd,
    HostClockStep,
    HostFault,
    Leave,
    Operation,
    Outage,
    ReplicaDown,
    Scenario,
    StoreClockStep,
    TopicFailing,
    Wanted,
)
from simulation.traps import Trap
from tocsin.schema.schedules import CatchUp

TOPICS = ("even", "odd", "rare")
#: The calls of a dispatcher at which traps are laid; empty: any.
DISPATCHER_CALLS = (
    "",
    "write_pack",
    "write_pack",
    "publish",
    "read_frontier",
    "write_frontier",
    "read_packs",
    "read_schedules",
)
CLIENT_CALLS = ("", "", "commit", "write_pack", "write_marker", "read_frontier")


def generate(seed: int) -> Scenario:
    """The scenario of a seed: every fourth is a storm."""
    random = Random(seed)
    return _storm(random, seed) if seed % 4 == 3 else _mixture(random, seed)


def _mixture(random: Random, seed: int) -> Scenario:
    """A bit of everything, of which whole kinds are left out."""
    hosts = random.choice((2, 3))
    events: list[Event] = []
    for kind in (_replicas, _broker, _topics, _outage, _clocks, _hosts, _leaves):
        if random.random() < 0.4:
            events += kind(random, hosts)
    hot = random.random() < 0.5
    for number in range(random.choice((2, 3, 4, 5))):
        events += _life(random, f"s{number}", hot=hot)
    if random.random() < 0.4:
        events.append(_herd(random))
    if random.random() < 0.6:
        events += _edges(random)
    if seed % 3 == 0:
        events += extra_runs.generate(Random(seed))
    noisy = random.random() < 0.75
    network = NetworkFaults(
        lost=random.choice((0, 0.01, 0.03, 0.06)) if noisy else 0,
        slow=random.choice((0.005, 0.02, 0.06)) if noisy else 0,
        doubled=random.choice((0, 0.02)) if noisy else 0,
        unknown=random.choice((0, 0.03, 0.15, 0.3)) if noisy else 0,
        unavailable=random.choice((0, 0, 0.01)) if noisy else 0,
    )
    skewed = random.random() < 0.6
    skews = [random.randint(-300, 300) if skewed else 0 for _ in range(3)]
    return Scenario(
        seed=seed,
        hosts=hosts,
        network=network,
        skews_ms=(skews[0], skews[1], skews[2]),
        broker_slow=random.choice((0, 0.02, 0.1)) if noisy else 0,
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
    )


def _storm(random: Random, seed: int) -> Scenario:
    """A bad network, and hosts that die or stand still all the time, while very much is due soon."""
    events: list[Event] = []
    for _ in range(10):
        at = random.randint(6_000, FAULTS_MS - 20_000)
        trap = Trap(
            action=random.choice(("pause", "pause", "kill")),
            call=random.choice(
                ("write_frontier", "write_frontier", "write_pack", "read_packs", "publish", "read_frontier")
            ),
            spared=random.randint(0, 3),
            from_ms=at,
            sent=random.random() < 0.7,
            duration_ms=random.randint(300, 9_000),
        )
        events.append(HostFault(at_ms=at, host=random.randrange(3), trap=trap))
    for number in range(3):
        events += _life(random, f"s{number}", hot=True)
    for number in range(4):
        wanted = Wanted(period_ms=1_000, anchor_ms=random.randint(0, 999), topic=random.choice(TOPICS))
        events.append(
            Call(at_ms=random.randint(2_000, 20_000), operation="create", schedule_id=f"e{number}", wanted=wanted)
        )
    for number in range(14):
        at = random.randint(2_500, ACT_MS)
        wanted = Wanted(once_ms=at + random.randint(150, 9_000), topic=random.choice(TOPICS))
        skew = random.randint(-300, 300)
        events.append(Call(at_ms=at, operation="create", schedule_id=f"o{number}", wanted=wanted, skew_ms=skew))
    events += _edges(random)
    return Scenario(
        seed=seed,
        hosts=3,
        network=NetworkFaults(
            lost=random.choice((0.03, 0.08, 0.12)),
            slow=random.choice((0.06, 0.15, 0.25)),
            doubled=0.02,
            unknown=random.choice((0.1, 0.4)),
        ),
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
    )


def _edges(random: Random) -> list[Event]:
    """Writers that choose a bucket just before its owner seals it: re-arms each minute, and creates by slow clients."""
    events: list[Event] = []
    seal_ms = TIMING.minute_ms - TIMING.lead_ms
    for number in range(3):
        anchor = seal_ms - random.randint(-50, 400)
        wanted = Wanted(
            period_ms=random.choice((1, 2)) * TIMING.minute_ms, anchor_ms=anchor, topic=random.choice(TOPICS)
        )
        at = random.randint(2_000, 12_000)
        events.append(Call(at_ms=at, operation="create", schedule_id=f"r{number}", wanted=wanted))
    for number in range(5):
        at = random.randint(1, 5) * TIMING.minute_ms + seal_ms - random.randint(5, 120)
        due = at // TIMING.minute_ms * TIMING.minute_ms + TIMING.minute_ms + random.randint(0, TIMING.minute_ms - 1)
        events.append(_slow_once(random, f"m{number}", at, due))
    for number in range(2):
        at = TIMING.day_ms - random.randint(5, 120)
        events.append(_slow_once(random, f"f{number}", at, 2 * TIMING.day_ms + random.randint(0, 40_000)))
    return events


def _slow_once(random: Random, schedule_id: str, at: int, due: int) -> Call:
    """A create of one instant by a client that may stand still after one of its first writes."""
    trap = Trap(action="pause", call="write_pack", spared=random.randint(0, 1), duration_ms=random.randint(100, 4_000))
    traps = (trap,) if random.random() < 0.6 else ()
    wanted = Wanted(once_ms=due, topic=random.choice(TOPICS))
    return Call(at_ms=at, operation="create", schedule_id=schedule_id, wanted=wanted, traps=traps)


def _span(random: Random, *, longest_ms: int, first_ms: int = 5_000) -> tuple[int, int]:
    start = random.randint(first_ms, FAULTS_MS - 10_000)
    return start, min(random.randint(500, longest_ms), FAULTS_MS - start)


def _replicas(random: Random, _: int) -> list[Event]:
    start, duration = _span(random, longest_ms=15_000)
    return [ReplicaDown(at_ms=start, duration_ms=duration, replica=random.randrange(3))]


def _broker(random: Random, _: int) -> list[Event]:
    start, duration = _span(random, longest_ms=20_000)
    return [BrokerAway(at_ms=start, duration_ms=duration)]


def _topics(random: Random, _: int) -> list[Event]:
    start, duration = _span(random, longest_ms=40_000)
    return [TopicFailing(at_ms=start, duration_ms=duration, topic=random.choice(TOPICS))]


def _outage(random: Random, _: int) -> list[Event]:
    start = random.randint(10_000, FAULTS_MS - 30_000)
    return [Outage(at_ms=start, duration_ms=min(random.randint(4_000, 45_000), FAULTS_MS - start))]


def _leaves(random: Random, hosts: int) -> list[Event]:
    leaves: list[Event] = []
    for _ in range(random.choice((1, 2, 4))):
        start, duration = _span(random, longest_ms=20_000)
        leaves.append(Leave(at_ms=start, host=random.randrange(hosts), duration_ms=duration))
    return leaves


def _clocks(random: Random, hosts: int) -> list[Event]:
    start, duration = _span(random, longest_ms=40_000)
    if random.random() < 0.4:
        step = random.choice((-60_000, -700, 700, 30_000))
        return [HostClockStep(at_ms=start, duration_ms=duration, host=random.randrange(hosts), step_ms=step)]
    step = random.choice((-8_000, -1_500, -600, 600, 1_500, 6_000, 25_000))
    # After a step back sealed heals in twice its length, and has to be done with it when all is to be quiet.
    start = min(start, QUIET_MS - 10_000 - 2 * abs(step) - duration)
    return [StoreClockStep(at_ms=max(start, 5_000), duration_ms=duration, step_ms=step, hosts=random.random() < 0.7)]


def _hosts(random: Random, hosts: int) -> list[Event]:
    faults: list[Event] = []
    for _ in range(random.choice((1, 2, 3, 4, 6))):
        at = random.randint(8_000, FAULTS_MS - 5_000)
        duration = random.choice(
            (random.randint(50, 2_000), random.randint(2_600, 12_000), random.randint(10_000, 25_000))
        )
        trap = Trap(
            action=random.choice(("pause", "pause", "pause", "kill")),
            call=random.choice(DISPATCHER_CALLS),
            spared=random.randint(0, 12),
            from_ms=at,
            sent=random.random() < 0.5,
            duration_ms=min(duration, FAULTS_MS - at),
        )
        faults.append(HostFault(at_ms=at, host=random.randrange(hosts), trap=trap))
    return faults


def _wanted(random: Random, now_ms: int) -> Wanted:
    kind = random.random()
    anchor = random.randint(0, 12_000)
    policy = random.choice((CatchUp.ALL, CatchUp.ALL, CatchUp.ALL, CatchUp.LATEST, CatchUp.EARLIEST, CatchUp.SKIP))
    topic = random.choice(TOPICS)
    for limit, period, jitters in (
        (0.2, 1_000, (0, 0, 300)),
        (0.35, 7_000, (0, 0, 1_500, 6_000)),
        (0.5, 13_000, (0, 0, 12_000)),
        (0.6, 29_000, (0, 25_000)),
        (0.7, 60_000, (0, 10_000)),
    ):
        if kind < limit:
            return Wanted(
                period_ms=period, anchor_ms=anchor, jitter_ms=random.choice(jitters), catch_up=policy, topic=topic
            )
    if kind < 0.75:
        return Wanted(cron="* * * * *", catch_up=policy, topic=topic)
    distance = random.choice((-4_000, -500, 100, 700, 3_000, 8_000, 25_000, 70_000, 100_000, 400_000))
    return Wanted(once_ms=max(1, now_ms + distance + random.randint(0, 2_000)), topic=topic)


def _life(random: Random, schedule_id: str, *, hot: bool) -> list[Event]:
    """A schedule's creation and what is done to it afterwards."""
    at = random.randint(2_000, 35_000)
    wanted = _wanted(random, at)
    events: list[Event] = [_call(random, at, "create", schedule_id, wanted, hot=hot)]
    for number in range(random.choice((0, 1, 1, 2, 3, 5)) + 2 * hot):
        at += random.choice((random.randint(0, 300), random.randint(0, 5_000), random.randint(0, 20_000)))
        if at > ACT_MS:
            break
        operation: Operation = random.choice(
            ("update", "update", "update", "pause", "pause", "resume", "resume", "cancel")
        )
        change = None
        if operation == "update":
            change = (
                msgspec.structs.replace(wanted, payload=f"edit {number}")
                if random.random() < 0.3
                else _wanted(random, at)
            )
            wanted = change
        events.append(_call(random, at, operation, schedule_id, change, hot=hot))
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        trap = Trap(
            action="pause", call="write_pack", sent=random.random() < 0.5, duration_ms=random.randint(100, 20_000)
        )
        stalled = (trap,) if random.random() < 0.5 else ()
        events.append(Audit(at_ms=random.randint(20_000, FAULTS_MS), schedule_id=schedule_id, traps=stalled))
    return events


def _call(random: Random, at: int, operation: Operation, schedule_id: str, wanted: Wanted | None, *, hot: bool) -> Call:
    traps: list[Trap] = []
    repeat = None
    luck = random.random() / (2.5 if hot else 1)
    if luck < 0.2:
        calls = random.choice(CLIENT_CALLS)
        spared = random.randint(0, 8 if not calls else 2)
        traps.append(Trap(action="kill", call=calls, spared=spared, sent=random.random() < 0.6))
        if random.random() < 0.5:
            repeat = random.choice((random.randint(10, 500), random.randint(0, 15_000), random.randint(5_000, 40_000)))
    elif luck < 0.32:
        calls = random.choice(CLIENT_CALLS)
        spared = random.randint(0, 8 if not calls else 2)
        duration = random.choice((random.randint(100, 3_000), random.randint(2_000, 20_000)))
        traps.append(Trap(action="pause", call=calls, spared=spared, sent=random.random() < 0.5, duration_ms=duration))
        if random.random() < 0.3:
            traps.append(Trap(action="kill", spared=random.randint(0, 6), sent=random.random() < 0.6))
    return Call(
        at_ms=at,
        operation=operation,
        schedule_id=schedule_id,
        wanted=wanted,
        skew_ms=random.randint(-300, 300),
        traps=tuple(traps),
        repeat_after_ms=repeat,
    )


def _herd(random: Random) -> Herd:
    at = random.randint(2_000, 40_000)
    count = random.randint(8, 30)
    anchor = at // 10_000 * 10_000 + random.choice((10_000, 20_000))
    period = random.choice((10_000, 20_000, 60_000))
    wanted = Wanted(
        period_ms=period, anchor_ms=anchor, topic=random.choice(TOPICS), catch_up=random.choice(tuple(CatchUp))
    )
    return Herd(at_ms=at, name="h", count=count, wanted=wanted)
