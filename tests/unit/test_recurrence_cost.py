"""Goal: the next time of a rule stays cheap, measured as the benchmark measures it."""

from __future__ import annotations

import pytest

from tocsin.loadtest import bench_recurrence
from tocsin.loadtest.bench_recurrence import RULES, TARGET_US
from tocsin.schema.recurrence import AnyRecurrence


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])
def test_the_next_time_of_a_common_rule_costs_less_than_its_target(name: str, rule: AnyRecurrence) -> None:
    # The least of three runs: a busy machine makes a run slower, never faster.
    costs = [bench_recurrence.measure(name, rule) for _ in range(3)]
    assert min(cost.next_us for cost in costs) < TARGET_US
    assert min(cost.herd_us for cost in costs) < TARGET_US / 10
    ratios = [cost.ratio for cost in costs if cost.ratio is not None]
    assert not ratios or min(ratios) < 3
