"""What a run amounts to: which promises were broken, and what it took to find out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import msgspec

from simulation import check_dispatch, check_store, extra_runs
from simulation.check_dispatch import Violation
from simulation.clocks import EPOCH_MS
from simulation.history import History
from simulation.scenario import END_MS, Scenario
from simulation.world import LEVELS, World, simulate

Checker = Callable[[History], Iterator[Violation]]

CHECKERS: tuple[Checker, ...] = (
    check_dispatch.never_early,
    check_dispatch.only_what_took_effect,
    check_dispatch.nothing_lost,
    check_dispatch.prevented_is_prevented,
    check_dispatch.ended_stays_ended,
    check_dispatch.on_time_when_quiet,
    check_dispatch.repeats_have_a_reason,
    extra_runs.extra_runs_arrive,
    extra_runs.extra_runs_are_few,
    check_store.one_armed_each,
    check_store.no_chain_of_an_old_version,
    check_store.what_a_rearm_tells_went_out,
    lambda history: check_store.committed_tells_the_truth(history, LEVELS),
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run in numbers, and what it broke."""

    seed: int
    violations: tuple[Violation, ...]
    dispatched: int
    changes: int
    faults: int
    simulated_ms: int
    #: Of everything that happened, in order: equal for equal seeds.
    digest: str

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of promises broken."""
        return frozenset(violation.checker for violation in self.violations)


def judge(world: World) -> tuple[Violation, ...]:
    """Every broken promise of a run."""
    found = [violation for checker in CHECKERS for violation in checker(world.history)]
    return (*found, *(Violation("crashed", "", failure, 0) for failure in world.failures))


def report_of(scenario: Scenario) -> tuple[Report, History]:
    """Run a scenario and judge it."""
    world = simulate(scenario)
    history = world.history
    report = Report(
        seed=scenario.seed,
        violations=judge(world),
        dispatched=sum(delivery.arrived for delivery in history.deliveries),
        changes=len(history.acknowledged),
        faults=world.traps.sprung + len(history.disturbances),
        simulated_ms=END_MS,
        digest=hashlib.blake2b(repr(history.notes).encode(), digest_size=8).hexdigest(),
    )
    return report, history


#: What a trace shows around the instant of a violation.
BEFORE_MS, AFTER_MS = 15_000, 10_000
#: Lines that are told whatever they are about.
GENERAL = ("fault", "belongs to", "is killed", "is stopped", "goes on", "well again", "stopped as planned")


def trace(history: History, violation: Violation) -> str:
    """What happened to the schedule of a violation: its changes, and everything shortly before and after."""
    schedule_id = violation.schedule_id
    told = []
    for at_ms, text in history.notes:
        own = bool(schedule_id) and (f"{schedule_id}@" in text or f"{schedule_id} " in text)
        near = violation.at_ms - BEFORE_MS <= at_ms <= violation.at_ms + AFTER_MS
        change = own and (f"-{schedule_id}" in text or "becomes" in text)
        if change or (near and (own or any(part in text for part in GENERAL))):
            told.append(f"{at_ms - EPOCH_MS:>10.1f}  {text}")
    return "\n".join(told)
