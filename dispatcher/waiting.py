"""What the owner of a range holds in memory: entries it has read, change markers, and what they do to each other.

No I/O and no clock: the owner reads and asks, this decides. An entry is in one of these states:

    VERIFYING    marked; `schedules` has not been asked yet
    WAITING      counts; will be dispatched at its due
    DISPATCHING  handed to the publisher, or being re-armed
    MOVING       undecided, on its way back to near; a copy read meanwhile counts as newly read when the move ends
    PARKING      its topic fails, on its way back to near; the same
    GONE         dispatched, dropped or moved

Rules: of entries with one occurrence key the highest version *that counts* wins, so a marked entry shadows a lower
version only once it was verified. A change marker drops what it ends, unless that was handed to the publisher before.
While a marked marker of a schedule awaits its first answer, nothing of that schedule is handed out.

`settled_before` is what `committed` may claim: every position below it is dispatched and re-armed. Copies of one entry
read at several positions hold it at the lowest; the highest is the entry's source when history is repeated.
"""

from __future__ import annotations

import enum
import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from tocsin.dispatcher.load import Load
from tocsin.dispatcher.publisher import Record
from tocsin.schema.entries import Entry
from tocsin.schema.schedules import Marker, Spec
from tocsin.schema.store import PlacedMarker

#: What an item holds besides spec and payload: entry, record, headers and its places in memory; measured.
ITEM_BYTES = 1_300
#: No end: the occurrence's version is the current one.
NO_END = 1 << 62


class Status(enum.Enum):
    """Where an item stands; see the module's text."""

    VERIFYING = enum.auto()
    WAITING = enum.auto()
    DISPATCHING = enum.auto()
    MOVING = enum.auto()
    PARKING = enum.auto()
    GONE = enum.auto()


#: What a change marker or a higher version may drop; what was handed to the publisher takes its course.
_PENDING = frozenset({Status.VERIFYING, Status.WAITING, Status.MOVING})


class Item:
    """One occurrence in memory, whatever number of copies of it were read."""

    __slots__ = (
        "again",
        "alone",
        "also",
        "end",
        "entry",
        "lowest",
        "missed",
        "plain",
        "record",
        "size_bytes",
        "source",
        "spec",
        "status",
    )

    def __init__(self, entry: Entry, position: int, *, missed: bool) -> None:
        self.entry = entry
        #: Decoded, and the record built, as soon as the entry counts: at :00 only publishing remains.
        self.spec: Spec | None = None
        self.record: Record | None = None
        self.status = Status.VERIFYING
        #: The lowest and the highest position at which a copy was read.
        self.lowest = position
        self.source = position
        #: Its version owns nominal times below this only.
        self.end = NO_END
        self.missed = missed
        #: No other item of its schedule was ever here beside it.
        self.alone = True
        #: Nothing has to be looked up or chosen when it is due: its record, as it is built, goes out.
        self.plain = False
        #: A copy that was read while this one was moving.
        self.again: Entry | None = None
        #: Later nominal times this item stands for while it catches up.
        self.also: frozenset[int] = frozenset()
        self.size_bytes = ITEM_BYTES + len(entry.spec) + len(entry.payload)

    def is_occurrence(self, scheduled_for: int, version: int, request: str) -> bool:
        """Whether this item stands for that occurrence of its schedule."""
        entry = self.entry
        return (
            entry.version == version
            and entry.request == request
            and (entry.scheduled_for == scheduled_for or scheduled_for in self.also)
        )


class Waiting:
    """The memory of one owner; made anew with each epoch."""

    def __init__(self, load: Load | None = None) -> None:
        self._load = load or Load()
        self._items: defaultdict[str, list[Item]] = defaultdict(list)
        #: What counts, by due, and the dues in order: a herd is one of them, handed out whole.
        self._by_due: defaultdict[int, list[Item]] = defaultdict(list)
        self._dues: list[int] = []
        self._order = 0
        self._markers: defaultdict[str, list[Marker]] = defaultdict(list)
        self._markers_by_until: list[tuple[int, int, Marker]] = []
        self._seen_markers: set[Marker] = set()
        self._unanswered: Counter[str] = Counter()
        self._held: defaultdict[str, list[Item]] = defaultdict(list)
        self._open_positions: Counter[int] = Counter()
        self._positions: list[int] = []
        self.count = 0

    # Entries

    def add(self, entry: Entry, position: int, *, missed: bool) -> Item | None:
        """Take in an entry read at this position; None: a copy of one that is here, or ended already."""
        found = self.find(entry.schedule_id, entry.scheduled_for, entry.version, entry.request)
        if found is not None:
            self._add_copy(found, entry, position)
            return None
        if self.is_ended(entry.schedule_id, entry.version, entry.scheduled_for):
            return None
        item = Item(entry, position, missed=missed)
        siblings = self._items[entry.schedule_id]
        siblings.append(item)
        if len(siblings) > 1:
            for each in siblings:
                each.alone = each.plain = False
        self._open(position)
        self.count += 1
        self._load.size_bytes += item.size_bytes
        if not entry.verify or not entry.has_schedule:
            self.let_count(item)
        return item

    def find(self, schedule_id: str, scheduled_for: int, version: int, request: str = "") -> Item | None:
        """The item that stands for this occurrence."""
        for item in self._items.get(schedule_id, ()):
            if item.is_occurrence(scheduled_for, version, request):
                return item
        return None

    def entries(self) -> list[Entry]:
        """What is here now, for those who look ahead."""
        return [item.entry for items in self._items.values() for item in items]

    def let_count(self, item: Item) -> bool:
        """The entry counts; False: a higher version of the occurrence counts already, and it was dropped."""
        entry = item.entry
        if not item.alone:
            others = [
                other
                for other in self._items[entry.schedule_id]
                if other.entry.scheduled_for == entry.scheduled_for and other.entry.request == entry.request
            ]
            for other in others:
                newer = other.entry.version > entry.version
                if newer and other.status in {Status.WAITING, Status.DISPATCHING}:
                    self.drop(item)
                    return False
            for other in others:
                older = other.entry.version < entry.version
                if older and other.status in _PENDING:
                    self.drop(other)
        item.status = Status.WAITING
        self._push(item)
        return True

    def drop(self, item: Item) -> None:
        """Forget an item; its positions are settled."""
        if item.status is Status.GONE:
            return
        item.status = Status.GONE
        self.count -= 1
        self._load.size_bytes -= item.size_bytes
        schedule_id = item.entry.schedule_id
        siblings = self._items[schedule_id]
        siblings.remove(item)
        if not siblings:
            del self._items[schedule_id]
        self._open_positions[item.lowest] -= 1

    def leave(self) -> None:
        """The range is served by another now: what is still here weighs no longer on the ranges that stay."""
        self._load.size_bytes -= sum(item.size_bytes for items in self._items.values() for item in items)
        self._load = Load()

    def moved(self, item: Item, status: Status) -> bool:
        """An item's move back to near is acknowledged; True: a copy was read meanwhile and is to be verified."""
        if item.status is not status:
            return False
        if item.again is None:
            self.drop(item)
            return False
        item.entry, item.again, item.status = item.again, None, Status.VERIFYING
        return True

    def take_due(self, through: int) -> list[Item]:
        """Everything that counts and is due by then, in order of due; the items are DISPATCHING from here on."""
        due: list[Item] = []
        while self._dues and self._dues[0] <= through:
            for item in self._by_due.pop(heapq.heappop(self._dues)):
                if item.status is not Status.WAITING:
                    continue
                if item.entry.schedule_id in self._unanswered:
                    self._held[item.entry.schedule_id].append(item)
                    continue
                item.status = Status.DISPATCHING
                due.append(item)
        return due

    def put_back(self, item: Item) -> None:
        """What was handed out waits again: its schedule is held."""
        item.status = Status.WAITING
        self._push(item)

    def next_due(self) -> int | None:
        """When the next item may be taken."""
        while self._dues:
            items = self._by_due[self._dues[0]]
            while items and items[-1].status is not Status.WAITING:
                items.pop()
            if items:
                return self._dues[0]
            del self._by_due[heapq.heappop(self._dues)]
        return None

    def settled_before(self) -> int | None:
        """The lowest position that is not dispatched and re-armed yet; None: nothing is open."""
        while self._positions:
            if self._open_positions[self._positions[0]]:
                return self._positions[0]
            del self._open_positions[heapq.heappop(self._positions)]
        return None

    def fill(self, item: Item, spec: bytes, payload: bytes) -> None:
        """A pointer counts: give it what its schedule says."""
        item.entry = msgspec.structs.replace(item.entry, spec=spec, payload=payload)
        grown = len(spec) + len(payload)
        item.size_bytes += grown
        self._load.size_bytes += grown

    # Change markers

    def add_markers(self, markers: Iterable[PlacedMarker]) -> Iterator[Marker]:
        """Take in change markers; those to be verified are returned, and hold their schedule until answered."""
        for _, marker in markers:
            if marker in self._seen_markers:
                continue
            self._seen_markers.add(marker)
            self._remember_until(marker)
            if marker.verify:
                self._unanswered[marker.schedule_id] += 1
                yield marker
            else:
                self.apply(marker)

    def apply(self, marker: Marker) -> None:
        """The change holds: drop what it ends, now and from now on."""
        self._markers[marker.schedule_id].append(marker)
        self._remember_until(marker)
        for item in list(self._items.get(marker.schedule_id, ())):
            if item.status in _PENDING and marker.ends(item.entry.version, item.entry.scheduled_for):
                self.drop(item)

    def answered(self, schedule_id: str) -> None:
        """A marked marker had its first answer: what it held may go."""
        self._unanswered[schedule_id] -= 1
        if self._unanswered[schedule_id] <= 0:
            del self._unanswered[schedule_id]
            for item in self._held.pop(schedule_id, ()):
                if item.status is Status.WAITING:
                    self._push(item)

    def is_held(self, schedule_id: str) -> bool:
        """Whether a marked marker of the schedule awaits its first answer."""
        return schedule_id in self._unanswered

    def is_changing(self, schedule_id: str) -> bool:
        """Whether any change marker of the schedule is here; none is the usual case."""
        return schedule_id in self._markers or schedule_id in self._unanswered

    def is_ended(self, schedule_id: str, version: int, scheduled_for: int) -> bool:
        """Whether a marker has ended this occurrence."""
        markers = self._markers.get(schedule_id)
        return markers is not None and any(marker.ends(version, scheduled_for) for marker in markers)

    def end_of(self, item: Item) -> int:
        """The item's version owns nominal times below this only."""
        markers = self._markers.get(item.entry.schedule_id)
        if not markers:
            return item.end
        return min([item.end, *(marker.from_ms for marker in markers if marker.version > item.entry.version)])

    def forget_markers(self, committed: int) -> None:
        """Forget markers that nothing can need any more."""
        while self._markers_by_until and self._markers_by_until[0][0] < committed:
            _, _, marker = heapq.heappop(self._markers_by_until)
            self._seen_markers.discard(marker)
            kept = [other for other in self._markers.get(marker.schedule_id, ()) if other != marker]
            if kept:
                self._markers[marker.schedule_id] = kept
            else:
                self._markers.pop(marker.schedule_id, None)

    def _remember_until(self, marker: Marker) -> None:
        self._order += 1
        heapq.heappush(self._markers_by_until, (marker.until_ms, self._order, marker))

    def _add_copy(self, item: Item, entry: Entry, position: int) -> None:
        item.source = max(item.source, position)
        if position < item.lowest:
            self._open_positions[item.lowest] -= 1
            item.lowest = position
            self._open(position)
        if not entry.verify and item.status in {Status.VERIFYING, Status.MOVING}:
            item.entry = entry
            self.let_count(item)
        elif item.status in {Status.MOVING, Status.PARKING}:
            item.again = entry

    def _open(self, position: int) -> None:
        if not self._open_positions[position]:
            heapq.heappush(self._positions, position)
        self._open_positions[position] += 1

    def _push(self, item: Item) -> None:
        items = self._by_due[item.entry.due]
        if not items:
            heapq.heappush(self._dues, item.entry.due)
        items.append(item)
