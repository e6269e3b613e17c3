"""What happened, as an observer of the whole world saw it: the only thing the checkers look at.

Nothing here is visible to the code under test. Times are true time, ms UTC, unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.event_loop import current_process
from tocsin.schema.entries import Entry, decode_pack, occurrence_key
from tocsin.schema.levels import Bucket
from tocsin.schema.schedules import Marker, ScheduleRow
from tocsin.schema.store import Lease, PackRow


class Delivery(NamedTuple):
    """A record handed to Kafka."""

    at_ms: float
    schedule_id: str
    scheduled_for: int
    request: str
    version: int
    due: int
    topic: str
    process: str
    #: It is in the log of its topic.
    arrived: bool
    #: The dispatcher was told so.
    acknowledged: bool
    #: The highest reading the store's clock had shown by then, as the median of its coordinators.
    store_clock_ms: float
    missed: int = 0
    kind: int = 0


class Acknowledged(NamedTuple):
    """A client's call that returned: a promise."""

    at_ms: float
    operation: str
    schedule_id: str
    version: int
    prevented: bool
    uncertain: tuple[str, ...]


class ExtraPromise(NamedTuple):
    """What a client was told of a timer, a recall, a trigger or a backfill."""

    at_ms: float
    what: str
    #: Occurrence keys.
    keys: tuple[str, ...]


class Applied(NamedTuple):
    """A version of a schedule that took effect."""

    at_ms: float
    row: ScheduleRow


@dataclass
class Pack:
    """A pack, from its first write on."""

    bucket: Bucket
    row: PackRow
    shard_range: int
    process: str
    begun_ms: float
    acknowledged_ms: float | None = None
    #: At least one node has it.
    stored: bool = False
    entries: list[Entry] = field(default_factory=list)


@dataclass
class Register:
    """A write of one register of a range: when it was sent, and when a majority had acknowledged it."""

    at_ms: float
    value: int
    process: str
    acknowledged_ms: float | None = None


class Disturbance(NamedTuple):
    """A span in which something was broken on purpose; `what` names a kind of fault, `whom` what it struck."""

    start_ms: float
    end_ms: float
    what: str
    whom: str = ""


@dataclass
class History:
    """Everything of one run."""

    now_ms: Callable[[], float]
    shard_range_of: Callable[[str], int]
    deliveries: list[Delivery] = field(default_factory=list)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    #: Of timers, triggers and backfills, which follow no rule.
    extra_deliveries: list[Delivery] = field(default_factory=list)
    extra_promises: list[ExtraPromise] = field(default_factory=list)
    applied: list[Applied] = field(default_factory=list)
    packs: dict[bytes, Pack] = field(default_factory=dict)
    #: (shard range, register name) → writes.
    registers: dict[tuple[int, str], list[Register]] = field(default_factory=dict)
    markers: list[tuple[int, int, Marker]] = field(default_factory=list)
    disturbances: list[Disturbance] = field(default_factory=list)
    leases: list[tuple[float, Lease]] = field(default_factory=list)
    #: Schedules of which an audit, or a call that found its result in place, may have armed a second entry.
    doubled: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    #: Whether nodes let packs go in this run.
    forgets: bool = False
    notes: list[tuple[float, str]] = field(default_factory=list)
    #: True time at which the last fault had ended, and at which the run ended; ms UTC.
    quiet_ms: float = 0
    end_ms: float = 0

    def note(self, text: str) -> None:
        """A line of the trace."""
        self.notes.append((self.now_ms(), text))

    def pack_begun(self, bucket: Bucket, row: PackRow) -> Pack:
        if row.pack_id in self.packs:
            return self.packs[row.pack_id]
        entries = decode_pack(row.body)
        process = str(current_process())
        shard_range = self.shard_range_of(entries[0].schedule_id)
        pack = Pack(bucket, row, shard_range, process, self.now_ms(), entries=entries)
        self.packs[row.pack_id] = pack
        for entry in entries:
            mark = ", to be verified" if entry.verify else ""
            self.note(f"{process} writes {entry.key} v{entry.version} to {bucket.level.value} {row.position}{mark}")
        return pack

    def pack_acknowledged(self, pack: Pack) -> None:
        if pack.acknowledged_ms is None:
            pack.acknowledged_ms = self.now_ms()

    def frontier_begun(self, shard_range: int, registers: Mapping[str, int]) -> list[Register]:
        writes = []
        for name, value in registers.items():
            register = Register(self.now_ms(), value, str(current_process()))
            self.registers.setdefault((shard_range, name), []).append(register)
            writes.append(register)
        return writes

    def frontier_acknowledged(self, writes: list[Register]) -> None:
        for write in writes:
            write.acknowledged_ms = self.now_ms()

    def marker_begun(self, position: int, shard_range: int, marker: Marker) -> None:
        mark = ", to be verified" if marker.verify else ""
        self.markers.append((position, shard_range, marker))
        self.note(
            f"{current_process()} marks {marker.schedule_id} below v{marker.version} from {marker.from_ms} "
            f"until {marker.until_ms} at {position}{mark}"
        )

    def schedule_applied(self, row: ScheduleRow) -> None:
        self.applied.append(Applied(self.now_ms(), row))
        self.note(
            f"{row.schedule_id} becomes v{row.version} {row.state.value}, since {row.since}, replaced {row.replaced}"
        )

    def committed_late(self, limit_ms: int) -> list[str]:
        """Schedules of versions that were committed so late that their write ahead was given up, and told to nobody.

        Their client stood still between its look at the clock and its commit: the one case that is left to the audit.
        """
        promised = {(promise.schedule_id, promise.version) for promise in self.acknowledged}
        late = (row for at_ms, row in self.applied if at_ms - row.updated_at > limit_ms)
        return [row.schedule_id for row in late if (row.schedule_id, row.version) not in promised]

    def delivered(self, delivery: Delivery) -> None:
        (self.extra_deliveries if delivery.kind else self.deliveries).append(delivery)
        word = "dispatches" if delivery.arrived and delivery.acknowledged else "tries to dispatch"
        key = occurrence_key(delivery.schedule_id, delivery.scheduled_for, delivery.request)
        arrived = "" if delivery.acknowledged else ", reported failed" + (" but taken" if delivery.arrived else "")
        self.note(f"{delivery.process} {word} {key} v{delivery.version}, due {delivery.due}{arrived}")

    def promised(self, promise: Acknowledged) -> None:
        version = promise.schedule_id, promise.version
        if any((each.schedule_id, each.version) == version for each in self.acknowledged):
            self.doubled.add(promise.schedule_id)
        self.acknowledged.append(promise)
        word = " (prevented)" if promise.prevented else ""
        self.note(f"{current_process()} has {promise.operation} of {promise.schedule_id} v{promise.version}{word}")

    def lease_applied(self, lease: Lease) -> None:
        self.leases.append((self.now_ms(), lease))
        self.note(f"range {lease.shard_range} belongs to {lease.owner}, epoch {lease.epoch}")

    def committed_by(self, shard_range: int, at_ms: float) -> int | None:
        """The highest committed that a majority had acknowledged by then."""
        writes = self.registers.get((shard_range, "committed"), ())
        known = (
            write.value for write in writes if write.acknowledged_ms is not None and write.acknowledged_ms <= at_ms
        )
        return max(known, default=None)

    def sealed_before(self, pack: Pack, end: int) -> bool:
        """Whether a seal that reaches `end` was sent before the pack was acknowledged: its writer may demote it."""
        level = pack.bucket.level
        name = "sealed_" + level.value
        limit = pack.acknowledged_ms or 0
        writes = self.registers.get((pack.shard_range, name), ())
        return any(write.value >= end for write in writes if write.at_ms <= limit)

    def disturbed(self, what: str, start_ms: float, end_ms: float, whom: str | None = None) -> bool:
        """Whether a fault of that kind overlaps the span."""
        return any(
            each.what == what and each.start_ms <= end_ms and start_ms <= each.end_ms and whom in {None, each.whom}
            for each in self.disturbances
        )
