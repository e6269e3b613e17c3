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
    from simulation.verdict import Report

Job = TypeVar("Job")
Result = TypeVar("Result")

#: Seeds tried on a mutant that its own seeds did not kill.
SWEEP = 200


class Hunt(NamedTuple):
    """How a mutant fared."""

    name: str
    #: The seed that killed it; None: it survived.
    seed: int | None
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
    work: Callable[[Job], Result], jobs: Iterable[Job], *, workers: int | None = None, fresh: bool = False
) -> Iterator[Result]:
    """Do each job in another process, results in the order of the jobs; `fresh`: in a new one each."""
    count = workers or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    once = 1 if fresh else None
    with _fixed_hashes(), ProcessPoolExecutor(count, mp_context=context, max_tasks_per_child=once) as pool:
        yield from pool.map(work, jobs)


def run_seed(seed: int) -> Report:
    """The report of one seed."""
    install()
    from simulation.generate import generate
    from simulation.verdict import report_of

    return report_of(generate(seed))[0]


def hunt(mutant: Mutant) -> Hunt:
    """Run seeds on a mutant until one breaks a promise."""
    install(mutant)
    from simulation.generate import generate
    from simulation.verdict import report_of

    runs = 0
    for seed in (*mutant.seeds, *range(SWEEP)):
        runs += 1
        report, _ = report_of(generate(seed))
        if report.violations:
            return Hunt(mutant.name, seed, runs, tuple(sorted(report.kinds)))
    return Hunt(mutant.name, None, runs, ())


def explain(seed: int) -> str:
    """A failing seed, shrunk, with its trace."""
    install()
    from simulation.generate import generate
    from simulation.shrink import shrink
    from simulation.verdict import report_of, trace

    scenario = generate(seed)
    report, _ = report_of(scenario)
    if not report.violations:
        return f"seed {seed} holds"
    kind = report.violations[0].checker
    smaller = shrink(scenario, kind)
    report, history = report_of(smaller)
    violation = next(each for each in report.violations if each.checker == kind)
    found = "\n".join(f"{each.checker}: {each.text}" for each in report.violations)
    return f"seed {seed}, shrunk to\n{smaller.text()}\n\n{found}\n\n{trace(history, violation)}"
