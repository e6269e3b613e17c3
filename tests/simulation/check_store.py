"""What the store must hold: one occurrence armed per active schedule, no old chain, a committed that is true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from simulation.check_dispatch import IN_FLIGHT_MS, Violation
from simulation.history import Delivery, History, Pack
from simulation.versions import Lives, Version, is_active
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.levels import Level, Levels
from tocsin.schema.schedules import State


def one_armed_each(history: History) -> Iterator[Violation]:
    """At rest each active schedule has exactly one occurrence waiting, of its current version, and it is the next."""
    waiting = _waiting(history)
    lives = Lives(history)
    for version in lives.current():
        if not is_active(version) or version.once:
            continue
        row = version.row
        last = max((d.scheduled_for for d in lives.arrived(row.schedule_id)), default=row.since - 1)
        armed = {
            e.scheduled_for for e, _ in waiting[row.schedule_id] if e.version == row.version and e.scheduled_for > last
        }
        if len(armed) == 1 or (not armed and _just_dispatched(history, lives.arrived(row.schedule_id))):
            continue
        if armed or version.spec.next_after(max(last, int(history.end_ms) - IN_FLIGHT_MS)) is not None:
            word = "several armed" if armed else "none armed"
            yield Violation(
                word, row.schedule_id, f"v{row.version}, last {last}: {sorted(armed)}", max(last, row.since)
            )


def _just_dispatched(history: History, arrived: object) -> bool:
    return any(d.at_ms > history.end_ms - IN_FLIGHT_MS for d in arrived)  # type: ignore[attr-defined]


def no_chain_of_an_old_version(history: History) -> Iterator[Violation]:
    """At rest nothing waits that would be dispatched without being asked about, and that no marker ends."""
    waiting = _waiting(history)
    for version in Lives(history).current():
        row = version.row
        known = {row.version, *(replaced for replaced, _ in row.replaced)}
        markers = [m for _, _, m in history.markers if m.schedule_id == row.schedule_id and m.version in known]
        for entry, pack in waiting[row.schedule_id]:
            if entry.verify or pack.bucket.level is Level.FAR or (is_active(version) and entry.version == row.version):
                continue
            ended = any(m.ends(entry.version, entry.scheduled_for) and m.until_ms >= entry.due for m in markers)
            if not ended:
                yield Violation(
                    "old chain armed",
                    row.schedule_id,
                    f"{entry.key} v{entry.version}, now v{row.version}",
                    pack.begun_ms,
                )


def _waiting(history: History) -> defaultdict[str, list[tuple[Entry, Pack]]]:
    """Entries of schedules that are due after the end of the run, where at least one node has them."""
    found: defaultdict[str, list[tuple[Entry, Pack]]] = defaultdict(list)
    for pack in history.packs.values():
        if pack.acknowledged_ms is None and not pack.stored:
            continue
        for entry in pack.entries:
            if entry.kind == Kind.ARM and entry.due > history.end_ms - IN_FLIGHT_MS:
                found[entry.schedule_id].append((entry, pack))
    return found


def what_a_rearm_tells_went_out(history: History) -> Iterator[Violation]:
    """What a re-armed entry calls dispatched, the occurrence before it and the run that one ended, was acknowledged."""
    out: dict[tuple[str, int, int], float] = {}
    for each in history.deliveries:
        if each.acknowledged:
            out.setdefault((each.schedule_id, each.version, each.scheduled_for), each.at_ms)
    lives = Lives(history)
    for pack in history.packs.values():
        for entry in pack.entries:
            version = lives.version(entry.schedule_id, entry.version)
            if entry.kind != Kind.ARM or not entry.previous or version is None:
                continue
            told = {entry.previous} if not entry.skipped else set()
            if entry.chosen:
                told |= set(version.spec.nominal_times(entry.chosen, entry.previous))
            for scheduled_for in sorted(told):
                if out.get((entry.schedule_id, entry.version, scheduled_for), pack.begun_ms + 1) > pack.begun_ms:
                    text = f"{entry.key} tells that {scheduled_for} was dispatched"
                    yield Violation("untrue re-arm", entry.schedule_id, text, pack.begun_ms)


def committed_tells_the_truth(history: History, levels: Levels) -> Iterator[Violation]:
    """Nobody writes a committed beyond an entry whose writer relies on it and which is not settled."""
    lives = Lives(history)
    copies: defaultdict[tuple[str, int], list[tuple[Entry, Pack]]] = defaultdict(list)
    chains: defaultdict[str, list[tuple[Entry, Pack]]] = defaultdict(list)
    for pack in history.packs.values():
        for entry in pack.entries:
            copies[entry.schedule_id, entry.scheduled_for].append((entry, pack))
            if history.forgets and entry.kind == Kind.ARM:
                chains[entry.schedule_id].append((entry, pack))
    for pack in history.packs.values():
        passed = _passed_at(history, pack, levels)
        if passed is None:
            continue
        for entry in pack.entries:
            if entry.kind != Kind.ARM:
                continue
            position = entry.due if pack.bucket.level is Level.MINUTE else pack.row.position
            # An audit of what is owed begins a little earlier: the chain that waits there leads to this one.
            if any(
                earlier.version == entry.version
                and earlier.scheduled_for < entry.scheduled_for
                and _further_on(earlier, place, position, passed)
                for earlier, place in chains[entry.schedule_id]
            ):
                continue
            if not _settled(history, lives, entry, position, passed, copies[entry.schedule_id, entry.scheduled_for]):
                mark = " to be verified" if entry.verify else ""
                place = f"{pack.bucket.level.value} {position}"
                text = f"{entry.key} v{entry.version}{mark} at {place}, committed at {passed:.0f}"
                yield Violation("committed passes an entry", entry.schedule_id, text, passed)


def _passed_at(history: History, pack: Pack, levels: Levels) -> float | None:
    """When committed was first written past a pack whose writer relies on it; None: never, or nobody relies on it."""
    if pack.bucket.level is Level.FAR or pack.acknowledged_ms is None:
        return None
    end = levels.end(pack.bucket.level, pack.row.position)
    if history.sealed_before(pack, end):
        return None
    last = max(entry.due for entry in pack.entries) if pack.bucket.level is Level.MINUTE else pack.row.position
    writes = history.registers.get((pack.shard_range, "committed"), ())
    return next((write.at_ms for write in writes if write.value >= last and write.at_ms > pack.acknowledged_ms), None)


def _settled(
    history: History, lives: Lives, entry: Entry, position: int, at_ms: float, copies: list[tuple[Entry, Pack]]
) -> bool:
    """Whether an entry may be passed: dispatched, passed over, ended, or waiting further on."""
    if any(_further_on(copy, pack, position, at_ms) for copy, pack in copies if copy.version >= entry.version):
        return True
    version = lives.version(entry.schedule_id, entry.version)
    if version is None or not _in_force(version, entry, at_ms):
        return True
    arrived = [d for d in lives.arrived(entry.schedule_id) if d.at_ms <= at_ms]
    doubled = entry.schedule_id in history.doubled
    if any(_covers(delivery, version, entry, doubled=doubled) for delivery in arrived):
        return True
    return version.spec.catch_up.value == "skip" and _later_waits(history, entry, at_ms)


def _further_on(copy: Entry, pack: Pack, position: int, at_ms: float) -> bool:
    return pack.acknowledged_ms is not None and pack.acknowledged_ms <= at_ms and pack.row.position > position


def _in_force(version: Version, entry: Entry, at_ms: float) -> bool:
    """Whether the entry counted then: active, and not beyond what a later version left it."""
    if not is_active(version) or version.applied_ms > at_ms:
        return False
    for later in version.later:
        end = later.row.end_of(entry.version)
        if later.at_ms <= at_ms and (later.row.state is not State.ACTIVE or end is None or entry.scheduled_for >= end):
            return False
    return True


def _covers(delivery: Delivery, version: Version, entry: Entry, *, doubled: bool) -> bool:
    """Whether this dispatch is of the entry, or of a chain that passed it over.

    A chain that meets the entry of an audit or a repeated call ends there, and its count of missed ones with it.
    """
    if delivery.scheduled_for == entry.scheduled_for:
        return True
    policy = version.spec.catch_up.value
    if policy == "latest":
        return delivery.scheduled_for > entry.scheduled_for and (delivery.missed > 0 or doubled)
    return policy == "earliest" and delivery.scheduled_for < entry.scheduled_for < delivery.at_ms


def _later_waits(history: History, entry: Entry, at_ms: float) -> bool:
    return any(
        other.schedule_id == entry.schedule_id and other.scheduled_for > entry.scheduled_for
        for pack in history.packs.values()
        if pack.begun_ms <= at_ms
        for other in pack.entries
    )
