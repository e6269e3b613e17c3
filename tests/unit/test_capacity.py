"""The plan is plain arithmetic: reckoned again here by hand, printed in the documentation, and monotonous."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import tocsin

from tocsin.deploy.loadtest_plan import told
from tocsin.loadtest.capacity import Costs, Demand, plan
from tocsin.schema.errors import SettingsError

DOCUMENT = Path(__file__).parents[2] / "docs" / "loadtest.md"
BILLION = Demand(schedules=1_000_000_000, per_day=150_000_000)


def values(**demand: Any) -> dict[str, float]:
    return {line.name: line.value for line in plan(Demand(**demand), Costs())}


def test_the_reference_size_reckoned_by_hand() -> None:
    found = values()
    assert found["mean rate"] == pytest.approx(347.2, abs=0.1)
    assert found["peak rate"] == pytest.approx(6_944, abs=1)
    assert found["herd"] == pytest.approx(416_667, abs=1)
    # 85 % of the occurrences are more than a day ahead: 295/s on far, twice written; 52/s straight to their minute.
    assert found["pack writes, at the mean"] == pytest.approx(52.1 + 2 * 295.1, abs=0.5)
    # 30 M a day, nine days, 460 B, three copies, 0.6 compressed, 1.5 for compaction.
    assert found["disk of occurrences"] == pytest.approx(30e6 * 9 * 460 * 3 * 0.6 * 1.5 / 2**30)
    assert found["disk of far"] == pytest.approx(25.5e6 * 408 * 110 * 3 * 0.6 * 1.5 / 2**30)
    assert found["disk of schedules"] == pytest.approx(200e6 * 800 * 3 * 0.6 * 1.5 / 2**30)
    assert found["herd drain, at one instant"] == pytest.approx(416_667 / 2 / 50_000, abs=0.01)


def test_the_documentation_prints_the_case_of_a_billion_as_it_is_reckoned() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    printed = {name.strip(): (value.strip(), formula.strip()) for name, value, formula in rows}
    for line in plan(BILLION, Costs()):
        assert printed[line.name] == (told(line), line.formula)


@pytest.mark.parametrize(
    ("more", "larger"),
    [
        ({"schedules": 400_000_000}, {"disk of schedules", "disk of far"}),
        ({"per_day": 60_000_000}, {"mean rate", "herd", "disk of occurrences", "pack writes, in a peak"}),
        ({"peak": 40}, {"peak rate", "herd drain, at one instant", "Kafka partitions"}),
        ({"payload_bytes": 2_000}, {"disk of occurrences", "largest partition"}),
        ({"replicas": 5}, {"disk of all", "Cassandra nodes"}),
        ({"retention_days": 14}, {"disk of occurrences"}),
        ({"changes_per_day": 100_000_000}, {"operations, at the mean", "nodes by operations"}),
    ],
)
def test_more_of_anything_needs_more(more: dict[str, Any], larger: set[str]) -> None:
    before, after = values(), values(**more)
    assert {name for name in larger if after[name] <= before[name]} == set()
    assert {name for name in before if after[name] < before[name] - 1e-9} <= {"memory of a herd"}


def test_schedules_that_run_daily_need_nothing_on_far() -> None:
    assert values(schedules=1_000_000, per_day=24_000_000)["disk of far"] == 0


@pytest.mark.parametrize("wrong", [{"schedules": 0}, {"per_day": -1}, {"peak": 0.5}, {"replicas": 0}])
def test_what_is_no_size_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Demand(**wrong)


def test_the_command_prints_every_figure_with_its_formula() -> None:
    words = ("loadtest", "plan", "--schedules", "1000000000", "--per-day", "150000000")
    shown = tocsin(*words, columns=200).out
    (found,) = tocsin(*words, "-o", "json").objects()
    for line in plan(BILLION, Costs()):
        assert line.name in shown
        assert line.formula in shown
        assert found[line.name] == msgspec.to_builtins(
            {"value": line.value, "unit": line.unit, "formula": line.formula}
        )


def test_a_faster_dispatcher_is_fewer_of_them() -> None:
    words = ("loadtest", "plan", "--schedules", "1000000000", "--per-day", "150000000", "-o", "json")
    counts = [
        tocsin(*words, "--dispatch-rate", str(rate)).objects()[0]["dispatchers"]["value"] for rate in (10_000, 40_000)
    ]
    assert counts == [8, 3]
