"""Dispatchers audit everything by themselves: a part each, going on where the last owner stopped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from unit.test_long_outage import FIRST, TIMING, hours
from unit.virtual_bench import RANGES, START, START_MS, Bench

from tocsin.dispatcher import audits
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import ScheduleRow, Spec, State, encode_spec

PIECES, ROUND = 4, timedelta(hours=4)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(audits, "PIECES", PIECES)
    monkeypatch.setattr(audits, "ROUND_MS", ROUND // timedelta(milliseconds=1))
    bench = Bench(TIMING, audits_everything=True)
    yield bench
    bench.close()


def audited(bench: Bench) -> list[int]:
    return [bench.run(bench.store.read_frontier(shard_range)).audited for shard_range in range(RANGES)]


def keep_without_entry(bench: Bench, name: str) -> None:
    """A schedule as an accident leaves it: its row is there, and nothing waits."""
    row = ScheduleRow(
        schedule_id=name,
        version=7,
        token=b"t",
        state=State.ACTIVE,
        since=START_MS,
        spec=encode_spec(Spec(recurrence=Every(timedelta(hours=1), anchor=FIRST), topic="t")),
        topic="t",
        created_at=START_MS,
        updated_at=START_MS,
    )
    assert bench.run(bench.store.insert_schedule(row)) is None


def test_within_a_round_everything_is_armed_that_should_be(bench: Bench) -> None:
    names = [f"s{number}" for number in range(20)]
    for name in names:
        keep_without_entry(bench, name)
    bench.dispatch()
    bench.turn(ROUND + timedelta(minutes=30))
    dispatched = {name: bench.heard.nominal(name) for name in names}
    assert audited(bench) == [PIECES + 1] * RANGES
    for name, times in dispatched.items():
        assert times, name
        assert times == hours(times[0], START + timedelta(hours=4)), "armed once, it goes on"


def test_the_next_owner_goes_on_where_the_last_one_stopped(bench: Bench) -> None:
    bench.dispatch()
    bench.turn(timedelta(hours=2, minutes=30))
    before = audited(bench)
    bench.stop()
    walked: list[tuple[int, int]] = []
    walk = bench.store.walk_schedules

    def seen(segment: int, segments: int) -> object:
        walked.append((segment, segments))
        return walk(segment, segments)

    bench.store.walk_schedules = seen  # type: ignore[method-assign,assignment]
    bench.dispatch()
    bench.turn(timedelta(minutes=30))

    assert before == [3] * RANGES
    assert sorted(walked) == [(3 * RANGES + shard_range, PIECES * RANGES) for shard_range in range(RANGES)]
    assert audited(bench) == [4] * RANGES
