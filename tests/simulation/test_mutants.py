"""Deliberate bugs in the shipped code: the simulation must find every one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from simulation.campaign import hunt, in_workers, run
from simulation.mutants import MUTANTS
from simulation.mutation import Edit, MutantGone, mutated


@pytest.mark.timeout(0)
def test_no_mutant_survives(capsys: pytest.CaptureFixture[str]) -> None:
    hunts = list(in_workers(hunt, MUTANTS, fresh=True))
    with capsys.disabled():
        print()
        for each in hunts:
            fate = f"killed by {each.job} in run {each.runs}: {', '.join(each.kinds)}"
            print(f"  {each.name}: {fate if each.job is not None else f'SURVIVES {each.runs} runs'}")
    assert [each.name for each in hunts if each.job is None] == []
    killers = list(dict.fromkeys(each.job for each in hunts if each.job is not None))
    reports = zip(killers, in_workers(run, killers), strict=True)
    assert [job for job, report in reports if report.violations] == [], "these fail without any mutant"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_still_changes_the_shipped_text(mutant: object) -> None:
    for edit in mutant.edits:  # type: ignore[attr-defined]
        found = find_spec(edit.module)
        assert found is not None
        assert found.origin is not None
        text = Path(found.origin).read_text(encoding="utf-8")
        assert mutated(text, [edit]) != text


def test_a_mutant_whose_passage_is_gone_is_an_error() -> None:
    with pytest.raises(MutantGone):
        mutated("some text", [Edit("any", "other", "new")])
