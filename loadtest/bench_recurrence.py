"""What the next time of a rule costs, as a ratio to bare croniter in the same run.

Three questions are timed, all with zones and parsed rules warm:

    next   the times of a rule one after another, each asked once, as a dispatcher does when it re-arms
    herd   one question again and again, as many schedules of one rule ask it in the same minute
    bare   croniter alone walking the same expression over naive times, without any zone

Rules that a cron expression of five fields cannot say have no ratio. Run it with
`python -m tocsin.loadtest.bench_recurrence`; each figure is the median of five rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from croniter import croniter
from rich.console import Console
from rich.table import Table

from tocsin.schema import instants, zones
from tocsin.schema.instants import DAY_MS
from tocsin.schema.recurrence import AnyRecurrence, Cron, Daily, Every, Monthly, Weekly

#: The next time of a common rule costs no more.
TARGET_US: Final = 60
_ROUNDS: Final = 5
_CALLS: Final = 200
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_START_MS: Final = instants.floor_ms(_START)
_NINE: Final = datetime(2026, 1, 1, 9, tzinfo=UTC).time()
#: All rounds of the slowest rule, a monthly one, end before this.
_WARM_DAYS: Final = 40 * _ROUNDS * _CALLS

RULES: Final[tuple[tuple[str, AnyRecurrence], ...]] = (
    ("every 5 s", Every(timedelta(seconds=5), anchor=_START)),
    ("daily 09:00", Daily(_NINE, tz="Europe/London")),
    ("mon, thu 09:00", Weekly(("mon", "thu"), _NINE, tz="Asia/Tokyo")),
    ("the 31st 09:00", Monthly(31, _NINE, tz="America/New_York")),
    ("* * * * *", Cron("* * * * *", tz="Europe/London")),
    ("*/5 * * * *", Cron("*/5 * * * *", tz="America/New_York")),
    ("0 9 * * 1-5", Cron("0 9 * * 1-5", tz="Europe/London")),
    ("30 4 1,15 * *", Cron("30 4 1,15 * *", tz="Asia/Tokyo")),
    ("0 23 L * *", Cron("0 23 L * *", tz="UTC")),
    ("* * * * * *", Cron("* * * * * *", tz="UTC", dialect="seconds-first")),
)


class RuleCost(NamedTuple):
    """What one rule costs, in microseconds a call."""

    name: str
    next_us: float
    herd_us: float
    bare_us: float | None

    @property
    def ratio(self) -> float | None:
        """The cost of `next` to that of `bare`."""
        return None if self.bare_us is None else self.next_us / self.bare_us


class Walk:
    """A walk through a rule's times that goes on where the round before ended, so that nothing is asked twice."""

    def __init__(self, after: Callable[[int], int | None]) -> None:
        self._after = after
        self._position = _START_MS

    def __call__(self) -> None:
        """Take one round of steps."""
        position = self._position
        for _ in range(_CALLS):
            following = self._after(position)
            if following is None:
                break
            position = following
        self._position = position


def measure(name: str, rule: AnyRecurrence) -> RuleCost:
    """Time one rule; the three questions take turns, so that all meet the same machine."""
    for day in range(_WARM_DAYS):
        zones.span_at(rule.zone_name, _START_MS + day * DAY_MS)
    questions = [Walk(rule.after_ms), Walk(lambda _: rule.after_ms(_START_MS))]
    if isinstance(rule, Cron) and rule.dialect == "unix":
        bare = croniter(rule.expression, _START.replace(tzinfo=None))
        questions.append(Walk(lambda _: int(bare.get_next(float))))
    rounds = [[_cost_us(question) for question in questions] for _ in range(_ROUNDS)]
    costs = [statistics.median(column) for column in zip(*rounds, strict=True)]
    return RuleCost(name, costs[0], costs[1], costs[2] if len(costs) > 2 else None)


def run() -> list[RuleCost]:
    """Time every rule."""
    return [measure(name, rule) for name, rule in RULES]


def table(costs: list[RuleCost]) -> Table:
    """The figures, with the target beside them."""
    page = Table(box=None, pad_edge=False)
    for heading in ("rule", "next µs", "bare µs", "ratio", "herd µs", f"next < {TARGET_US} µs"):
        page.add_column(heading, justify="left" if heading == "rule" else "right")
    for cost in costs:
        bare, ratio = ("", "") if cost.bare_us is None else (f"{cost.bare_us:.1f}", f"{cost.ratio:.2f}")
        verdict = "yes" if cost.next_us < TARGET_US else "no"
        page.add_row(cost.name, f"{cost.next_us:.1f}", bare, ratio, f"{cost.herd_us:.2f}", verdict)
    return page


def _cost_us(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e6 / _CALLS


if __name__ == "__main__":
    Console().print(table(run()))
