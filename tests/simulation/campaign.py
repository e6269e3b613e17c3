"""Many seeds on every core, each in a process whose hashes are fixed, so that a seed means the same everywhere."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from simulation.mutation import Mutant, install

Job = TypeVar("Job")
Result = TypeVar("Result")


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
    work: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    workers: int | None = None,
    mutants: tuple[Mutant, ...] = (),
) -> Iterator[Result]:
    """Do each job in a fresh interpreter's process, results in the order of the jobs.

    The workers import the code under test themselves, with the mutants in place.
    """
    count = workers or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    with (
        _fixed_hashes(),
        ProcessPoolExecutor(count, mp_context=context, initializer=install, initargs=(mutants,)) as pool,
    ):
        yield from pool.map(work, jobs)


def run_seed(seed: int) -> object:
    """The report of one seed; imported late, so that mutants are in place."""
    from simulation.generate import generate
    from simulation.verdict import report_of

    return report_of(generate(seed))[0]


def explain(seed: int) -> str:
    """A failing seed, shrunk, with its trace."""
    from simulation.generate import generate
    from simulation.shrink import shrink
    from simulation.verdict import report_of, trace

    scenario = generate(seed)
    report, history = report_of(scenario)
    if not report.violations:
        return f"seed {seed} holds"
    kind = report.violations[0].checker
    smaller = shrink(scenario, kind)
    report, history = report_of(smaller)
    violation = next(each for each in report.violations if each.checker == kind)
    found = "\n".join(f"{each.checker}: {each.text}" for each in report.violations)
    return f"seed {seed}, shrunk to\n{smaller.text()}\n\n{found}\n\n{trace(history, violation)}"
