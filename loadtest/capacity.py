"""How large it must be: from schedules, occurrences and a peak to operations, disks, nodes and processes.

Every figure is one line of arithmetic, and its formula is printed beside it. What it is reckoned from:

    demand   what is wanted: schedules, occurrences a day, the peak, payloads, replicas, retention
    costs    what was measured: rates and bytes, each with where it comes from; a load test of one's own measures better
    layout   how Tocsin stores it: what this release writes for one occurrence, and how long it stays

An occurrence costs one entry on the minute level when it is armed, and one more on far, a pointer, where it is armed
more than a day ahead. Entries share packs: the more fall due in one minute, the fuller. Nothing is deleted; a row
leaves when its time to live ends, so disk follows the writes of that time and not the number of schedules.

An operation is a read or write of one partition, whether a statement asks for one or for many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from tocsin.dispatcher.load import WAITING_BYTES_MAX
from tocsin.dispatcher.waiting import ITEM_BYTES
from tocsin.schema.entries import PACK_ENTRIES_MAX
from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import DAY_MS, SECOND_MS
from tocsin.schema.levels import Level
from tocsin.schema.lifetimes import Lifetimes
from tocsin.schema.timing import Timing

SECONDS_A_DAY: Final = DAY_MS // SECOND_MS
GIB: Final = 1 << 30
#: Two inserts, each a pack and a frontier, and a conditional write of four rounds.
OPERATIONS_OF_A_CHANGE: Final = 8


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted.

    Raises:
        SettingsError: a figure is no size.
    """

    schedules: int = 200_000_000
    per_day: int = 30_000_000
    #: The peak minute over the mean minute.
    peak: float = 20
    payload_bytes: int = 200
    #: Copies of each row.
    replicas: int = 3
    retention_days: int = 7
    #: Schedules created, changed or cancelled, and timers sent, a day.
    changes_per_day: int = 1_000_000
    #: Parts of a minute, and shard ranges, as `tocsin init` makes them.
    sub_partitions: int = 256
    shard_ranges: int = 64

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise SettingsError(f"{name.replace('_', ' ')} must be above 0 for a plan.")
        if self.peak < 1:
            raise SettingsError("a peak below the mean is none; give 1 or more.")


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; two processors shared with Cassandra and Kafka, unless another source is named."""

    #: Occurrences a second that one dispatcher reads, publishes and re-arms: `tocsin bench dispatch`.
    dispatch_rate: int = 20_000
    #: Occurrences a second that one dispatcher publishes from memory: `tocsin bench herd`.
    herd_rate: int = 50_000
    #: How full a process should be planned to run.
    utilisation: float = 0.5
    #: Bytes of an entry beside payload: ids, instants, spec; `tocsin bucket show` on a store of one's own.
    entry_bytes: int = 260
    pointer_bytes: int = 110
    #: Bytes of a row of `schedules` beside payload.
    schedule_bytes: int = 600
    #: What LZ4 leaves of packs of 200 B payloads.
    compressed: float = 0.6
    #: Room that compaction needs beside the data.
    compaction: float = 1.5
    #: Reads and writes of one partition that one node answers in a second with good latency: point reads and inserts of
    #: this size, a third of what two processors did here, to leave room for compaction and repair.
    node_operations: int = 2_000
    #: Data that one node should hold, so that it can be replaced within hours.
    node_bytes: int = 1_000 * GIB
    #: What a process holds for one occurrence in memory beside its spec and payload.
    item_bytes: int = ITEM_BYTES
    #: Bound of that memory; what is beyond streams at its due.
    memory_bytes: int = WAITING_BYTES_MAX
    #: Records a second that a partition's one consumer takes.
    consumer_rate: int = 1_000


class Line(msgspec.Struct, frozen=True):
    """One figure."""

    name: str
    value: float
    unit: str
    formula: str


def plan(demand: Demand, costs: Costs) -> tuple[Line, ...]:
    """Every figure, those that others are made of first."""
    return tuple(_Plan(demand, costs).lines())


class _Plan:
    """The arithmetic; each group of lines beside its formulas."""

    def __init__(self, demand: Demand, costs: Costs) -> None:
        self._demand = demand
        self._costs = costs
        timing = Timing(retention_ms=demand.retention_days * DAY_MS)
        lifetimes = Lifetimes(timing)
        self._minute_days = lifetimes.packs_ms(Level.MINUTE) / DAY_MS
        self._far_days = lifetimes.packs_ms(Level.FAR) / DAY_MS
        self._mean = demand.per_day / SECONDS_A_DAY
        self._peak = self._mean * demand.peak
        self._herd = self._peak * 60
        #: Schedules that occur daily or more often are armed within a day; the others by a pointer on far.
        self._far_share = max(0.0, 1 - demand.per_day / demand.schedules)
        self._far_per_day = demand.per_day * self._far_share
        self._far_rate = self._far_per_day / SECONDS_A_DAY

    def lines(self) -> Iterator[Line]:
        """Every figure."""
        yield from self._rates()
        yield from self._operations()
        yield from self._disk()
        yield from self._dispatchers()
        yield from self._nodes()

    def _rates(self) -> Iterator[Line]:
        demand = self._demand
        yield Line("mean rate", self._mean, "/s", "occurrences a day / 86,400")
        yield Line("peak rate", self._peak, "/s", f"mean rate x peak of {demand.peak:g}")
        yield Line("herd", self._herd, "occurrences", "peak rate x 60 s: all of a peak minute, at worst at one instant")
        yield Line(
            "in one partition", self._herd / demand.sub_partitions, "entries", "herd / sub-partitions of a minute"
        )
        yield Line(
            "largest partition",
            self._herd / demand.sub_partitions * self._entry_bytes / 2**20,
            "MiB",
            "entries in it x bytes of an entry; below 100",
        )

    @property
    def _entry_bytes(self) -> float:
        return self._costs.entry_bytes + self._demand.payload_bytes

    def _fill(self, rate: float) -> float:
        """Entries of a pack: what one tick of a range re-arms, over its parts of a minute."""
        demand = self._demand
        parts = demand.sub_partitions / demand.shard_ranges
        of_a_tick = rate / demand.shard_ranges * Timing().tick_ms / SECOND_MS
        return min(float(PACK_ENTRIES_MAX), max(1.0, of_a_tick / parts))

    def _operations(self) -> Iterator[Line]:
        demand = self._demand
        ticks = SECOND_MS / Timing().tick_ms
        formula = "rate / shard ranges x 0.25 s of a tick / parts of a minute in a range; 1 to 200"
        yield Line("entries of a pack, at the mean", self._fill(self._mean), "", formula)
        yield Line("entries of a pack, in a peak", self._fill(self._peak), "", formula)
        near = self._mean - self._far_rate
        self._writes = near / self._fill(self._mean) + 2 * self._far_rate
        formula = "(mean rate - far) / entries of a pack + far x 2: a pointer, and an entry a day before"
        yield Line("pack writes, at the mean", self._writes, "/s", formula)
        self._peak_writes = self._writes + self._peak / self._fill(self._peak)
        yield Line("pack writes, in a peak", self._peak_writes, "/s", "the same + peak rate / entries of a pack")
        self._steady = demand.shard_ranges * (3 * ticks + 1) + demand.sub_partitions / 60
        formula = "shard ranges x (4 ticks x (seal, near, markers) + frontier) + sub-partitions / 60"
        yield Line("operations of empty ticks", self._steady, "/s", formula)
        self._changes = demand.changes_per_day / SECONDS_A_DAY * OPERATIONS_OF_A_CHANGE
        formula = f"changes a day / 86,400 x {OPERATIONS_OF_A_CHANGE}, a conditional write counted as 4"
        yield Line("operations of changes", self._changes, "/s", formula)
        yield Line(
            "operations, at the mean", self._writes + self._others, "/s", "all of these + a row read of each in far"
        )
        yield Line(
            "operations, in a peak", self._peak_writes + self._others, "/s", "the same with the writes of a peak"
        )

    @property
    def _others(self) -> float:
        return self._steady + self._changes + self._far_rate

    def _disk(self) -> Iterator[Line]:
        demand, costs = self._demand, self._costs
        scale = demand.replicas * costs.compressed * costs.compaction / GIB
        self._occurrences = demand.per_day * self._minute_days * self._entry_bytes * scale
        formula = f"per day x {self._minute_days:g} days x bytes x replicas x compressed x compaction"
        yield Line("disk of occurrences", self._occurrences, "GiB", formula)
        self._far = self._far_per_day * self._far_days * costs.pointer_bytes * scale
        formula = f"pointers a day x {self._far_days:g} days x bytes x replicas x compressed x compaction"
        yield Line("disk of far", self._far, "GiB", formula)
        row_bytes = costs.schedule_bytes + demand.payload_bytes
        self._schedules = demand.schedules * row_bytes * scale
        formula = "schedules x bytes of a row x replicas x compressed x compaction"
        yield Line("disk of schedules", self._schedules, "GiB", formula)
        yield Line("disk of all", self._bytes, "GiB", "occurrences + far + schedules")

    @property
    def _bytes(self) -> float:
        return self._occurrences + self._far + self._schedules

    def _dispatchers(self) -> Iterator[Line]:
        demand, costs = self._demand, self._costs
        needed = math.ceil(self._peak / (costs.dispatch_rate * costs.utilisation))
        count = min(demand.shard_ranges, max(2, needed + 1))
        formula = "peak rate / (dispatch rate x utilisation) + 1 that may fail; 2 to shard ranges"
        yield Line("dispatchers", count, "processes", formula)
        drain = self._herd / (count * costs.herd_rate)
        yield Line("herd drain, at one instant", drain, "s", "herd / (dispatchers x herd rate)")
        item_bytes = costs.item_bytes + self._entry_bytes
        memory = min(costs.memory_bytes, self._herd / count * item_bytes) / 2**20
        yield Line("memory of a herd", memory, "MiB", "herd / dispatchers x bytes of an item, at most 160 MiB")
        partitions = math.ceil(self._peak / costs.consumer_rate)
        yield Line("Kafka partitions", partitions, "", "peak rate / records a second of one consumer")

    def _nodes(self) -> Iterator[Line]:
        demand, costs = self._demand, self._costs
        by_disk = math.ceil(self._bytes * GIB / costs.node_bytes)
        yield Line("nodes by disk", by_disk, "", "disk of all / 1,000 GiB of a node")
        busiest = self._peak_writes + self._others
        by_operations = math.ceil(busiest * demand.replicas / costs.node_operations)
        formula = "operations in a peak x replicas / 2,000 of a node"
        yield Line("nodes by operations", by_operations, "", formula)
        nodes = max(demand.replicas, by_disk, by_operations)
        yield Line("Cassandra nodes", nodes, "", "the larger of both, at least as many as replicas")
