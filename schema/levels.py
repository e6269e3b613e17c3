"""The three places where an occurrence can wait, and the one rule they share.

An occurrence waits on a level at a position, an instant in milliseconds UTC, and cascades down: far → minute → near.

* **far**: buckets of a day, holding pointers only. Position = due, but at most `far_limit_ms` from now.
* **minute**: buckets of a minute, split into sub-partitions by hash. Position = due.
* **near**: no buckets; a position is ordered on its own. Position = max(due, position clock + margin).

`sealed(level)` is a register in the frontier. Everything whose *end* is at or below it may have been read already, so a
writer whose place has `sealed < end` after its write was acknowledged knows that the owner will see it; any other
writer goes one level down. `end` is the end of the bucket, and on near the position itself: that is the whole
difference between the levels.

The hash space is cut twice: into `shard_ranges` ranges, the unit of lease, for ever; and into the sub-partitions of a
level, which nest in them (the number of ranges divides the number of sub-partitions).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from tocsin.schema.errors import SettingsError
from tocsin.schema.timing import Timing

#: Sub-partitions of a far day: a year of pointers to a billion schedules is spread over 1.5 million partitions.
FAR_SUB_PARTITIONS = 4096


class Level(enum.Enum):
    """Where an occurrence waits; the value names its register: sealed_<value>."""

    FAR = "far"
    MINUTE = "minute"
    NEAR = "near"

    # Members are single, so identity serves; Enum's own is Python code, and every bucket that is hashed runs it.
    __hash__ = object.__hash__

    @property
    def below(self) -> Level:
        """One level down; near demotes to near, further on."""
        return Level.MINUTE if self is Level.FAR else Level.NEAR


class Bucket(NamedTuple):
    """One partition of a level: its start in ms UTC, and which part of the hash space it holds.

    `layout` is the number of sub-partitions the hash space was cut into, so that two layouts of one minute never share
    a partition.
    """

    level: Level
    start: int
    layout: int
    sub: int


@lru_cache(maxsize=16_384)
def hash32(schedule_id: str) -> int:
    """Where an id lies in the hash space: the first four bytes of blake2b, the same on every host and in every release.

    blake2b's digest length is part of its parameters (RFC 7693, section 2.5), so the full digest is cut, not asked for
    at four bytes.
    """
    return int.from_bytes(blake2b(schedule_id.encode()).digest()[:4], "big")


class Layout(msgspec.Struct, frozen=True):
    """From this instant on, minutes are split into this many sub-partitions."""

    from_ms: int
    sub_partitions: int


class Levels(msgspec.Struct):
    """The geometry of a store: which position lies in which bucket, and which buckets a range reads.

    All of it stands for ever but for the layouts, of which more may become known.
    """

    timing: Timing
    shard_ranges: int
    layouts: tuple[Layout, ...]

    def __post_init__(self) -> None:
        for layout in self.layouts:
            if layout.sub_partitions % self.shard_ranges:
                raise SettingsError(
                    f"sub_partitions ({layout.sub_partitions}) must be a multiple of shard_ranges ({self.shard_ranges})"
                )
        if not self.layouts or FAR_SUB_PARTITIONS % self.shard_ranges:
            raise SettingsError(f"shard_ranges ({self.shard_ranges}) must divide {FAR_SUB_PARTITIONS}")

    def learn(self, layouts: Iterable[Layout]) -> None:
        """Take in layouts that were set since; what is known stays. Raises SettingsError for one that cannot be."""
        known = tuple(sorted({*self.layouts, *layouts}, key=lambda layout: layout.from_ms))
        self.layouts = Levels(self.timing, self.shard_ranges, known).layouts

    def shard_range(self, schedule_id: str) -> int:
        """The range that owns this id."""
        return self.shard_range_of(hash32(schedule_id))

    def shard_range_of(self, place: int) -> int:
        """The range that owns this place in the hash space."""
        return place * self.shard_ranges >> 32

    def end(self, level: Level, position: int) -> int:
        """The instant at which sealing reaches this position: the end of its bucket, on near the position itself."""
        if level is Level.NEAR:
            return position
        width = self._width(level)
        return (position // width + 1) * width

    def choose(self, due: int, now: int) -> Level:
        """The level for something due then: an optimisation only, the insert rule is what is correct."""
        timing = self.timing
        if due // timing.day_ms * timing.day_ms > now + timing.far_from_ms:
            return Level.FAR
        if due // timing.minute_ms * timing.minute_ms > now + timing.lead_ms:
            return Level.MINUTE
        return Level.NEAR

    def bucket(self, level: Level, position: int, schedule_id: str) -> Bucket:
        """The partition that holds this position of this id."""
        return self.bucket_of(level, position, hash32(schedule_id))

    def bucket_of(self, level: Level, position: int, place: int) -> Bucket:
        """The partition that holds this position for this place in the hash space."""
        width = self._width(level)
        start = position // width * width
        layout = self._layout(level, start)
        return Bucket(level, start, layout, place * layout >> 32)

    def buckets(self, level: Level, shard_range: int, after: int, through: int) -> Iterator[Bucket]:
        """The partitions a range reads to see every position in (after, through], oldest first.

        A minute is read in every layout there has been: a writer may not have heard of the newest.
        """
        width = self._width(level)
        for start in range((after + 1) // width * width, through + 1, width):
            for layout in self._layouts(level):
                each = layout // self.shard_ranges
                for sub in range(shard_range * each, (shard_range + 1) * each):
                    yield Bucket(level, start, layout, sub)

    def buckets_with(self, level: Level, schedule_id: str, after: int, through: int) -> Iterator[Bucket]:
        """The partitions that may hold positions of this id in (after, through], oldest first."""
        width, place = self._width(level), hash32(schedule_id)
        for start in range((after + 1) // width * width, through + 1, width):
            for layout in self._layouts(level):
                yield Bucket(level, start, layout, place * layout >> 32)

    def _width(self, level: Level) -> int:
        if level is Level.FAR:
            return self.timing.day_ms
        return self.timing.minute_ms if level is Level.MINUTE else self.timing.near_slot_ms

    def _layout(self, level: Level, start: int) -> int:
        if level is Level.FAR:
            return FAR_SUB_PARTITIONS
        if level is Level.NEAR:
            return self.shard_ranges
        in_force = [layout for layout in self.layouts if layout.from_ms <= start]
        return in_force[-1].sub_partitions if in_force else self.layouts[0].sub_partitions

    def _layouts(self, level: Level) -> tuple[int, ...]:
        if level is Level.MINUTE:
            return tuple(dict.fromkeys(layout.sub_partitions for layout in self.layouts))
        return (self._layout(level, 0),)
