"""Five minutes before a full hour the forecast is what is then dispatched: by the shipped code, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta

import pytest

from tocsin import Cron, Daily, Every, Once
from tocsin.dispatcher import herd_forecast
from tocsin.dispatcher.forecast import Forecast
from tocsin.dispatcher.herd_forecast import HerdForecast
from tocsin.dispatcher.workbench import Workbench
from tocsin.schema.errors import StoreTimeout
from tocsin.schema.instants import to_datetime
from tocsin.schema.recurrence import AnyRecurrence

START = datetime(2026, 12, 1, 9, 20, 30, tzinfo=UTC)
TEN = datetime(2026, 12, 1, 10, tzinfo=UTC)


@pytest.fixture
def bench() -> Iterator[Workbench]:
    with Workbench(start=START) as bench:
        yield bench


def seen_ahead(bench: Workbench) -> tuple[int, list[int]]:
    """What is forecast now for the full hour, and for each of the next minutes."""
    dispatcher = bench._dispatcher
    forecast = Forecast()
    ahead = HerdForecast(dispatcher.services, dispatcher.owners.values, forecast)
    for owner in dispatcher.owners.values():
        bench.run(ahead.look(owner))
    now = dispatcher.services.store_clock.now_ms()
    return forecast.herd(now) or 0, forecast.waiting(now)


def dispatched_in_the_first_minute(bench: Workbench) -> int:
    records = bench.advance(TEN + timedelta(minutes=1) - bench.now)
    return sum(record.due >= TEN and record.due < TEN + timedelta(minutes=1) for record in records)


def create(bench: Workbench, name: str, count: int, rule: AnyRecurrence) -> list[str]:
    names = [f"{name}-{number}" for number in range(count)]
    for each in names:
        bench.scheduler.create(each, rule, topic="t")
    return names


@pytest.mark.parametrize("minutes_ahead", [5, 30])
def test_the_forecast_is_what_is_dispatched(bench: Workbench, minutes_ahead: int) -> None:
    create(bench, "hourly", 40, Cron("0 * * * *"))
    create(bench, "each-minute", 7, Cron("* * * * *"))
    create(bench, "each-ten-seconds", 3, Every(timedelta(seconds=10), anchor=START))
    create(bench, "each-quarter", 5, Cron("*/15 * * * *"))
    create(bench, "odd", 5, Cron("7 * * * *"))
    create(bench, "daily", 2, Daily(time(10), tz="UTC"))
    for name in create(bench, "cancelled", 9, Cron("0 * * * *")):
        bench.scheduler.cancel(name)
    keys = [bench.scheduler.send_at("t", at=TEN + timedelta(seconds=number)) for number in range(10)]
    for key in keys[:8]:
        bench.scheduler.recall(key)
    bench.advance(TEN - timedelta(minutes=minutes_ahead) - bench.now)

    herd, minutes = seen_ahead(bench)

    waiting = minutes[minutes_ahead - 1]
    assert dispatched_in_the_first_minute(bench) == herd
    assert herd == 40 + 7 + 3 * 6 + 5 + 2 + 2
    assert waiting >= 40 + 2 + 2
    assert waiting < herd


def test_an_occurrence_beyond_the_next_minutes_is_no_part_of_them(bench: Workbench) -> None:
    create(bench, "later", 4, Once(TEN + timedelta(hours=3)))
    herd, minutes = seen_ahead(bench)
    assert (herd, sum(minutes), len(minutes)) == (0, 0, 60)


def test_where_there_are_more_rules_than_are_followed_the_first_stand_for_all(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        create(bench, f"rule-{number}", 1, Every(timedelta(minutes=1), anchor=START + timedelta(seconds=number)))
    bench.advance(TEN - timedelta(minutes=5) - bench.now)
    monkeypatch.setattr(herd_forecast, "RULES_MAX", 10)
    herd, _ = seen_ahead(bench)
    assert herd == 30


def test_a_part_of_the_hash_space_stands_for_the_whole(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sub-partition here, read whole whatever it holds: an estimate never comes from half a bucket."""
    create(bench, "hourly", 50, Cron("0 * * * *"))
    bench.advance(timedelta(minutes=10))
    monkeypatch.setattr(herd_forecast, "ENTRIES_MAX", 5)
    herd, _ = seen_ahead(bench)
    assert herd == 50
    assert to_datetime(bench._dispatcher.services.store_clock.now_ms()) < TEN


def test_it_goes_on_looking_by_itself_whatever_a_look_meets(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    create(bench, "hourly", 6, Cron("0 * * * *"))
    dispatcher, forecast = bench._dispatcher, Forecast()
    ahead = HerdForecast(dispatcher.services, dispatcher.owners.values, forecast)
    looking = bench._loop.create_task(ahead.run())
    bench.advance(timedelta(seconds=30))
    now = dispatcher.services.store_clock.now_ms
    assert forecast.herd(now()) == 6

    create(bench, "more", 3, Cron("0 * * * *"))
    with monkeypatch.context() as patched:
        patched.setattr(ahead, "look", fail)
        bench.advance(timedelta(minutes=2))
        assert forecast.herd(now()) == 6, "what was seen last stands"
    bench.advance(timedelta(minutes=1))
    assert forecast.herd(now()) == 9
    assert not looking.done()
    looking.cancel()


async def fail(_: object) -> None:
    raise StoreTimeout("no answer")
