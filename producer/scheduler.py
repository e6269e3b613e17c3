"""The asynchronous client. `Scheduler` (blocking.py) is the same for code without an event loop.

A context manager that carries no state that matters, and may be used from many tasks at once. Repeating any call is
safe; after OutcomeUnknown it is the way to learn what became of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from datetime import date, datetime
from itertools import islice
from typing import Any

from tocsin.producer.apply import ApplyResult, declared_set, owned_rows, result_of_steps, rows_of, steps_to, take_steps
from tocsin.producer.calendars import Calendar, write_calendar
from tocsin.producer.change import Committed, Origin, Wish
from tocsin.producer.definition import (
    NewSchedule,
    check_note,
    check_schedule_id,
    check_topic,
    check_version,
    instant_of,
    names_of,
)
from tocsin.producer.extra_runs import Backfill, BackfillTerms, check_request_id, count_planned, require_living
from tocsin.producer.inquiries import Inquiries
from tocsin.producer.many import CreateResult, in_order, result_of
from tocsin.producer.results import Change, ChangeOutcome, OccurrenceVersion, Recall, Schedule
from tocsin.producer.timers import NewTimer, SendResult
from tocsin.producer.wishes import Cancel, Create, Pause, Resume, Update
from tocsin.schema.entries import Kind
from tocsin.schema.errors import (
    InvalidSchedule,
    OutcomeUnknown,
    StoreTimeout,
    StoreUnavailable,
)
from tocsin.schema.instants import ceil_ms
from tocsin.schema.recurrence import AnyRecurrence

#: Timers of one insert: enough for full packs in every sub-partition, few enough to wait for.
SEND_MAX = 10_000


class AsyncScheduler(Inquiries):
    """Creates and changes schedules. The arguments are those of StoreClient, what it can ask is in Inquiries.

    Every method may raise, beside what it names:
        InvalidSchedule: an argument is refused; nothing was written.
        StoreUnavailable: the store does not answer; nothing was changed.
        OutcomeUnknown: it stopped answering on the way; repeat the same call.
    """

    async def create(
        self, /, schedule_id: str | None, recurrence: AnyRecurrence, *, topic: str, **definition: Any
    ) -> Schedule:
        """Create a schedule; the further arguments are the fields of NewSchedule.

        Repeating it with equal content is harmless and returns the schedule.

        Args:
            schedule_id: 1–255 printable characters; None: a fresh one is made.
            recurrence: when it occurs.
            topic: where its occurrences go.
            **definition: see NewSchedule.

        Raises:
            InvalidSchedule: a field is refused; nothing was written.
            ScheduleExists: the id is taken by other content.
            OutcomeUnknown: repeat the same call (with the same id).
            Overloaded: the tenant creates faster than `creates_per_second` allows.
        """
        try:
            schedule = NewSchedule(schedule_id=schedule_id, recurrence=recurrence, topic=topic, **definition)
        except TypeError as error:
            raise InvalidSchedule("definition", sorted(definition), str(error)) from error
        known = self._identified(schedule)
        self._quotas.require(known.tenant)
        return await self._create(known, generated=known is not schedule)

    async def create_many(self, schedules: Iterable[NewSchedule]) -> AsyncGenerator[CreateResult, None]:
        """Create many schedules at once: a schedule or an error for each, in order.

        Some hundred are under way at a time; no more of the iterable is consumed before results are taken. Each is
        created as by `create`, and may be created again. What building an item raises, a NewSchedule that is refused
        say, ends the iteration; what was created before stays.
        """

        async def create(schedule: NewSchedule) -> CreateResult:
            known = self._identified(schedule)
            await self._quotas.wait(known.tenant)
            return await result_of(str(known.schedule_id), self._create(known, generated=known is not schedule))

        async for result in in_order(schedules, create):
            yield result

    async def apply(
        self, schedules: Iterable[NewSchedule], *, owner: str, prune: bool = False, dry_run: bool = False
    ) -> ApplyResult:
        """Make a declared set true: create, update and leave alone what it names, see `producer.apply`.

        Args:
            schedules: the whole set of this owner; no id twice.
            owner: whose; schedules it made carry the tag `owner:<owner>`.
            prune: cancel what carries the tag and is not in the set.
            dry_run: write nothing, and say what would be done.

        Raises:
            InvalidSchedule: something in the set is refused, or belongs to somebody else; nothing was written.
        """
        declared = declared_set(schedules, owner)
        for schedule in declared.values():
            self._topics.require(schedule.topic)
        _, deadline = await self._ready()
        for schedule in declared.values():
            await self._calendars.require(schedule.exclude or (), deadline=deadline)
        rows = await owned_rows(self._store, self._persistence, owner, deadline=deadline) if prune else {}
        rows |= await rows_of(self._store, self._persistence, declared, deadline=deadline)
        now, grace_ms = self._store_clock.now_ms(), self._timing.misfire_grace_ms
        steps = steps_to(declared, rows, owner, prune=prune, now=now, grace_ms=grace_ms)
        return result_of_steps(steps, {} if dry_run else await take_steps(steps, self._make))

    async def update(self, /, schedule_id: str, *, expected_version: int | None = None, **changes: Any) -> Change:
        """Change some fields of a schedule; what is not named stays.

        The new version owns nominal times from now on; what was nominal before still runs, once.

        Args:
            schedule_id: whose.
            expected_version: refuse where the schedule is at another one.
            **changes: fields of NewSchedule.

        Raises:
            VersionConflict: somebody else changed it first.
        """
        check_schedule_id(schedule_id)
        check_version(expected_version)
        if "topic" in changes:
            check_topic(changes["topic"])
            self._topics.require(changes["topic"])
        if "exclude" in changes:
            _, deadline = await self._ready()
            await self._calendars.require(names_of("exclude", changes["exclude"] or ()), deadline=deadline)
        wish = Update(schedule_id, changes, grace_ms=self._timing.misfire_grace_ms, expected_version=expected_version)
        return await self._change(schedule_id, wish)

    async def pause(self, schedule_id: str, *, note: str = "") -> Change:
        """Stop a schedule until it is resumed; everything pending is dropped."""
        check_schedule_id(schedule_id)
        check_note(note)
        return await self._change(schedule_id, Pause(schedule_id, note))

    async def resume(self, schedule_id: str, *, resume_from: datetime | None = None) -> Change:
        """Go on with a paused schedule.

        Args:
            schedule_id: whose.
            resume_from: its first nominal time lies at or after it, timezone-aware; what lies in the past is missed,
                and the catch-up policy decides. Default: now, nothing missed.
        """
        check_schedule_id(schedule_id)
        wish = Resume(schedule_id, instant_of("resume_from", resume_from), self._timing.misfire_grace_ms)
        return await self._change(schedule_id, wish)

    async def cancel(self, schedule_id: str) -> Change:
        """End a schedule for good; the row stays for audit. Cancelling it again is harmless."""
        check_schedule_id(schedule_id)
        return await self._change(schedule_id, Cancel(schedule_id))

    async def is_current(self, received: OccurrenceVersion) -> bool:
        """Whether an occurrence that a consumer received is of its schedule's current version.

        It is not once the schedule was updated, paused, resumed or cancelled after the occurrence was dispatched, or a
        moment before. A timer has no versions and is always current. This is a serial read: for those who must not act
        on what has been replaced, not for each record.

        Args:
            received: a `Received`.
        """
        if received.kind is Kind.TIMER:
            return True
        row = await self._row_if_any(received.schedule_id)
        return row is not None and row.version == received.version

    async def trigger(self, schedule_id: str, *, request_id: str | None = None) -> str:
        """Run a schedule once, now, beside its rule; also while it is paused. Returns the occurrence key.

        Args:
            schedule_id: whose.
            request_id: the same one twice is one occurrence; None: a fresh one.

        Raises:
            OutcomeUnknown: trigger it again with the same request id.
        """
        check_schedule_id(schedule_id)
        request_id = self._generated_id() if request_id is None else request_id
        check_request_id(request_id)
        row = require_living(await self._row(schedule_id))
        _, deadline = await self._ready()
        return await self._runner().trigger(row, request_id, deadline=deadline)

    async def backfill(
        self,
        schedule_id: str,
        start: datetime,
        end: datetime,
        *,
        per_second: int = 100,
        request_id: str | None = None,
        dry_run: bool = False,
    ) -> Backfill:
        """Run a schedule's nominal times in [start, end) again, with the keys they had; also while it is paused.

        Args:
            schedule_id: whose.
            start: inclusive, timezone-aware.
            end: exclusive, timezone-aware.
            per_second: occurrences a second at most.
            request_id: the same one twice is one backfill; None: a fresh one.
            dry_run: only count.

        Raises:
            OutcomeUnknown: backfill it again with the same request id.
        """
        check_schedule_id(schedule_id)
        request_id = self._generated_id() if request_id is None else request_id
        check_request_id(request_id)
        row = require_living(await self._row(schedule_id))
        now = self._store_clock.now_ms()
        # The caller's now may be a little ahead of the store's.
        until = ceil_ms(end, field="end")
        window = ceil_ms(start, field="start"), now if now < until <= now + self._timing.skew_ms_max else until
        count = count_planned(row, window, per_second, now)
        if not dry_run:
            _, deadline = await self._ready()
            terms = BackfillTerms(request_id, window[1], per_second)
            await self._runner().backfill(row, window, terms, deadline=deadline)
        return Backfill(request_id, count, count / per_second)

    async def send_at(
        self, /, topic: str, payload: bytes = b"", *, at: datetime, timer_id: str | None = None, **definition: Any
    ) -> str:
        """Send one record at an instant: a timer, one write. Returns its occurrence key, which `recall` takes.

        Args:
            topic: where it goes.
            payload: at most 64 KiB.
            at: when; timezone-aware.
            timer_id: like a schedule id; None: a fresh one. The same id and instant twice is one occurrence.
            **definition: further fields of NewTimer.

        Raises:
            InvalidSchedule: an argument is refused; nothing was written.
            OutcomeUnknown: send the same again, with the same id.
        """
        if timer_id is None:
            timer_id = self._generated_id()
        try:
            timer = NewTimer(timer_id=timer_id, topic=topic, payload=payload, at=at, **definition)
        except TypeError as error:
            raise InvalidSchedule("definition", sorted(definition), str(error)) from error
        async for result in self.send_many([timer]):
            if result.error is not None:
                raise result.error
            if result.key is not None:
                return result.key
        raise OutcomeUnknown(timer_id)

    async def send_many(self, timers: Iterable[NewTimer]) -> AsyncIterator[SendResult]:
        """Send many timers in packs; a key or an error for each, in order. The iterable is read a little ahead."""
        remaining = iter(timers)
        while part := list(islice(remaining, SEND_MAX)):
            _, deadline = await self._ready()
            for result in await self._sender().send_each(part, deadline=deadline):
                yield result

    async def recall(self, key: str) -> Recall:
        """Take a timer back by its occurrence key. Recalling it again is harmless.

        `prevented` says that nothing of this key will be dispatched from now on. It does not say that there was such a
        timer: a timer has no row to look for, and a key that nobody ever sent is prevented too.

        Raises:
            InvalidSchedule: it is not an occurrence key.
            OutcomeUnknown: recall it again.
        """
        _, deadline = await self._ready()
        try:
            prevented = await self._sender().recall(key, deadline=deadline)
        except (StoreTimeout, StoreUnavailable) as error:
            raise OutcomeUnknown(key) from error
        outcome = ChangeOutcome.PREVENTED if prevented else ChangeOutcome.POSSIBLY_DISPATCHED
        return Recall(outcome=outcome, uncertain=() if prevented else (key,))

    async def set_calendar(self, name: str, dates: Iterable[date]) -> Calendar:
        """Make a calendar, or replace its dates: schedules whose `exclude` names it do not run on them.

        It holds for occurrences due a minute from now or later. Setting it again is harmless.

        Raises:
            InvalidSchedule: the name or a date is refused; nothing was written.
            OutcomeUnknown: set it again.
        """
        _, deadline = await self._ready()
        calendar = await write_calendar(
            self._store, self._persistence, name, dates, new_token=self._new_id, deadline=deadline
        )
        self._calendars.expire()
        return calendar

    def _identified(self, schedule: NewSchedule) -> NewSchedule:
        """The schedule itself, or one with a fresh id where it has none."""
        if schedule.schedule_id is not None:
            return schedule
        return dataclasses.replace(schedule, schedule_id=self._generated_id())

    async def _create(self, schedule: NewSchedule, *, generated: bool) -> Schedule:
        self._topics.require(schedule.topic)
        _, deadline = await self._ready()
        await self._calendars.require(schedule.exclude or (), deadline=deadline)
        wish = Create(schedule, self._timing.misfire_grace_ms)
        origin = Origin.GENERATED if generated else Origin.NEW
        committed = await self._make(str(schedule.schedule_id), wish, origin)
        return await self._shown_after(committed)

    async def _change(self, schedule_id: str, wish: Wish) -> Change:
        committed = await self._make(schedule_id, wish)
        prevented = committed.uncertain == ()
        return Change(
            schedule=await self._shown_after(committed),
            outcome=ChangeOutcome.PREVENTED if prevented else ChangeOutcome.POSSIBLY_DISPATCHED,
            uncertain=committed.uncertain or (),
        )

    async def _shown_after(self, committed: Committed) -> Schedule:
        """What a change has made; where it cannot be shown any more, the change holds all the same."""
        try:
            return await self._shown(committed.row)
        except StoreUnavailable as error:
            raise OutcomeUnknown(committed.row.schedule_id) from error

    async def _make(self, schedule_id: str, wish: Wish, origin: Origin = Origin.THERE) -> Committed:
        changes, deadline = await self._ready()
        return await changes.make(schedule_id, wish, deadline=deadline, origin=origin)
