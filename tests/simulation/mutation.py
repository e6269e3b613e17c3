"""Deliberate bugs, put into a module while it is imported: the shipped text with a passage replaced.

Nothing is copied and nothing is switched in the shipped code. A mutant whose passage is no longer there exactly once is
an error, so the list cannot rot.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import msgspec

#: Smaller than shipped, so that a short run reaches them: sub-partitions of a day, and a catch-up's chunk.
FAR_SUB_PARTITIONS = 4
CHUNK = 5
#: A round of the slow audit, in a few pieces that follow each other closely.
AUDIT = {"PIECES": 3, "ROUND_MS": 12_000, "FIRST_PIECE_MS": 500}


class Edit(msgspec.Struct, frozen=True):
    """A passage of a module's text, and what takes its place."""

    module: str
    old: str
    new: str


class Mutant(msgspec.Struct, frozen=True):
    """A bug, and the seeds or directed scenarios that were found to meet it."""

    name: str
    edits: tuple[Edit, ...]
    jobs: tuple[int | tuple[str, int], ...] = ()


class MutantGone(Exception):
    """The passage that a mutant replaces is not in its module exactly once any more; write the mutant anew."""


class _MutatedLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its text after the edits, and keeps no compiled copy of it."""

    edits: tuple[Edit, ...] = ()

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        text = mutated(Path(path).read_text(encoding="utf-8"), self.edits)
        code: CodeType = compile(text, path, "exec", dont_inherit=True)
        return code


class _MutatingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, edits: Iterable[Edit]) -> None:
        self._edits = tuple(edits)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        chosen = tuple(edit for edit in self._edits if edit.module == fullname)
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target) if chosen else None
        if found is None or found.origin is None:
            return None
        loader = _MutatedLoader(fullname, found.origin)
        loader.edits = chosen
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


def mutated(text: str, edits: Iterable[Edit]) -> str:
    """The text with every passage replaced. Raises MutantGone."""
    for edit in edits:
        if text.count(edit.old) != 1:
            raise MutantGone(f"found {text.count(edit.old)} times in {edit.module}: {edit.old!r}")
        text = text.replace(edit.old, edit.new)
    return text


def install(mutant: Mutant | None = None) -> None:
    """Put a mutant in place before the code under test is imported, and shorten what no rule depends on."""
    if mutant is not None:
        imported = [edit.module for edit in mutant.edits if edit.module in sys.modules]
        assert not imported, f"imported already: {imported}"
        sys.meta_path.insert(0, _MutatingFinder(mutant.edits))
    set_constant("tocsin.schema.levels", "FAR_SUB_PARTITIONS", FAR_SUB_PARTITIONS)
    set_constant("tocsin.dispatcher.dispatch", "CHUNK", CHUNK)
    for name, value in AUDIT.items():
        set_constant("tocsin.dispatcher.audits", name, value)


def set_constant(module: str, name: str, value: Any) -> None:
    """Set a module's constant, which must be there."""
    loaded = importlib.import_module(module)
    assert hasattr(loaded, name)
    setattr(loaded, name, value)
