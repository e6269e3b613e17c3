"""What consumers may rely on: nothing lost, nothing early, nothing after it was prevented, repeats only with a reason.

Each checker is a pure function of a history; an empty answer means that it found nothing. Tolerances are stated where
they are used, with what they allow for.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from simulation.history import Delivery, History
from simulation.scenario import TIMING
from simulation.versions import Lives, Version, is_active
from tocsin.schema.entries import occurrence_key
from tocsin.schema.schedules import CatchUp, State

#: A dispatch under way when a change is acknowledged ends within this.
IN_FLIGHT_MS = 4_000
#: What is due this long before a pause or cancel may still wait somewhere when it is dropped.
PENDING_MS = 30_000
#: Lateness once every fault is over: a tick, a dispatch, and the skew between the store's nodes.
LATE_MS = 1_500


class Violation(NamedTuple):
    """A promise that was not kept."""

    checker: str
    schedule_id: str
    text: str
    #: Where in the trace to look, true time.
    at_ms: float


def never_early(history: History) -> Iterator[Violation]:
    """Nothing is handed to Kafka before the store's clock has shown its due."""
    for delivery in (*history.deliveries, *history.extra_deliveries):
        if delivery.store_clock_ms < delivery.due:
            ahead = delivery.due - delivery.store_clock_ms
            yield Violation(
                "never early", delivery.schedule_id, f"{_name(delivery)} is {ahead:.3f} ms early", delivery.at_ms
            )


def only_what_took_effect(history: History) -> Iterator[Violation]:
    """No occurrence of a version that was never committed, none before its commit, none that it does not own."""
    lives = Lives(history)
    for delivery in history.deliveries:
        version = lives.version(delivery.schedule_id, delivery.version)
        if version is None or version.applied_ms > delivery.at_ms:
            yield Violation(
                "never committed", delivery.schedule_id, f"{_name(delivery)} of no version in effect", delivery.at_ms
            )
        elif delivery.scheduled_for != version.spec.first_from(delivery.scheduled_for):
            yield Violation(
                "not nominal", delivery.schedule_id, f"{_name(delivery)} is no nominal time of it", delivery.at_ms
            )
        elif delivery.due != version.due_of(delivery.scheduled_for):
            yield Violation(
                "wrong due", delivery.schedule_id, f"{_name(delivery)} has due {delivery.due}", delivery.at_ms
            )


def nothing_lost(history: History) -> Iterator[Violation]:
    """Every owed occurrence arrived, or its schedule's catch-up policy says that it does not count."""
    lives = Lives(history)
    for schedule_id, versions in lives.versions.items():
        arrived = lives.arrived(schedule_id)
        keys = {delivery.scheduled_for for delivery in arrived}
        for version in versions:
            if not is_active(version) or _replaced_before_a_promise(version):
                continue
            excused = _excused(history, version, [d for d in arrived if d.version == version.row.version])
            missing = [
                nominal
                for nominal in version.nominal_times(int(history.end_ms))
                if nominal not in keys and nominal not in excused and _owed(history, version, nominal)
            ]
            if missing:
                kind = "lost" if version.promise else "half-made change not healed"
                first = occurrence_key(schedule_id, missing[0])
                text = (
                    f"v{version.row.version}: {len(missing)} missing, the first {first}; {version.spec.catch_up.value}"
                )
                yield Violation(kind, schedule_id, text, version.due_of(missing[0]))


def _replaced_before_a_promise(version: Version) -> bool:
    """Nobody was told of it before the next version was on its way."""
    following = version.next
    if following is None:
        return False
    return version.promise is None or version.promise.at_ms > following.row.updated_at


def _owed(history: History, version: Version, nominal: int) -> bool:
    due = version.due_of(nominal)
    if due > history.end_ms - IN_FLIGHT_MS or due < _begins_ms(history, version):
        return False
    for later in version.later:
        if later.row.state is not State.ACTIVE or _drops_all(later.row.replaced):
            return due < later.at_ms - PENDING_MS and not history.disturbances
    return True


def _begins_ms(history: History, version: Version) -> float:
    """From when on its occurrences are owed: all of them, but for a version that was committed too late.

    Its client stood still between its last look at the clock and its commit, for longer than a write ahead is asked
    about. Such a version begins with whoever armed it then, its client or the audit, by the clock the store showed;
    what recurs no more has passed.
    """
    if version.applied_ms - version.row.updated_at <= TIMING.commit_limit_ms:
        return 0
    if version.once:
        return math.inf
    armed_ms = version.promise.at_ms if version.promise else history.quiet_ms
    steps = (each for each in history.disturbances if each.what == "store" and each.start_ms <= armed_ms <= each.end_ms)
    return max([armed_ms, *(step.end_ms for step in steps)])


def _drops_all(replaced: tuple[tuple[int, int], ...]) -> bool:
    return bool(replaced) and replaced[0][1] == 0


def _excused(history: History, version: Version, arrived: list[Delivery]) -> set[int]:
    """Nominal times that the policy leaves out, each vouched for by a dispatch of the same chain."""
    policy = version.spec.catch_up
    if policy is CatchUp.ALL or version.once:
        return set()
    owned = list(version.nominal_times(int(history.end_ms)))
    if policy is CatchUp.SKIP:
        return {nominal for nominal in owned if _could_be_missed(history, version.due_of(nominal))}
    index = {nominal: number for number, nominal in enumerate(owned)}
    excused: set[int] = set()
    for delivery in arrived:
        place = index.get(delivery.scheduled_for)
        if place is None:
            continue
        if policy is CatchUp.LATEST:
            # A chain that meets the entry of an audit or a repeated call ends there, and its count with it.
            counted = place if version.row.schedule_id in history.doubled else delivery.missed
            skipped = owned[max(0, place - counted) : place]
            if skipped and _was_missed(version, skipped[0], delivery):
                excused.update(skipped)
        elif delivery.store_clock_ms - delivery.due > TIMING.misfire_grace_ms:
            excused.update(_until(version, owned[place + 1 :], delivery.store_clock_ms + IN_FLIGHT_MS))
    return excused


def _was_missed(version: Version, nominal: int, delivery: Delivery) -> bool:
    return delivery.store_clock_ms - version.due_of(nominal) > TIMING.misfire_grace_ms


def _until(version: Version, nominals: list[int], instant: float) -> Iterator[int]:
    for nominal in nominals:
        if version.due_of(nominal) > instant:
            return
        yield nominal


def _could_be_missed(history: History, due: int) -> bool:
    """Something was broken around the due, or long enough before it for a chain to be still catching up."""
    return any(
        each.start_ms - TIMING.misfire_grace_ms <= due <= each.end_ms + PENDING_MS
        for each in history.disturbances
        if each.what != "network"
    )


def prevented_is_prevented(history: History) -> Iterator[Violation]:
    """After a change that answered `prevented`, nothing of an earlier version is dispatched that it covers."""
    lives = Lives(history)
    for promise in history.acknowledged:
        if promise.operation in {"create", "resume"}:
            continue
        version = lives.version(promise.schedule_id, promise.version)
        if version is None or not version.row.replaced:
            continue
        keeps_before = version.row.replaced[0][1]
        position = max((at for at, _, m in history.markers if _confirms(m, promise)), default=None)
        for delivery in lives.deliveries[promise.schedule_id]:
            if delivery.version >= promise.version or delivery.scheduled_for < keeps_before:
                continue
            if delivery.at_ms <= promise.at_ms:
                continue
            if promise.prevented and position is not None and delivery.due >= position:
                yield Violation(
                    "dispatched after prevented", promise.schedule_id, f"{_name(delivery)}: {promise}", delivery.at_ms
                )
            elif delivery.at_ms > promise.at_ms + IN_FLIGHT_MS and not _held_up(history, promise.at_ms, delivery.at_ms):
                yield Violation(
                    "old version long after the answer",
                    promise.schedule_id,
                    f"{_name(delivery)}: {promise}",
                    delivery.at_ms,
                )


def _confirms(marker: object, promise: object) -> bool:
    return (
        marker.schedule_id == promise.schedule_id  # type: ignore[attr-defined]
        and marker.version == promise.version  # type: ignore[attr-defined]
        and not marker.verify  # type: ignore[attr-defined]
    )


def _held_up(history: History, start_ms: float, end_ms: float) -> bool:
    """A dispatcher stood still, Kafka did not answer, or seals and markers lie ahead of time since a clock step."""
    return any(history.disturbed(what, start_ms - IN_FLIGHT_MS, end_ms) for what in ("pause", "broker", "store"))


def ended_stays_ended(history: History) -> Iterator[Violation]:
    """Once all is quiet, only the current version of an active schedule is dispatched, and what an update left it."""
    lives = Lives(history)
    for delivery in history.deliveries:
        if delivery.at_ms <= history.quiet_ms:
            continue
        current = lives.versions[delivery.schedule_id][-1] if delivery.schedule_id in lives.versions else None
        if current is None:
            continue
        if is_active(current) and delivery.version == current.row.version:
            continue
        end = current.row.end_of(delivery.version)
        if not (is_active(current) and end is not None and delivery.scheduled_for < end):
            now = f"v{current.row.version} {current.row.state.value}"
            text = f"{_name(delivery)} at {delivery.at_ms:.0f}, current is {now}"
            yield Violation("ended chain goes on", delivery.schedule_id, text, delivery.at_ms)


def on_time_when_quiet(history: History) -> Iterator[Violation]:
    """Once all is quiet, everything is dispatched at its due."""
    for delivery in history.deliveries:
        if delivery.due > history.quiet_ms and delivery.at_ms - delivery.due > LATE_MS:
            late = delivery.at_ms - delivery.due
            yield Violation(
                "late in quiet", delivery.schedule_id, f"{_name(delivery)} is {late:.0f} ms late", delivery.due
            )


def repeats_have_a_reason(history: History) -> Iterator[Violation]:
    """An occurrence is dispatched twice only where a fault explains it, and not far behind what was committed."""
    groups: defaultdict[tuple[str, int, int], list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        groups[delivery.schedule_id, delivery.scheduled_for, delivery.version].append(delivery)
    for group in groups.values():
        for first, second in itertools.pairwise(group):
            reason = _unexplained(history, first, second)
            if reason:
                text = (
                    f"{_name(first)} at {first.at_ms:.0f} by {first.process}, at {second.at_ms:.0f} by {second.process}"
                )
                yield Violation(f"repeated: {reason}", first.schedule_id, text, second.at_ms)


def _unexplained(history: History, first: Delivery, second: Delivery) -> str | None:
    if not first.acknowledged:
        return None
    if first.due > history.quiet_ms:
        return "in quiet"
    if first.process == second.process and second.at_ms - first.at_ms < TIMING.memory_ms - IN_FLIGHT_MS:
        return "by one process"
    if not history.disturbances:
        return "without any fault"
    if first.schedule_id in history.doubled:
        # Of two chains, the later one repeats what the other one was ahead with, to whoever owns the range then.
        return None
    taken = _taken_over_at(history, second)
    stepped = history.disturbed("store", 0, second.at_ms)
    if first.process != second.process and taken is not None and not stepped:
        committed = history.committed_by(history.shard_range_of(first.schedule_id), taken)
        if committed is not None and committed > first.due + 2 * TIMING.misfire_grace_ms and not _was_late(first):
            return "far behind what was committed"
    return None


def _was_late(delivery: Delivery) -> bool:
    return delivery.at_ms - delivery.due > TIMING.misfire_grace_ms


def _taken_over_at(history: History, delivery: Delivery) -> float | None:
    """When the process that dispatched it last acquired the range."""
    shard_range = history.shard_range_of(delivery.schedule_id)
    times = [
        at
        for at, lease in history.leases
        if lease.shard_range == shard_range and lease.owner == delivery.process and at <= delivery.at_ms
    ]
    return max(times, default=None)


def _name(delivery: Delivery) -> str:
    key = occurrence_key(delivery.schedule_id, delivery.scheduled_for, delivery.request)
    return f"{key} v{delivery.version}"
