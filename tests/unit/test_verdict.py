"""The demo's judge finds what is lost, early, repeated or too much, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tocsin.deploy.demo_plan import HEARTBEAT_EVERY, REGRET_ID, Plan
from tocsin.loadtest.verdict import Seen, judge

EXPECTED = {"a@1": 1_000, "b@2": 2_000, "c@3": 3_000}
ON_TIME = [Seen("a@1", 1_000), Seen("b@2", 2_010), Seen("c@3", 3_300)]


def test_all_there_once_and_not_before_its_due_holds() -> None:
    verdict = judge(EXPECTED, ON_TIME)

    assert verdict.holds
    assert (verdict.dispatched_count, verdict.expected_count, verdict.repeat_count) == (3, 3, 0)
    assert verdict.lateness_ms == (0, 10, 300)


def test_an_occurrence_that_is_missing_is_lost() -> None:
    verdict = judge(EXPECTED, ON_TIME[:2])

    assert not verdict.holds
    assert verdict.lost == ("c@3",)
    assert verdict.dispatched_count == 2


def test_a_record_one_millisecond_before_its_due_is_early() -> None:
    verdict = judge(EXPECTED, [*ON_TIME[:2], Seen("c@3", 2_999)])

    assert not verdict.holds
    assert verdict.early == ("c@3",)


def test_an_early_record_is_early_although_a_later_repeat_is_not() -> None:
    assert judge(EXPECTED, [*ON_TIME, Seen("c@3", 2_999)]).early == ("c@3",)


def test_a_repeat_is_counted_and_breaks_no_promise() -> None:
    verdict = judge(EXPECTED, [*ON_TIME, Seen("a@1", 9_000)])

    assert verdict.holds
    assert verdict.repeat_count == 1
    assert verdict.lateness_ms == (0, 10, 300)


def test_a_record_nobody_expects_breaks_the_promise() -> None:
    verdict = judge(EXPECTED, [*ON_TIME, Seen("cancelled@9", 9_000)])

    assert not verdict.holds
    assert verdict.unexpected == ("cancelled@9",)


def test_a_record_that_a_cancel_called_possible_is_tolerated() -> None:
    assert judge(EXPECTED, [*ON_TIME, Seen("maybe@9", 9_000)], tolerated=("maybe@9",)).holds


def test_an_empty_sink_has_lost_everything_and_has_no_lateness() -> None:
    verdict = judge(EXPECTED, [])

    assert len(verdict.lost) == 3
    assert verdict.lateness_ms_at(99) is None


@given(lateness=st.lists(st.integers(0, 10_000), min_size=1, max_size=300), percent=st.integers(1, 100))
def test_a_percentile_is_the_least_lateness_that_so_many_stay_within(lateness: list[int], percent: int) -> None:
    expected = {f"{number}": 0 for number in range(len(lateness))}
    verdict = judge(expected, [Seen(f"{number}", late) for number, late in enumerate(lateness)])

    found = verdict.lateness_ms_at(percent)

    assert found in lateness
    within = sum(late <= found for late in lateness)
    below = sum(late < found for late in lateness)
    assert 100 * within >= percent * len(lateness)
    assert 100 * below < percent * len(lateness)


def test_the_plan_expects_each_one_shot_each_run_of_both_rules_and_not_the_cancelled_one() -> None:
    start = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
    plan = Plan(start=start, until=start + timedelta(seconds=10))

    keys = list(plan.expected())

    assert len([key for key in keys if key.startswith("reminder-")]) == 100
    assert len([key for key in keys if key.startswith("heartbeat@")]) == timedelta(seconds=10) // HEARTBEAT_EVERY + 1
    assert [key for key in keys if key.startswith("report@")] == [
        "report@2026-11-30T10:00:00.000Z",
        "report@2026-11-30T10:00:05.000Z",
        "report@2026-11-30T10:00:10.000Z",
    ]
    assert REGRET_ID in {schedule.schedule_id for schedule in plan.schedules()}
    assert not [key for key in keys if key.startswith(REGRET_ID)]
