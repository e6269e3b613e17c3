"""Entries and packs: what waits on a level, and how it is stored.

An entry is one waiting occurrence and a pure function of (schedule version, scheduled_for): no run numbers, no
counters, so that writing it twice is harmless. (What a re-arm tells of the occurrence before, `skipped` and `chosen`,
decides nothing; two owners may see it differently, and both may be right.) A pack is one stored row with 1 to 200
entries of one bucket, immutable and with a fresh id; nothing is ever updated or deleted. Readers keep, of the entries
with one occurrence key, the highest version that counts.

Body of a pack: one format byte, then a MessagePack array of entries, each itself an array. A release reads its own
format and the ones before it; a newer one is `UnknownFormat`, and whoever meets it leaves the pack to a newer release.
Fields may be appended to an entry with a default; none is removed or reordered within one format.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from tocsin.schema.errors import InvalidSchedule, TocsinError
from tocsin.schema.levels import Level
from tocsin.schema.zones import zone_data_version

#: Entries of one pack at most; with the byte limit it keeps a row far below Cassandra's warning for large cells.
PACK_ENTRIES_MAX = 200
#: Bytes of one pack at most; an entry larger than this has a pack of its own.
PACK_BYTES_MAX = 32 * 1024
#: The body format this release writes, and the newest it reads.
FORMAT = 1


#: `<schedule_id>@<scheduled_for>`, and `!<request>` where a caller asked for the occurrence: what consumers dedupe on.
OccurrenceKey: TypeAlias = str


class Kind(enum.IntEnum):
    """What an entry is."""

    ARM = 0
    TIMER = 1
    RECALL = 2
    TRIGGER = 3
    BACKFILL = 4


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One waiting occurrence. Instants are milliseconds UTC.

    On the far level an entry is a pointer: `spec` and `payload` are empty, `previous` is the nominal time before this
    one (0: none), from which the right time is found again should the zone's rules have changed, and `zone_data` is
    the tzdata release that computed `scheduled_for`.
    """

    schedule_id: str
    scheduled_for: int
    due: int
    version: int
    kind: Kind = Kind.ARM
    #: Compare the version with `schedules` before this entry counts.
    verify: bool = False
    #: How often it was asked about in vain, or parked.
    tries: int = 0
    #: The caller's id of a trigger or backfill; part of the occurrence key.
    request: str = ""
    previous: int = 0
    zone_data: str = ""
    spec: bytes = b""
    payload: bytes = b""
    #: What became of `previous`, told by whoever re-armed: it was skipped for this reason (empty: dispatched, or a dead
    #: letter), and the run it ended had begun with `chosen`: from the entry before up to there all were missed, from
    #: there on each had its turn (0: some of them were missed).
    skipped: str = ""
    chosen: int = 0

    @property
    def key(self) -> str:
        """The occurrence key."""
        return occurrence_key(self.schedule_id, self.scheduled_for, self.request)

    @property
    def has_schedule(self) -> bool:
        """False for a timer and its recall: there is no row to read or to verify against."""
        return self.kind not in {Kind.TIMER, Kind.RECALL}

    def marked(self, *, tries: int | None = None) -> Entry:
        """The same entry, to be verified before it counts."""
        if self.verify and tries in {None, self.tries}:
            return self
        return msgspec.structs.replace(self, verify=True, tries=self.tries if tries is None else tries)

    def as_stored(self, level: Level) -> Entry:
        """What a pack of this level holds: on far a pointer, always to be verified; a timer is whole everywhere."""
        if level is not Level.FAR or not self.has_schedule:
            return self
        return msgspec.structs.replace(self, verify=True, spec=b"", payload=b"", zone_data=zone_data_version())


class UnknownFormat(TocsinError):
    """A pack is written in a newer format than this release reads; run a newer release here."""

    def __init__(self, found: int) -> None:
        self.found = found
        super().__init__(
            f"a pack has body format {found}, this release reads up to {FORMAT}; run a newer release of the dispatcher."
        )


class Undecodable(TocsinError):
    """A pack's body cannot be decoded; it goes to the dead letters with its bytes."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Entry])


def encode_pack(entries: Sequence[Entry]) -> bytes:
    """The body of a pack that holds these entries."""
    return bytes((FORMAT,)) + _encoder.encode(entries)


def decode_pack(body: bytes) -> list[Entry]:
    """The entries of a pack.

    Raises:
        UnknownFormat: a newer release wrote it.
        Undecodable: the bytes are damaged.
    """
    if not body or not body[0]:
        raise Undecodable("a pack's body has no format; it goes to the dead letters.")
    if body[0] > FORMAT:
        raise UnknownFormat(body[0])
    try:
        return _decoder.decode(memoryview(body)[1:])
    except msgspec.DecodeError as error:
        raise Undecodable(f"a pack's body cannot be decoded ({error}); it goes to the dead letters.") from error


def pack(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Cut entries of one bucket into packs within both limits, order kept."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        bytes_of_entry = _bytes_at_most(entry)
        if batch and (len(batch) >= PACK_ENTRIES_MAX or size + bytes_of_entry > PACK_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += bytes_of_entry
    if batch:
        yield batch


def _bytes_at_most(entry: Entry) -> int:
    """What it takes in a pack: its texts and bytes, and numbers and lengths at their longest."""
    texts = entry.schedule_id + entry.request + entry.zone_data
    return 110 + (len(texts) if texts.isascii() else len(texts.encode())) + len(entry.spec) + len(entry.payload)


@lru_cache(maxsize=8192)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def format_instant(instant_ms: int) -> str:
    """An instant as in RFC 3339, UTC, always with milliseconds; a herd shares one formatted second."""
    second, millisecond = divmod(instant_ms, 1000)
    return f"{_second(second)}.{millisecond:03d}Z"


def parse_instant(text: str) -> int:
    """The instant of `format_instant`, in ms UTC. Raises ValueError."""
    instant = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return round(instant.timestamp() * 1000)


def occurrence_key(schedule_id: str, scheduled_for: int, request: str = "") -> str:
    """The key consumers dedupe on: `<schedule_id>@<scheduled_for>`, and `!<request>` where a caller asked for it."""
    key = f"{schedule_id}@{format_instant(scheduled_for)}"
    return f"{key}!{request}" if request else key


def parse_occurrence_key(key: Any) -> tuple[str, int, str]:
    """(schedule_id, scheduled_for, request) of an occurrence key; an id may hold `@`, so it is split from the right.

    Raises:
        InvalidSchedule: the text is not an occurrence key.
    """
    reason = "not an occurrence key; expected <schedule_id>@2026-11-30T10:00:00.000Z"
    if not isinstance(key, str):
        raise InvalidSchedule("key", key, f"must be text, not {type(key).__name__}")
    schedule_id, _, rest = key.rpartition("@")
    instant, _, request = rest.partition("!")
    try:
        scheduled_for = parse_instant(instant)
    except ValueError as error:
        raise InvalidSchedule("key", key, reason) from error
    # Other spellings of the instant would name the same occurrence by another key.
    if not schedule_id or occurrence_key(schedule_id, scheduled_for, request) != key:
        raise InvalidSchedule("key", key, reason)
    return schedule_id, scheduled_for, request
