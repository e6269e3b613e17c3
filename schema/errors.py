"""Every error Tocsin raises, under one root.

The docstring of a class is its default message and tells the caller what to do; the fields are typed, so that nobody
has to parse text. `retriable` says whether the same call may succeed later without any change. An outcome that is not
known is its own error, never a failure: see `OutcomeUnknown`.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar


class TocsinError(Exception):
    """Tocsin could not do what was asked."""

    #: True where the same call may succeed later, unchanged.
    retriable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or "").partition("\n\n")[0].replace("\n", " "))


class InvalidSchedule(TocsinError, ValueError):
    """The schedule is refused and nothing was written; correct the named field."""

    def __init__(self, field: str, value: Any, reason: str) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        super().__init__(f"{field}: {reason}")


class NeverOccurs(InvalidSchedule):
    """The recurrence has no occurrence at all; check its dates, start and until."""


class InstantInPast(InvalidSchedule):
    """The instant has passed already; choose a later one."""


class PayloadTooLarge(InvalidSchedule):
    """The payload is larger than the limit; store it elsewhere and schedule a reference."""


class TopicNotAllowed(InvalidSchedule):
    """The topic is not on the list of allowed topics; ask the operator to add it."""


class ScheduleExists(TocsinError):
    """A schedule with this id and other content exists; update it, or choose another id."""

    def __init__(self, schedule_id: str, existing: Any = None, *, cancelled: bool = False) -> None:
        self.schedule_id = schedule_id
        self.existing = existing
        #: It was cancelled, whatever its content: the id stays taken, for its past occurrences bear it.
        self.cancelled = cancelled
        if cancelled:
            message = f"schedule {schedule_id!r} was cancelled; nothing was changed. Choose another id, for this one "
            message += "stays with its past; only `apply` brings back what it declares."
        else:
            message = f"schedule {schedule_id!r} exists with other content; nothing was changed. "
            message += "Update it, or choose another id."
        super().__init__(message)


class ScheduleNotFound(TocsinError, LookupError):
    """There is no schedule with this id; check its spelling with `tocsin list`."""

    def __init__(self, schedule_id: str, *, what: str = "schedule") -> None:
        self.schedule_id = schedule_id
        super().__init__(f"there is no {what} {schedule_id!r}. Check its spelling.")


class VersionConflict(TocsinError):
    """Another writer changed the schedule first; read it again and repeat the change on what you find."""

    def __init__(self, schedule_id: str, expected: int | None, actual: int | None) -> None:
        self.schedule_id = schedule_id
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"schedule {schedule_id!r} is at version {actual}, expected was {expected}; nothing was changed. "
            "Read it again and repeat the change on what you find."
        )


class OutcomeUnknown(TocsinError):
    """The store did not answer in time, so the change may or may not hold; repeat the same call to settle it."""

    retriable = True

    def __init__(self, schedule_id: str) -> None:
        self.schedule_id = schedule_id
        super().__init__(
            f"the store did not answer in time: whether the change of {schedule_id!r} holds is not known. "
            "Repeat the same call; it settles the outcome."
        )


class StoreUnavailable(TocsinError):
    """The store cannot be reached, or too few of its replicas answer; nothing was changed. Try again later."""

    retriable = True


class StoreTimeout(TocsinError):
    """The store did not acknowledge in time: the write may hold or not.

    Raised between a store and the protocol only. The protocol writes the same thing again, or settles the outcome by
    its token; a caller sees OutcomeUnknown.
    """

    retriable = True


class Overloaded(TocsinError):
    """Too many requests at once; wait as long as `retry_after_ms` says and repeat the call."""

    retriable = True

    def __init__(self, retry_after_ms: int) -> None:
        self.retry_after_ms = retry_after_ms
        super().__init__(f"too many requests at once; repeat the call in {retry_after_ms} ms.")


class SettingsError(TocsinError):
    """A setting is missing, malformed or contradicts another one; correct it."""


class ClockSkew(TocsinError):
    """The host's clock and the store's differ by more than allowed; set the clocks, nothing is sealed until then."""

    retriable = True

    def __init__(self, skew_ms: int, limit_ms: int) -> None:
        self.skew_ms = skew_ms
        self.limit_ms = limit_ms
        super().__init__(
            f"the host's clock and the store's differ by {skew_ms} ms, allowed are {limit_ms} ms. "
            "Set the clocks (chrony, NTP); nothing is sealed until they agree."
        )


class NotInitialised(TocsinError):
    """The store holds no Tocsin tables yet; run: tocsin init URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"the store {url} is not initialised; run: tocsin init {url}")


class ForeignRecord(TocsinError, ValueError):
    """The record is none that Tocsin dispatched; keep other records off the topic, or pass them over."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"this is no record that Tocsin dispatched: {reason}.")


class ClaimHeld(TocsinError):
    """Another consumer is at work on it and does not finish; commit no offset, and take the record again later."""

    retriable = True

    def __init__(self, subscription: str, name: str) -> None:
        self.subscription = subscription
        self.name = name
        super().__init__(
            f"{name!r} of subscription {subscription!r} is in another consumer's hands, which does not finish. "
            "Commit no offset; take the record again later."
        )


class ClaimLost(TocsinError):
    """The block ran longer than its claim was renewed, so another consumer may have done the same work meanwhile."""

    def __init__(self, subscription: str, name: str) -> None:
        self.subscription = subscription
        self.name = name
        super().__init__(
            f"the claim on {name!r} of subscription {subscription!r} expired while its block ran: another consumer may "
            "have done the same. Check what both did; raise `abandoned_after` where the host stands still for so long."
        )
