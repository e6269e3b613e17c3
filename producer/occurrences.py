"""What became of a schedule's occurrences, and what is to come of them: derived, for no history is kept.

What is known, and from where:

    the rule        which occurrences a version owns: from `since` on; of a replaced one, up to its end in `replaced`
    committed       everything due up to it has had its turn, but for what lies on near further on
    entries         stay readable for retention after their due (traces.py). One at a position beyond committed waits.
                    A re-armed one tells of what came before it: the last occurrence of the run, why that one was
                    skipped if it was, and where the run began; what the chain stepped over before that was missed
    dead letters    what could not be published, and why
    change markers  what fell due at or after the position of a confirmed one was not dispatched

and so, in this order:

    failed          there is a dead letter of it (replayed or not)
    armed           an entry of it waits, or is on its way out
    upcoming        the schedule will come to it after the armed one
    stranded        the schedule should have an entry of it waiting and has none: `tocsin audit` arms it again
    skipped         committed, and what came after says that it was missed, expired, or on an excluded date
    dispatched      committed, and what came after says that it was not skipped; or it was the last one and could not be
    cancelled       its version was ended before it fell due
    passed          committed, or its version ended as it fell due; nothing stored tells what became of it

Not known: whether the *last* occurrence of a rule, after which nothing is armed, was skipped, where its policy could
skip it; the same of those in the middle of a row of late ones, where calendars or an expiry could; what an update made
of them more than eight changes ago; and what a backfill has dispatched again. Then the answer is `passed`, never a
guess. An occurrence that waits says so by what is stored now: a calendar set until its turn can still exclude it.

A key stands once. Where several versions owned it, a resume from the past say, what is to come by the newest one is
told, else what went out by any. Nothing here reads a clock's word for
what happened, so the same question has the same answer for as long as entries are kept.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice

from tocsin.producer.traces import Trace
from tocsin.schema.entries import OccurrenceKey, occurrence_key
from tocsin.schema.instants import to_datetime
from tocsin.schema.recurrence import Once, excluded
from tocsin.schema.schedules import CatchUp, ScheduleRow, Spec, State, decode_spec
from tocsin.schema.store import Frontier, PlacedMarker

#: No end.
FOR_EVER = 1 << 62


class Fate(enum.Enum):
    """What became of an occurrence, or is to come of it; see the module's text."""

    UPCOMING = "upcoming"
    ARMED = "armed"
    DISPATCHED = "dispatched"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    FAILED = "failed"
    STRANDED = "stranded"
    PASSED = "passed"


@dataclass(frozen=True, kw_only=True)
class OccurrenceStatus:
    """One occurrence and its fate. Times are UTC."""

    key: OccurrenceKey
    scheduled_for: datetime
    #: The nominal time with its jitter.
    due: datetime
    #: Which version of the schedule it is of.
    version: int
    fate: Fate
    #: Why; empty where the fate says it all.
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that is stored about a schedule, read in this order: row, frontier, and then the rest."""

    row: ScheduleRow
    frontier: Frontier
    #: By version, each in order.
    chains: Mapping[int, Sequence[Trace]]
    triggered: Sequence[Trace]
    #: Reasons by occurrence key.
    letters: Mapping[str, str]
    markers: Sequence[PlacedMarker]
    #: Dates of its calendars, as they are now.
    dates: frozenset[date]
    #: A change without a confirmed marker holds this long after its instant at the latest, in ms.
    commit_ms: int


@dataclass(frozen=True)
class _Occurrence:
    """One nominal time of one version, with what is known around it."""

    scheduled_for: int
    due: int
    version: int
    #: Its own entry.
    own: Trace | None
    #: The next entry of the chain that tells of it.
    after: Trace | None
    #: Where the next entry of the version stands, whatever it tells.
    next_own: int = FOR_EVER

    @property
    def is_behind(self) -> bool:
        """Whether the chain has gone on from it, or from a later one."""
        return self.after is not None and self.after.entry.previous >= self.scheduled_for


class _Chain:
    """The occurrences of one version."""

    def __init__(self, evidence: Evidence, version: int, spec: Spec | None, end: int | None) -> None:
        self._evidence = evidence
        self._version = version
        self._spec = spec
        #: Up to where the version owns; None: it is not known.
        self._end = end
        self._traces = evidence.chains.get(version, ())
        self._times = [trace.entry.scheduled_for for trace in self._traces]
        self._head = next((trace for trace in self._traces if trace.waits(evidence.frontier)), None)

    def fates(self, start: int, end: int) -> Iterator[OccurrenceStatus]:
        """Of nominal times in [start, end), ms UTC, in order."""
        for nominal in self._nominal_times(start, end):
            at = bisect_right(self._times, nominal)
            own = self._traces[at - 1] if at and self._times[at - 1] == nominal else None
            after = self._after(at)
            due = own.entry.due if self._spec is None and own else self._due_of(nominal)
            next_own = self._times[at] if at < len(self._times) else FOR_EVER
            occurrence = _Occurrence(nominal, due, self._version, own, after, next_own)
            fate, reason = self._fate(occurrence)
            if own is None and fate is Fate.CANCELLED:
                continue  # It was never armed, and now it never will be.
            key = occurrence_key(self._evidence.row.schedule_id, nominal)
            yield OccurrenceStatus(
                key=key,
                scheduled_for=to_datetime(nominal),
                due=to_datetime(due),
                version=self._version,
                fate=fate,
                reason=reason,
            )

    def _after(self, at: int) -> Trace | None:
        """The next trace; where somebody armed the schedule anew, the next one that tells of what came before it."""
        told = next((trace for trace in islice(self._traces, at, None) if trace.entry.previous), None)
        if told is not None and (not at or told.entry.previous >= self._times[at - 1]):
            return told
        return self._traces[at] if at < len(self._traces) else None

    def _nominal_times(self, start: int, end: int) -> Iterator[int]:
        if self._version == self._evidence.row.version and self._spec is not None:
            yield from self._spec.nominal_times(max(start, self._evidence.row.since), end)
        elif self._spec is not None and self._times:
            # Of a replaced version: from its first trace on, for nobody knows when it began, until it was replaced.
            through = max(self._times[-1] + 1, self._replaced_by())
            yield from self._spec.nominal_times(max(start, self._times[0]), min(end, through))
        else:
            yield from (nominal for nominal in self._times if start <= nominal < end)

    def _replaced_by(self) -> int:
        """When the next version holds at the latest, ms UTC."""
        row = self._evidence.row
        versions = (row.version, *(version for version, _ in row.replaced), *self._evidence.chains)
        following = min(version for version in versions if version > self._version)
        return following // 1000 + self._evidence.commit_ms

    def _fate(self, of: _Occurrence) -> tuple[Fate, str]:
        key = occurrence_key(self._evidence.row.schedule_id, of.scheduled_for)
        if key in self._evidence.letters:
            return Fate.FAILED, self._evidence.letters[key]
        if of.is_behind and of.due <= self._evidence.frontier.committed:
            return self._behind(of)
        if self._end is None or of.scheduled_for >= self._end:
            return _ended(self._evidence, of.version, of.scheduled_for, of.due)
        if of.own is not None and (of.own.waits(self._evidence.frontier) or of.due > self._evidence.frontier.committed):
            return Fate.ARMED, self._waiting_because(of)
        if of.due > self._evidence.frontier.committed:
            return self._to_come(of)
        return self._last_or_lost(of)

    def _waiting_because(self, of: _Occurrence) -> str:
        if of.due <= self._evidence.frontier.committed:
            return "waits for another try"
        return self._excluded_now(of.scheduled_for)

    def _to_come(self, of: _Occurrence) -> tuple[Fate, str]:
        if self._head is None:
            return Fate.STRANDED, "nothing of the schedule waits; run: tocsin audit"
        if self._head.entry.scheduled_for > of.scheduled_for and not self._head.entry.previous:
            return Fate.STRANDED, "it was never armed; the schedule was armed again after it"
        return Fate.UPCOMING, self._excluded_now(of.scheduled_for)

    def _behind(self, of: _Occurrence) -> tuple[Fate, str]:
        """What came after tells of it."""
        assert of.after is not None  # noqa: S101 — the chain has gone on
        told = of.after.entry
        if told.previous == of.scheduled_for:
            return (Fate.SKIPPED, told.skipped) if told.skipped else (Fate.DISPATCHED, "")
        if of.scheduled_for < told.chosen:
            if of.next_own <= told.chosen:
                return Fate.PASSED, "the schedule was armed again while it waited"
            return Fate.SKIPPED, "missed"
        if told.chosen and not self._can_be_passed_over():
            return Fate.DISPATCHED, ""
        return Fate.PASSED, "went by in a row of late ones: dispatched or skipped"

    def _last_or_lost(self, of: _Occurrence) -> tuple[Fate, str]:
        """Committed, and the chain has not gone on from it."""
        if of.after is not None and of.own is None:
            if of.after.entry.previous:
                return Fate.SKIPPED, "missed"  # the chain stepped over it
            return Fate.STRANDED, "it was never armed; the schedule was armed again after it"
        if of.own is None:
            if self._head is None and not self._times:
                return Fate.STRANDED, "nothing of the schedule waits; run: tocsin audit"
            return Fate.PASSED, "no trace of it is left"
        if not self._is_last(of.scheduled_for):
            return Fate.PASSED, "what followed it is not on record"
        spec = self._spec
        could_be_missed = spec is None or (spec.catch_up is CatchUp.SKIP and not isinstance(spec.recurrence, Once))
        if could_be_missed or self._can_be_passed_over():
            return Fate.PASSED, "was the last one: dispatched or skipped"
        return Fate.DISPATCHED, ""

    def _is_last(self, nominal: int) -> bool:
        following = None if self._spec is None else self._spec.next_after(nominal)
        return following is None or (self._end is not None and following >= self._end)

    def _can_be_passed_over(self) -> bool:
        return self._spec is None or self._spec.expires_after_ms is not None or bool(self._spec.exclude)

    def _excluded_now(self, nominal: int) -> str:
        if self._spec is None or not self._evidence.dates:
            return ""
        zone = self._spec.recurrence.zone_name
        return "excluded by its calendars as they are now" if excluded(self._evidence.dates, nominal, zone) else ""

    def _due_of(self, nominal: int) -> int:
        return nominal if self._spec is None else self._spec.due_of(self._evidence.row.schedule_id, nominal)


def derive(evidence: Evidence, start: int, end: int) -> Iterator[OccurrenceStatus]:
    """Every occurrence nominal in [start, end), ms UTC, in order, each key once.

    What lies beyond every trace is walked as it is taken, so the end may be far.
    """
    row, spec = evidence.row, decode_spec(evidence.row.spec)
    settled: dict[str, OccurrenceStatus] = {}
    for version in sorted(evidence.chains):
        if version != row.version and _took_effect(evidence, version):
            chain = _Chain(evidence, version, _spec_of(evidence.chains[version]), row.end_of(version))
            for status in chain.fates(start, end):
                _prefer(settled, status)
    for trace in evidence.triggered:
        if start <= trace.entry.scheduled_for < end:
            _prefer(settled, _of_trigger(evidence, trace))
    older = iter(sorted(settled.values(), key=lambda status: status.scheduled_for))
    current: Iterator[OccurrenceStatus] = iter(())
    if row.state is State.ACTIVE:
        current = _Chain(evidence, row.version, spec, FOR_EVER).fates(start, end)
    yield from _merged(older, current)


def _prefer(settled: dict[str, OccurrenceStatus], status: OccurrenceStatus) -> None:
    """Versions come oldest first."""
    settled[status.key] = _of_two(settled.get(status.key), status)


def _of_two(older: OccurrenceStatus | None, newer: OccurrenceStatus) -> OccurrenceStatus:
    """What two versions say of one key: what is to come by the newer one, else what went out, or may have."""
    if older is None or newer.fate in {Fate.ARMED, Fate.UPCOMING, Fate.DISPATCHED}:
        return newer
    if newer.fate is Fate.CANCELLED or older.fate in {Fate.DISPATCHED, Fate.PASSED}:
        return older
    return newer


def _merged(older: Iterator[OccurrenceStatus], current: Iterator[OccurrenceStatus]) -> Iterator[OccurrenceStatus]:
    """Both in order, each key once."""
    waiting = next(older, None)
    for status in current:
        while waiting is not None and waiting.scheduled_for < status.scheduled_for:
            yield waiting
            waiting = next(older, None)
        if waiting is not None and waiting.key == status.key:
            yield _of_two(waiting, status)
            waiting = next(older, None)
        else:
            yield status
    while waiting is not None:
        yield waiting
        waiting = next(older, None)


def _took_effect(evidence: Evidence, version: int) -> bool:
    """Whether a version other than the current one was ever committed: else its marked entries mean nothing."""
    row = evidence.row
    if row.end_of(version) is not None:
        return True
    return version < row.version and any(not trace.entry.verify for trace in evidence.chains[version])


def _spec_of(chain: Sequence[Trace]) -> Spec | None:
    """What a replaced version said; a pointer does not tell."""
    text = next((trace.entry.spec for trace in chain if trace.entry.spec), b"")
    return decode_spec(text) if text else None


def _of_trigger(evidence: Evidence, trace: Trace) -> OccurrenceStatus:
    fate, reason = _trigger_fate(evidence, trace)
    return OccurrenceStatus(
        key=trace.entry.key,
        scheduled_for=to_datetime(trace.entry.scheduled_for),
        due=to_datetime(trace.entry.due),
        version=trace.entry.version,
        fate=fate,
        reason=reason,
    )


def _trigger_fate(evidence: Evidence, trace: Trace) -> tuple[Fate, str]:
    entry = trace.entry
    if entry.key in evidence.letters:
        return Fate.FAILED, evidence.letters[entry.key]
    if entry.version != evidence.row.version:
        end = evidence.row.end_of(entry.version)
        if end is None or entry.scheduled_for >= end:
            return _ended(evidence, entry.version, entry.scheduled_for, entry.due)
    if trace.waits(evidence.frontier):
        return Fate.ARMED, ""
    if entry.spec and decode_spec(entry.spec).expires_after_ms is None:
        return Fate.DISPATCHED, ""
    return Fate.PASSED, "dispatched, or skipped as expired"


def _ended(evidence: Evidence, version: int, scheduled_for: int, due: int) -> tuple[Fate, str]:
    """Of a version that a change has ended: cancelled from the change's marker on; before it, it may have gone out."""
    row = evidence.row
    confirmed = [
        position
        for position, marker in evidence.markers
        if not marker.verify and marker.ends(version, scheduled_for) and marker.version <= row.version
    ]
    changed_at = row.version // 1000 + evidence.commit_ms
    if due >= min(confirmed, default=changed_at):
        verb = {State.PAUSED: "paused", State.CANCELLED: "cancelled", State.ACTIVE: "changed"}[row.state]
        return Fate.CANCELLED, f"the schedule was {verb} before"
    return Fate.PASSED, "fell due before the schedule was changed: dispatched or dropped"
