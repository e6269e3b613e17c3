"""One replica: tables, and the merge rules that decide which of two writes stays."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

from tocsin.schema.levels import Bucket
from tocsin.schema.schedules import Marker
from tocsin.schema.store import DeadLetter, Heartbeat, PackRow, PlacedMarker

Value = TypeVar("Value")

#: Where a marker lies in its range.
MarkerKey = tuple[int, str, int]

_pack_place = itemgetter(0, 1)
_pack_position = itemgetter(0)


class Timestamped(dict[str, tuple[int, Value]]):
    """Cells of which the newest write stays, by its timestamp."""

    def write(self, key: str, timestamp: int, value: Value) -> None:
        """Keep it, unless what is there is newer."""
        if key not in self or self[key][0] <= timestamp:
            self[key] = timestamp, value


class Replica:
    """What one node keeps. It never deletes a marker, and forgets a pack only where a scenario says so."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.down = False
        #: This node's clock minus the true time, ms.
        self.skew_ms: float = 0
        #: Whether a pack has left by its time to live.
        self.forgets: Callable[[Bucket, PackRow], bool] = lambda _bucket, _row: False
        self._packs: defaultdict[Bucket, list[PackRow]] = defaultdict(list)
        self._marker_keys: defaultdict[int, list[MarkerKey]] = defaultdict(list)
        self._markers: defaultdict[int, dict[MarkerKey, tuple[int, Marker]]] = defaultdict(dict)
        self._frontiers: defaultdict[int, dict[str, int]] = defaultdict(dict)
        #: When each was written, true time, and None for a dispatcher that took leave.
        self.heartbeats: Timestamped[tuple[float, Heartbeat | None]] = Timestamped()
        self.dead_letters: set[DeadLetter] = set()

    # Packs

    def write_pack(self, bucket: Bucket, row: PackRow) -> None:
        rows = self._packs[bucket]
        index = bisect_left(rows, row)
        if index == len(rows) or rows[index] != row:
            rows.insert(index, row)

    def read_packs(
        self, bucket: Bucket, after: int | None, place: tuple[int, bytes] | None, through: int | None, count: int
    ) -> Sequence[PackRow]:
        """The first rows beyond `place`, or beyond the position `after` where there is no place yet."""
        rows = self._packs.get(bucket)
        if not rows:
            return ()
        if place is not None:
            start = bisect_right(rows, place, key=_pack_place)
        else:
            start = 0 if after is None else bisect_right(rows, after, key=_pack_position)
        end = len(rows) if through is None else bisect_right(rows, through, key=_pack_position)
        found = (row for row in itertools.islice(rows, start, end) if not self.forgets(bucket, row))
        return list(itertools.islice(found, count))

    # Change markers

    def write_marker(self, shard_range: int, placed: PlacedMarker, timestamp: int) -> None:
        position, marker = placed
        key = (position, marker.schedule_id, marker.version)
        cells = self._markers[shard_range]
        if key not in cells:
            keys = self._marker_keys[shard_range]
            keys.insert(bisect_left(keys, key), key)
        elif cells[key][0] > timestamp:
            return
        cells[key] = timestamp, marker

    def read_markers(
        self, shard_range: int, after: int, place: MarkerKey | None, through: int, count: int
    ) -> Sequence[tuple[MarkerKey, int, Marker]]:
        keys = self._marker_keys.get(shard_range)
        if not keys:
            return ()
        start = bisect_right(keys, place) if place is not None else bisect_right(keys, after, key=_pack_position)
        end = bisect_right(keys, through, key=_pack_position)
        cells = self._markers[shard_range]
        return [(key, *cells[key]) for key in keys[start : min(end, start + count)]]

    # The frontier

    def write_frontier(self, shard_range: int, registers: Mapping[str, int]) -> None:
        kept = self._frontiers[shard_range]
        for name, value in registers.items():
            kept[name] = max(value, kept.get(name, value))

    def read_frontier(self, shard_range: int) -> Mapping[str, int]:
        return dict(self._frontiers[shard_range])

    # For checkers only

    def every_pack(self) -> Mapping[Bucket, Sequence[PackRow]]:
        return self._packs

    def every_marker(self) -> Sequence[PlacedMarker]:
        return [PlacedMarker(key[0], marker) for cells in self._markers.values() for key, (_, marker) in cells.items()]
