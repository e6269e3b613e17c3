"""Many seeds on every core, each in a process whose hashes are fixed, so that a seed means the same everywhere.

The workers import the code under test themselves, and late: a mutant has to be in place first.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from simulation.mutation import Mutant, install

if TYPE_CHECKING:
    from simulation.directed import Job
    from simulation.verdict import Report

Work = TypeVar("Work")
Result = TypeVar("Result")

#: Seeds tried on a mutant that its own seeds did not kill.
SWEEP = 200


class Hunt(NamedTuple):
    """How a mutant fared."""

    name: str
    #: The seed or directed scenario that killed it; None: it survived.
    job: Job | None
    #: Seeds tried until then.
    runs: int
    kinds: tuple[str, ...]


@contextmanager
def _fixed_hashes() -> Iterator[None]:
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


def in_workers(
    work: Callable[[Work], Result], jobs: Iterable[Work], *, workers: int | None = None, fresh: bool = False
) -> Iterator[Result]:
    """Do each job in another process, results in the order of the jobs; `fresh`: in a new one each."""
    count = workers or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    once = 1 if fresh else None
    with _fixed_hashes(), ProcessPoolExecutor(count, mp_context=context, max_tasks_per_child=once) as pool:
        yield from pool.map(work, jobs)


def run(job: Job) -> Report:
    """The report of one seed or directed scenario."""
    install()
    from simulation.directed import scenario_of
    from simulation.verdict import report_of

    return report_of(scenario_of(job))[0]


def hunt(mutant: Mutant) -> Hunt:
    """Run seeds on a mutant until one breaks a promise."""
    install(mutant)
    from simulation.directed import scenario_of
    from simulation.verdict import report_of

    runs = 0
    for job in (*mutant.jobs, *range(SWEEP)):
        runs += 1
        report, _ = report_of(scenario_of(job))
        if report.violations:
            return Hunt(mutant.name, job, runs, tuple(sorted(report.kinds)))
    return Hunt(mutant.name, None, runs, ())


def explain(job: Job) -> str:
    """A failing seed, shrunk, with its trace."""
    install()
    from simulation.directed import scenario_of
    from simulation.shrink import shrink
    from simulation.verdict import report_of, trace

    scenario = scenario_of(job)
    report, _ = report_of(scenario)
    if not report.violations:
        return f"{job} holds"
    kind = report.violations[0].checker
    smaller = shrink(scenario, kind)
    report, history = report_of(smaller)
    violation = next(each for each in report.violations if each.checker == kind)
    found = "\n".join(f"{each.checker}: {each.text}" for each in report.violations)
    return f"{job}, shrunk to\n{smaller.text()}\n\n{found}\n\n{trace(history, violation)}"
