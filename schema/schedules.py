"""Schedules as they are stored: the spec, the row of `schedules`, and change markers.

The spec is everything a dispatcher needs besides the payload. It is written as JSON text, into the row and into every
full entry, so that dispatching reads nothing but buckets. Equal content gives equal text: that is how a repeated
create is told from a conflicting one.
"""

from __future__ import annotations

import enum
from datetime import date
from typing import TYPE_CHECKING

import msgspec

from tocsin.schema.recurrence import AnyRecurrence, jitter_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How many replaced versions a row remembers.
REPLACED_MAX = 8


#: Timers have no versions of their own, and a recall is above them; both lie below every schedule's.
TIMER_VERSION = 0
RECALL_VERSION = 1


class State(enum.Enum):
    """What a schedule is doing."""

    ACTIVE = "active"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class CatchUp(enum.Enum):
    """What happens to missed occurrences once a dispatcher is back.

    Down over 10:00, 10:10 and 10:20, back at 10:25: `latest` dispatches 10:20, `earliest` 10:00, `all` each of the
    three, `skip` none; all go on at 10:30.
    """

    LATEST = "latest"
    ALL = "all"
    EARLIEST = "earliest"
    SKIP = "skip"


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule says, payload aside. Instants are ms UTC, all optional ones absent by default."""

    recurrence: AnyRecurrence
    topic: str
    tenant: str = "default"
    #: No nominal time before it.
    start: int | None = None
    #: No nominal time after it; inclusive.
    until: int | None = None
    jitter_ms: int = 0
    catch_up: CatchUp = CatchUp.LATEST
    max_catch_up: int = 1000
    #: Later than this after its due an occurrence is skipped, never dispatched.
    expires_after_ms: int | None = None
    #: Names of calendars whose dates are skipped.
    exclude: tuple[str, ...] = ()
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    partition_key: str | None = None
    #: Which definition of the job the payload is for; a consumer may insist on one.
    definition: str | None = None

    def first_from(self, instant: int) -> int | None:
        """The first nominal time at or after the instant."""
        return self._within(max(instant, self.start or 0) - 1)

    def next_after(self, nominal: int) -> int | None:
        """The nominal time after this one."""
        return self._within(max(nominal, (self.start or 0) - 1))

    def nominal_times(self, first: int, end: int) -> Iterator[int]:
        """Nominal times in [first, end), in order."""
        nominal = self.first_from(first)
        while nominal is not None and nominal < end:
            yield nominal
            nominal = self.next_after(nominal)

    def due_of(self, schedule_id: str, nominal: int) -> int:
        """When the occurrence may be dispatched: its nominal time plus a jitter that is always the same for it."""
        if not self.jitter_ms:
            return nominal
        following = self.next_after(nominal)
        gap = None if following is None else following - nominal
        return nominal + jitter_ms(schedule_id, nominal, self.jitter_ms, gap)

    def _within(self, after: int) -> int | None:
        nominal = self.recurrence.after_ms(after)
        return None if nominal is None or (self.until is not None and nominal > self.until) else nominal


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Spec)


def encode_spec(spec: Spec) -> bytes:
    """The spec as JSON text; equal specs give equal text."""
    return _encoder.encode(spec)


def decode_spec(text: bytes) -> Spec:
    """The spec of a JSON text. Raises msgspec.DecodeError or InvalidSchedule where it is not one."""
    return _decoder.decode(text)


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `schedules`. Always written by a lightweight transaction with a fresh token."""

    schedule_id: str
    #: max(now in µs, previous + 1).
    version: int
    #: Settles whose write a row is after an unknown outcome.
    token: bytes
    state: State
    #: This version owns nominal times at or after it; ms UTC.
    since: int
    #: Versions this one replaced, newest first, each with the end of what it may still dispatch.
    replaced: tuple[tuple[int, int], ...] = ()
    #: How long change markers for replaced versions must live; ms UTC.
    until: int = 0
    spec: bytes
    payload: bytes = b""
    tenant: str = "default"
    #: The spec's, beside it so that schedules can be listed by it.
    topic: str = ""
    tags: frozenset[str] = frozenset()
    created_at: int
    updated_at: int
    note: str = ""

    def end_of(self, version: int) -> int | None:
        """Up to which nominal time this replaced version may still dispatch; None where it is not known here."""
        return next((end for replaced, end in self.replaced if replaced == version), None)


class ScheduleFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which schedules are meant: those that fit every field given; None: any."""

    tenant: str | None = None
    #: One of the schedule's tags.
    tag: str | None = None
    state: State | None = None
    topic: str | None = None

    def given(self) -> dict[str, str]:
        """The fields that restrict, as a store compares them."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: getattr(value, "value", value) for name, value in fields.items() if value is not None}

    def fits(self, row: ScheduleRow) -> bool:
        """Whether a row is meant."""
        return (
            self.tenant in {None, row.tenant}
            and self.topic in {None, row.topic}
            and self.state in {None, row.state}
            and (self.tag is None or self.tag in row.tags)
        )


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """Dates on which schedules that name it do not run; each schedule reads them on its own zone's clock.

    Written by a lightweight transaction with a fresh token, like a schedule.
    """

    name: str
    dates: frozenset[date]
    #: 1, and one more with each change.
    version: int
    token: bytes


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """A change marker: entries of this schedule older than `version`, nominal at or after `from_ms`, do not count."""

    schedule_id: str
    version: int
    from_ms: int
    #: The owner keeps it until committed passes this.
    until_ms: int
    #: Ask `schedules` first whether the change holds.
    verify: bool

    def ends(self, version: int, scheduled_for: int) -> bool:
        """Whether it ends an occurrence of that version; a timer is ended only by its own recall."""
        if version == TIMER_VERSION:
            return self.version == RECALL_VERSION and scheduled_for == self.from_ms
        return version < self.version and scheduled_for >= self.from_ms
