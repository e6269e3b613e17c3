"""Occurrences beside the rule: timers and their recalls, triggers, backfills. Their clients, and what they are owed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Literal, Protocol

from simulation.check_dispatch import IN_FLIGHT_MS, Violation
from simulation.clocks import EPOCH_MS, HostClock
from simulation.history import ExtraPromise, History
from simulation.scenario import ACT_MS, Call, Event, ExtraRun, Wanted
from simulation.traps import Trap
from tocsin.producer.results import ChangeOutcome
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.entries import Kind, occurrence_key
from tocsin.schema.errors import InvalidSchedule, OutcomeUnknown, StoreTimeout, StoreUnavailable
from tocsin.schema.instants import to_datetime

#: How often a call is repeated while its outcome is unknown.
REPEATS_MAX = 4
#: The period of the schedules that are triggered and backfilled; they begin long before the run.
PERIOD_MS = 20_000
PAST_MS = 400_000


class Client(Protocol):
    """What makes these calls: a process with a scheduler and a clock."""

    history: History

    def scheduler(self) -> AsyncScheduler:
        """A scheduler of this process."""

    def clock(self) -> HostClock:
        """The clocks of its host."""


def generate(random: Random) -> list[Event]:
    """A few of each kind; the schedules that are triggered live undisturbed."""
    events: list[Event] = []
    for number in range(random.randint(2, 8)):
        at = random.randint(2_000, ACT_MS)
        due = at + random.choice((-500, 100, 700, 3_000, 8_000, 25_000, 70_000)) + random.randint(0, 2_000)
        recall = random.choice((None, None, at + random.randint(50, 6_000), due - random.randint(-200, 2_000)))
        kill = Trap(action="kill", call="write_pack", spared=random.randint(0, 2), sent=random.random() < 0.6)
        traps = (kill,) if random.random() < 0.15 else ()
        timer = ExtraRun(at_ms=at, operation="send", name=f"t{number}", due_ms=due, recall_ms=recall, traps=traps)
        events.append(timer)
    for number in range(random.randint(1, 2)):
        name = f"x{number}"
        wanted = Wanted(period_ms=PERIOD_MS, anchor_ms=-PAST_MS, topic="even")
        created = random.randint(1_000, 5_000)
        events.append(Call(at_ms=created, operation="create", schedule_id=name, wanted=wanted))
        for _ in range(random.randint(1, 3)):
            operation: Literal["trigger", "backfill"] = random.choice(("trigger", "trigger", "backfill"))
            at = random.randint(created + 4_000, ACT_MS)
            events.append(ExtraRun(at_ms=at, operation=operation, name=name, repeats=random.choice((0, 0, 1))))
    return events


async def make(run: ExtraRun, client: Client) -> None:
    """Make the call, again while its outcome is unknown, and write down what was promised."""
    history = client.history
    for _ in range(1 + REPEATS_MAX):
        try:
            async with client.scheduler() as scheduler:
                await _make(run, scheduler, client)
        except (OutcomeUnknown, StoreUnavailable, StoreTimeout) as error:
            history.note(f"{run.operation} of {run.name} has no outcome: {error!r}")
        except InvalidSchedule as error:
            history.refused.append(type(error).__name__)
            return
        else:
            return


async def _make(run: ExtraRun, scheduler: AsyncScheduler, client: Client) -> None:
    history, request_id = client.history, f"r{run.at_ms}"
    if run.operation == "send":
        due = EPOCH_MS + run.due_ms
        key = await scheduler.send_at("odd", b"p", at=to_datetime(due), timer_id=run.name)
        history.extra_promises.append(ExtraPromise(history.now_ms(), "send", (key,)))
        if run.recall_ms is not None:
            await client.clock().sleep_ms(round(EPOCH_MS + run.recall_ms - history.now_ms()))
            history.extra_promises.append(ExtraPromise(history.now_ms(), "recall begun", (key,)))
            answer = await scheduler.recall(key)
            word = "prevented" if answer.outcome is ChangeOutcome.PREVENTED else "recalled late"
            history.extra_promises.append(ExtraPromise(history.now_ms(), word, (key,)))
            history.note(f"{run.name}@{due} is {word}")
        return
    for _ in range(1 + run.repeats):
        if run.operation == "trigger":
            keys: tuple[str, ...] = (await scheduler.trigger(run.name, request_id=request_id),)
        else:
            end = int(history.now_ms()) - PERIOD_MS
            start = end - 7 * PERIOD_MS
            first = -(-(start - EPOCH_MS + PAST_MS) // PERIOD_MS) * PERIOD_MS + EPOCH_MS - PAST_MS
            window = to_datetime(start), to_datetime(end)
            await scheduler.backfill(run.name, *window, per_second=3, request_id=request_id)
            keys = tuple(occurrence_key(run.name, at) for at in range(first, end, PERIOD_MS))
        history.extra_promises.append(ExtraPromise(history.now_ms(), run.operation, keys))


def extra_runs_arrive(history: History) -> Iterator[Violation]:
    """What was acknowledged arrives, unless it was recalled; what a recall prevented never does."""
    arrived: defaultdict[str, list[float]] = defaultdict(list)
    for delivery in history.extra_deliveries:
        if delivery.arrived:
            key = occurrence_key(delivery.schedule_id, delivery.scheduled_for, delivery.request)
            arrived[key].append(delivery.at_ms)
    recalled = {
        key
        for promise in history.extra_promises
        if promise.what in {"prevented", "recalled late", "recall begun"}
        for key in promise.keys
    }
    for promise in history.extra_promises:
        for key in promise.keys:
            schedule_id = key.rpartition("@")[0]
            if promise.what == "prevented" and arrived[key]:
                yield Violation("recalled and dispatched", schedule_id, key, arrived[key][0])
            owed = promise.what in {"send", "trigger", "backfill"} and key not in recalled
            if owed and not arrived[key] and _time_has_come(history, promise, key):
                yield Violation(f"{promise.what} lost", schedule_id, key, promise.at_ms)


def extra_runs_are_few(history: History) -> Iterator[Violation]:
    """A run that no fault disturbed happens once: the same request or timer twice is one occurrence."""
    if history.disturbances:
        return
    counts: defaultdict[tuple[str, int], int] = defaultdict(int)
    for delivery in history.extra_deliveries:
        if delivery.kind == Kind.TIMER:
            counts[delivery.schedule_id, delivery.scheduled_for] += 1
    for (schedule_id, scheduled_for), count in counts.items():
        if count > 1:
            text = f"{schedule_id}@{scheduled_for} dispatched {count} times"
            yield Violation("timer repeated", schedule_id, text, scheduled_for)


def _time_has_come(history: History, promise: ExtraPromise, key: str) -> bool:
    deadline = history.end_ms - IN_FLIGHT_MS
    if promise.what != "send":
        return promise.at_ms < history.quiet_ms
    return occurrence_key("", int(deadline)) > f"@{key.rpartition('@')[2]}"
