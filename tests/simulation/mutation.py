"""Deliberate bugs, put into a module while it is imported: the shipped text with one passage replaced.

Nothing is copied and nothing is switched in the shipped code. A mutant whose passage is no longer there is an error,
so the list cannot rot.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import msgspec

#: Smaller than shipped, so that a short run reaches them; see `shorten`.
FAR_SUB_PARTITIONS = 4
CHUNK = 5


class Mutant(msgspec.Struct, frozen=True):
    """A bug."""

    name: str
    module: str
    old: str
    new: str


class MutantGone(Exception):
    """The passage a mutant replaces is not in its module exactly once any more; write the mutant anew."""


class _MutatedLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its text after the replacements, and keeps no compiled copy of it."""

    mutants: tuple[Mutant, ...] = ()

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        path = self.get_filename(fullname)
        text = mutated(Path(path).read_text(encoding="utf-8"), self.mutants)
        return compile(text, path, "exec", dont_inherit=True)


class _MutatingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, mutants: tuple[Mutant, ...]) -> None:
        self._mutants = mutants

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        chosen = tuple(mutant for mutant in self._mutants if mutant.module == fullname)
        if not chosen:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert found is not None
        assert found.origin is not None
        loader = _MutatedLoader(fullname, found.origin)
        loader.mutants = chosen
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


def mutated(text: str, mutants: Sequence[Mutant]) -> str:
    """The text with every passage replaced. Raises MutantGone."""
    for mutant in mutants:
        if text.count(mutant.old) != 1:
            raise MutantGone(f"{mutant.name}: found {text.count(mutant.old)} times in {mutant.module}: {mutant.old!r}")
        text = text.replace(mutant.old, mutant.new)
    return text


def install(mutants: tuple[Mutant, ...] = ()) -> None:
    """Put the mutants in place, before anything of the code under test is imported, and shorten what is long."""
    for mutant in mutants:
        assert mutant.module not in sys.modules, f"{mutant.module} is imported already"
    if mutants:
        sys.meta_path.insert(0, _MutatingFinder(mutants))
    shorten()


def shorten() -> None:
    """Constants that no rule depends on, scaled like the timing: sub-partitions of a day, and a catch-up's chunk."""
    from tocsin.dispatcher import dispatch
    from tocsin.schema import levels

    levels.FAR_SUB_PARTITIONS = FAR_SUB_PARTITIONS  # type: ignore[misc]
    dispatch.CHUNK = CHUNK  # type: ignore[misc]
