"""Deliberate bugs in the shipped code: the simulation must find every one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from simulation.campaign import hunt, in_workers, run_seed
from simulation.mutants import MUTANTS
from simulation.mutation import Edit, MutantGone, mutated


@pytest.mark.timeout(0)
def test_no_mutant_survives(capsys: pytest.CaptureFixture[str]) -> None:
    hunts = list(in_workers(hunt, MUTANTS, fresh=True))
    with capsys.disabled():
        print()
        for each in hunts:
            fate = f"killed by seed {each.seed}, run {each.runs}: {', '.join(each.kinds)}"
            print(f"  {each.name}: {fate if each.seed is not None else f'SURVIVES {each.runs} runs'}")
    assert [each.name for each in hunts if each.seed is None] == []
    killers = sorted({each.seed for each in hunts if each.seed is not None})
    assert [report.seed for report in in_workers(run_seed, killers) if report.violations] == []


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
