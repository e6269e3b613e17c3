"""The commands of the runbooks, as an operator types them; on a store at hand in place of the ones they name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from command_line import Answer, tocsin

FOLDER = Path(__file__).parents[1] / "docs" / "runbooks"
RUNBOOKS = sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")
#: They run until they are stopped; the acceptance tests start and stop them.
NEVER_ENDS = "dispatch"
#: Where the runbooks' lost store is restored to.
_AGAIN = "cassandra://c1,c2,c3/again"


def commands_of(runbook: Path) -> list[list[str]]:
    """The words of each `$ tocsin …` of a runbook, in order."""
    return [shlex.split(line) for line in re.findall(r"^\s*\$ (tocsin .*)$", runbook.read_text(), re.MULTILINE)]


def follow(runbook: Path, *, folder: Path, again: str, since: str) -> list[tuple[list[str], Answer]]:
    """Type every command that ends, in order, and return the answers.

    Args:
        runbook: which.
        folder: in place of /backups.
        again: a fresh store in place of the one that a restore makes; the second restore goes to another one.
        since: an instant in place of the one that is named for a restore.
    """
    answers = []
    for number, (_, *words) in enumerate(commands_of(runbook)):
        if words[0] == NEVER_ENDS:
            continue
        store = again if "--since" not in words else again.replace("again", f"again{number}")
        typed = [
            word.replace("/backups", str(folder)).replace(_AGAIN, store).replace("2026-12-01T09:59Z", since)
            for word in words
        ]
        answers.append((typed, tocsin(*typed)))
    return answers
