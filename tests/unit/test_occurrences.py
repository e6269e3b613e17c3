"""What `occurrences` says, held against what the shipped dispatcher did: in virtual time, with outages and changes."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

import pytest

from tocsin import CatchUp, Cron, Every, Fate, InvalidSchedule, OccurrenceStatus, Once, ScheduleNotFound, Workbench
from tocsin.dispatcher.publisher import Outcome, Record

START = datetime(2026, 12, 1, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def bench() -> Iterator[Workbench]:
    with Workbench(start=START) as bench:
        yield bench


def told(bench: Workbench, schedule_id: str, *, until: datetime | None = None) -> list[OccurrenceStatus]:
    return list(bench.scheduler.occurrences(schedule_id, since=START, until=until))


def in_short(statuses: list[OccurrenceStatus]) -> list[tuple[int, Fate, str]]:
    """Minutes from the start, fate and reason."""
    return [((status.scheduled_for - START) // MINUTE, status.fate, status.reason) for status in statuses]


def test_a_schedule_that_runs_has_dispatched_armed_and_upcoming_ones(bench: Workbench) -> None:
    bench.scheduler.create("s", Every(10 * MINUTE, anchor=START + MINUTE), topic="t")
    keys = [record.key for record in bench.advance(25 * MINUTE)]
    statuses = told(bench, "s", until=START + timedelta(hours=1))
    assert in_short(statuses) == [
        (1, Fate.DISPATCHED, ""),
        (11, Fate.DISPATCHED, ""),
        (21, Fate.DISPATCHED, ""),
        (31, Fate.ARMED, ""),
        (41, Fate.UPCOMING, ""),
        (51, Fate.UPCOMING, ""),
    ]
    assert [status.key for status in statuses if status.fate is Fate.DISPATCHED] == keys
    assert told(bench, "s") == statuses[:4]
    bench.advance(timedelta(hours=1))
    assert told(bench, "s", until=START + 30 * MINUTE) == statuses[:3]


def test_a_once_is_armed_and_then_dispatched(bench: Workbench) -> None:
    bench.scheduler.create("s", Once(START + 30 * MINUTE), topic="t")
    assert in_short(told(bench, "s")) == [(30, Fate.ARMED, "")]
    bench.advance(timedelta(hours=1))
    assert in_short(told(bench, "s")) == [(30, Fate.DISPATCHED, "")]


@pytest.mark.parametrize("days", [3, 300, 1000])
def test_what_waits_on_far_is_armed(bench: Workbench, days: int) -> None:
    bench.scheduler.create("s", Once(START + timedelta(days=days)), topic="t")
    (status,) = told(bench, "s")
    assert status.fate is Fate.ARMED


def test_an_excluded_date_is_skipped_and_the_next_one_is_told_beforehand(bench: Workbench) -> None:
    """Kiritimati is fourteen hours ahead: its next date begins at 10:00 UTC."""
    bench.scheduler.set_calendar("off", [date(2026, 12, 2), date(2026, 12, 4)])
    bench.scheduler.create("s", Cron("30 */12 * * *", tz="Pacific/Kiritimati"), topic="t", exclude=["off"])
    bench.advance(timedelta(hours=3))
    until = START + timedelta(days=3)
    statuses = in_short(told(bench, "s", until=until))
    because = "excluded by its calendars as they are now"
    assert statuses[:2] == [(150, Fate.SKIPPED, "excluded"), (870, Fate.ARMED, because)]
    assert statuses[2:] == [
        (1590, Fate.UPCOMING, ""),
        (2310, Fate.UPCOMING, ""),
        (3030, Fate.UPCOMING, because),
        (3750, Fate.UPCOMING, because),
    ]
    bench.scheduler.set_calendar("off", [])
    assert in_short(told(bench, "s", until=until))[:2] == [(150, Fate.SKIPPED, "excluded"), (870, Fate.ARMED, "")]


def test_a_pause_cancels_what_waited_and_what_was_dispatched_stays_so(bench: Workbench) -> None:
    bench.scheduler.create("s", Every(10 * MINUTE, anchor=START + MINUTE), topic="t")
    bench.advance(15 * MINUTE)
    bench.scheduler.pause("s")
    bench.advance(15 * MINUTE)
    assert in_short(told(bench, "s", until=START + timedelta(hours=1))) == [
        (1, Fate.DISPATCHED, ""),
        (11, Fate.DISPATCHED, ""),
        (21, Fate.CANCELLED, "the schedule was paused before"),
    ]
    bench.scheduler.resume("s")
    bench.advance(5 * MINUTE)
    assert in_short(told(bench, "s"))[2:] == [
        (21, Fate.CANCELLED, "the schedule was changed before"),
        (31, Fate.DISPATCHED, ""),
        (41, Fate.ARMED, ""),
    ]
    bench.scheduler.cancel("s")
    assert in_short(told(bench, "s"))[-1] == (41, Fate.CANCELLED, "the schedule was cancelled before")


def test_an_update_keeps_what_was_nominal_and_goes_on_by_the_new_rule(bench: Workbench) -> None:
    bench.scheduler.create("s", Every(10 * MINUTE, anchor=START + MINUTE), topic="t")
    bench.advance(15 * MINUTE)
    bench.scheduler.update("s", recurrence=Every(10 * MINUTE, anchor=START + 5 * MINUTE))
    bench.advance(11 * MINUTE)
    assert in_short(told(bench, "s")) == [
        (1, Fate.DISPATCHED, ""),
        (11, Fate.DISPATCHED, ""),
        (21, Fate.CANCELLED, "the schedule was changed before"),
        (25, Fate.DISPATCHED, ""),
        (35, Fate.ARMED, ""),
    ]


def test_a_trigger_is_one_of_them(bench: Workbench) -> None:
    bench.scheduler.create("s", Every(timedelta(hours=1), anchor=START + MINUTE), topic="t", paused=True)
    key = bench.scheduler.trigger("s", request_id="ticket-7")
    bench.advance(5 * MINUTE)
    (status,) = told(bench, "s")
    assert (status.key, status.fate) == (key, Fate.DISPATCHED)


def test_what_is_asked_for_must_be_there_and_within_what_is_kept(bench: Workbench) -> None:
    with pytest.raises(ScheduleNotFound):
        told(bench, "s")
    bench.scheduler.create("s", Every(MINUTE), topic="t")
    for arguments, field in (
        ({"since": START - timedelta(days=7, seconds=1)}, "since"),
        ({"since": START, "until": START}, "until"),
        ({"since": datetime(2026, 12, 1)}, "since"),  # noqa: DTZ001 — what is refused
        ({"until": "tomorrow"}, "until"),
    ):
        with pytest.raises(InvalidSchedule) as refused:
            list(bench.scheduler.occurrences("s", **arguments))  # type: ignore[arg-type]
        assert refused.value.field == field


class _Refusing:
    """Answers each record alike."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    async def __call__(self, records: Sequence[Record]) -> Sequence[Outcome]:
        return [self.outcome] * len(records)


def test_a_failing_schedule_is_listed_as_such_and_its_occurrence_says_why(bench: Workbench) -> None:
    bench.scheduler.create("fails", Once(START + MINUTE), topic="t", tenant="mine")
    bench.scheduler.create("waits", Once(START + 5 * MINUTE), topic="t")
    bench.scheduler.create("works", Once(START + 15 * MINUTE), topic="t")
    assert list(bench.scheduler.list(failing=True)) == []
    bench._heard.publish = _Refusing(Outcome.TOO_LARGE)  # type: ignore[method-assign]
    bench.advance(2 * MINUTE)
    bench._heard.publish = _Refusing(Outcome.TOPIC_FAILING)  # type: ignore[method-assign]
    bench.advance(5 * MINUTE)
    assert [(status.fate, status.reason) for status in told(bench, "fails")] == [(Fate.FAILED, "too_large")]
    assert [(status.fate, status.reason) for status in told(bench, "waits")] == [(Fate.ARMED, "waits for another try")]
    assert [schedule.schedule_id for schedule in bench.scheduler.list(failing=True)] == ["fails", "waits"]
    assert [schedule.schedule_id for schedule in bench.scheduler.list(failing=True, tenant="mine")] == ["fails"]
    with pytest.raises(InvalidSchedule, match="failing"):
        list(bench.scheduler.list(failing="yes"))  # type: ignore[arg-type]


# Outages, failures and changes, at random: what is said must agree with what was published


class Rough(Workbench):
    """A bench whose dispatcher can be away for a while, and whose broker refuses or misses some records."""

    def __init__(self, *, start: datetime, random: Random) -> None:
        super().__init__(start=start)
        self._random = random
        self.published: Counter[str] = Counter()
        self.awry: dict[str, Outcome] = {}
        self._heard.publish = self._publish  # type: ignore[method-assign]

    async def _publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        outcomes = []
        for record in records:
            key = record.key.decode()
            if key not in self.awry:
                self.awry[key] = self._random.choices(
                    [Outcome.ACKED, Outcome.TOO_LARGE, Outcome.TOPIC_FAILING], [12, 1, 1]
                )[0]
            outcome, self.awry[key] = self.awry[key], max(self.awry[key], Outcome.ACKED, key=_stays)
            self.published[key] += outcome is Outcome.ACKED
            outcomes.append(outcome)
        return outcomes

    def outage(self, duration: timedelta) -> None:
        """Nobody dispatches for so long."""
        self._dispatcher.stop()
        self.run(self._running)
        self.run(asyncio.sleep(duration.total_seconds()))
        self.__enter__()


def _stays(outcome: Outcome) -> int:
    """A topic that failed works at the next try; what is too large stays so."""
    return {Outcome.TOO_LARGE: 2, Outcome.ACKED: 1}.get(outcome, 0)


def a_schedule(random: Random, number: int) -> dict[str, Any]:
    period = random.choice([20 * SECOND, MINUTE, 7 * MINUTE, 45 * MINUTE])
    options: dict[str, Any] = {
        "recurrence": Every(period, anchor=START + number * SECOND),
        "catch_up": random.choice(list(CatchUp)),
        "jitter": random.choice([timedelta(0), period / 4]),
    }
    if random.random() < 0.3:
        options["until"] = START + timedelta(minutes=random.randrange(60, 150))
    if random.random() < 0.3:
        options["expires_after"] = random.choice([5 * SECOND, 5 * MINUTE])
    if random.random() < 0.3:
        options["exclude"] = ["off"]
    return options


def change_something(random: Random, bench: Workbench, schedule_id: str) -> None:
    match random.randrange(5):
        case 0:
            bench.scheduler.pause(schedule_id)
        case 1:
            with suppress(InvalidSchedule):
                bench.scheduler.resume(schedule_id, resume_from=random.choice([None, bench.now - 20 * MINUTE]))
        case 2:
            with suppress(InvalidSchedule):
                recurrence = Every(random.choice([30 * SECOND, 11 * MINUTE]), anchor=START)
                bench.scheduler.update(schedule_id, recurrence=recurrence, jitter=timedelta(0))
        case 3:
            bench.scheduler.trigger(schedule_id)
        case 4:
            day = START.date() + timedelta(days=random.randrange(2))
            bench.scheduler.set_calendar("off", [day] if random.random() < 0.5 else [])


def run_of(seed: int) -> tuple[dict[str, list[OccurrenceStatus]], Counter[str], dict[str, dict[str, Any]]]:
    """What is said of each schedule after three rough hours, what was published, and what each was made of."""
    random = Random(seed)
    with Rough(start=START, random=random) as bench:
        bench.scheduler.set_calendar("off", [])
        options = {f"s{number}": a_schedule(random, number) for number in range(4)}
        for schedule_id, given in options.items():
            bench.scheduler.create(schedule_id, topic="t", **given)
        while bench.now < START + timedelta(hours=3):
            bench.advance(random.choice([SECOND, MINUTE, 10 * MINUTE, 30 * MINUTE]))
            if random.random() < 0.4:
                bench.outage(random.choice([10 * SECOND, 3 * MINUTE, 40 * MINUTE]))
            if random.random() < 0.5:
                change_something(random, bench, random.choice(list(options)))
        bench.advance(10 * MINUTE)
        said = {schedule_id: told(bench, schedule_id, until=bench.now + timedelta(hours=1)) for schedule_id in options}
        return said, bench.published, options


def _is_on_its_way(status: OccurrenceStatus) -> bool:
    """Armed says only that committed has not passed it: what fell due in the last seconds may be out by then."""
    return status.fate is Fate.ARMED and status.due > START + timedelta(hours=3) and not status.reason


@pytest.mark.parametrize("seed", range(int(os.environ.get("OCCURRENCE_SEEDS", "6"))))
def test_what_is_said_never_contradicts_what_was_published(seed: int) -> None:
    said, published, options = run_of(seed)
    fates = {status.key: status.fate for statuses in said.values() for status in statuses}
    assert [key for key, fate in fates.items() if fate is Fate.DISPATCHED and not published[key]] == []
    under_way = {status.key for statuses in said.values() for status in statuses if _is_on_its_way(status)}
    not_out = set(Fate) - {Fate.DISPATCHED, Fate.PASSED}
    out = {key for key, count in published.items() if count} - under_way
    assert [(key, fate) for key, fate in fates.items() if fate in not_out and key in out] == []
    assert [key for key in published if key not in fates and published[key]] == []
    for schedule_id, statuses in said.items():
        assert [status.scheduled_for for status in statuses] == sorted(status.scheduled_for for status in statuses)
        assert not [status for status in statuses if status.fate is Fate.STRANDED]
        passed = [status for status in statuses if status.fate is Fate.PASSED]
        assert len(passed) <= 2 or {"expires_after", "exclude", "catch_up"} & options[schedule_id].keys()
