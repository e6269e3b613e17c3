"""The shipped code against many seeds."""

from __future__ import annotations

import pytest

from simulation.campaign import explain, in_workers, run
from simulation.directed import DIRECTED
from simulation.verdict import Report

HOUR_MS = 3_600_000
#: A night's run says how far it is after so many seeds.
PROGRESS = 500


@pytest.mark.timeout(0)
def test_no_seed_breaks_a_promise(seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    reports = []
    for report in in_workers(run, seeds):
        reports.append(report)
        if report.violations:
            with capsys.disabled():
                print(f"\n  seed {report.seed} fails: {', '.join(sorted(report.kinds))}", end="", flush=True)
        if len(reports) % PROGRESS == 0:
            with capsys.disabled():
                print(f"\n{_summary(reports)}", end="", flush=True)
    failing = [report for report in reports if report.violations]
    with capsys.disabled():
        print(f"\n{_summary(reports)}")
        for report in failing:
            print(f"  seed {report.seed}: {', '.join(sorted(report.kinds))}")
    if failing:
        (explanation,) = in_workers(explain, [failing[0].seed], workers=1)
        pytest.fail(f"{len(failing)} of {len(reports)} seeds broke a promise.\n{explanation}", pytrace=False)


@pytest.mark.timeout(0)
def test_no_directed_scenario_breaks_a_promise() -> None:
    jobs = [(name, seed) for name in DIRECTED for seed in range(6)]
    reports = zip(jobs, in_workers(run, jobs), strict=True)
    broken = [(*job, *sorted(report.kinds)) for job, report in reports if report.violations]
    assert broken == []


def test_a_seed_means_the_same_every_time() -> None:
    first, second, other = in_workers(run, [7, 7, 8])
    assert first == second
    assert first.digest != other.digest


def _summary(reports: list[Report]) -> str:
    hours = sum(report.simulated_ms for report in reports) / HOUR_MS
    dispatched = sum(report.dispatched for report in reports)
    changes = sum(report.changes for report in reports)
    faults = sum(report.faults for report in reports)
    failing = sum(bool(report.violations) for report in reports)
    span = f"{reports[0].seed}–{reports[-1].seed}" if len(reports) > 1 else f"{reports[0].seed}"
    return (
        f"seeds {span}: {hours:.1f} simulated hours, {dispatched} occurrences dispatched, {changes} changes, "
        f"{faults} faults injected, {failing} seeds failing"
    )
