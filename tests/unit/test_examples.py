"""Every example is short and documented, and those that need no service say what they should."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES_MAX = 80
SAID = {
    "digest.py": """\
Ada   Fri 26 Mar 09:00 GMT = 09:00 UTC
Haru  Tue 30 Mar 09:00 JST = 00:00 UTC
Ada   Tue 30 Mar 09:00 BST = 08:00 UTC
Haru  Wed 31 Mar 09:00 JST = 00:00 UTC
""",
    "dunning.py": """\
04 December: friendly reminder of invoice 8, 80 €
04 December: friendly reminder of invoice 7, 120 €
6 December: invoice 7 is paid; uncertain: []
08 December: firm reminder of invoice 8, 80 €
15 December: final reminder of invoice 8, 80 €
""",
}
#: Those that need services are run by tests/acceptance/test_examples.py, and the test by pytest itself.
ELSEWHERE = {"consume.py", "outbox.py", "reminders_api.py", "test_dunning.py"}


def test_every_example_is_run_by_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == SAID.keys() | ELSEWHERE


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_says_what_it_is_and_how_it_is_run(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LINES_MAX
    said = ast.get_docstring(ast.parse(text)) or ""
    assert len(said.splitlines()) >= 3
    assert path.name == "outbox.py" or f"examples/{path.name}" in said or f"examples.{path.stem}" in said


@pytest.mark.parametrize("name", SAID)
def test_an_example_says_what_it_should(name: str) -> None:
    said = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == (SAID[name], "")
