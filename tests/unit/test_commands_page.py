"""Goal: docs/commands.md shows what the commands print, so it is made by running them, and a change of either is seen.

Everything runs on the embedded store, in one folder, from top to bottom. What differs with each run, the present and
what is drawn, is shown as one fixed value. `python tests/unit/test_commands_page.py` writes the page anew, and the
difference is read in review.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
#: Wide enough for every table here.
COLUMNS = 100

INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)T\d\d:\d\d:\d\d(\.\d{3})?Z")
#: What is shown instead of what differs with each run.
SHOWN = (
    (re.compile(r"\b1\d{15}\b"), "1796032800000123"),
    (re.compile(r"\b\d+\.\d s\b"), "0.3 s"),
    (re.compile(r"\btzdata \d{4}[a-z]\b"), "tzdata 2026f"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "839b6aad-a5a4-41df-b757-e3325fa0b076"),
    (re.compile(r" +$", re.MULTILINE), ""),
)


class Part(NamedTuple):
    """A heading, what is to be known before, and the commands."""

    title: str
    text: str
    commands: tuple[str, ...]


FILES = {
    "schedules.toml": """\
[defaults]
topic = "mail"
tz = "Europe/London"

[[schedule]]
id = "brief-uk"
cron = "0 9 * * 1-5"
start = 2036-01-01T00:00:00Z
exclude = ["holidays"]
""",
    "reminders.jsonl": """\
{"id": "visit-1", "at": "2036-12-24T09:00:00Z", "topic": "mail"}
{"id": "visit-2", "at": "2036-12-24T10:00:00Z", "topic": "mail"}
{"id": "visit-3", "every": "0s", "topic": "mail"}
""",
    "my.crontab": "30 2 * * *  backup --all\n",
}

PARTS = (
    Part(
        "A store",
        "Options are read before the environment (`TOCSIN_STORE`, …), and that before `tocsin.toml`.",
        ("init sqlite:///tocsin.db", "layout show", "status"),
    ),
    Part(
        "Before a rule is used",
        "`next` needs no store: it shows what a rule means, clock changes included.",
        (
            'next "30 2 * * *" --tz America/New_York --from 2026-03-07T00:00Z --count 3',
            'next --monthly "31 09:00" --tz Europe/London --from 2027-01-15T00:00Z --count 3 -o json',
            'next "0 25 * * *"',
        ),
    ),
    Part(
        "Create",
        "",
        (
            "create tea --every 1h --start 2036-01-01T00:00Z --topic kitchen --payload hot",
            "create r42 --at 2036-12-24T18:00+01:00 --topic mail --payload '{\"customer\": 42}' --tenant acme",
            'create brief --cron "0 9 * * 1-5" --tz Europe/London --start 2036-01-01T00:00Z --topic mail --jitter 30s',
            "create r42 --at 2036-12-24T19:00+01:00 --topic mail",
            'create wrong --cron "0 0 30 2 *" --topic mail',
        ),
    ),
    Part(
        "Look",
        "",
        (
            "get brief",
            "get r42 -o json",
            "list",
            "list --tenant acme -o json",
            "upcoming brief --count 3",
            "occurrences r42",
            "bucket show 2036-12-24T17:00Z",
        ),
    ),
    Part(
        "Change",
        "An answer is `prevented`, or it names the occurrences that may have gone out just before.",
        (
            'update tea --every 2h --note "less tea"',
            "update tea --every 3h --expected-version 1",
            'pause tea --note "kettle broken"',
            "resume tea",
            "cancel r42",
            "cancel nobody",
        ),
    ),
    Part(
        "Beside the rule",
        "",
        (
            "trigger tea --request ticket-7",
            "create chime --every 1h --start 2026-01-01T00:00Z --topic kitchen --header kind=bell",
            "backfill chime --from 2026-11-29T00:00Z --to 2026-11-29T12:00Z --dry-run",
            "pause chime",
            "resume chime --from 2036-01-01T00:00Z",
            "send --at 2036-12-24T18:00+01:00 --topic mail --id order-42 --payload hello",
            "recall order-42@2036-12-24T17:00:00.000Z",
        ),
    ),
    Part(
        "Many",
        "",
        (
            "calendar set holidays 2036-12-25 2036-12-26",
            "calendar show holidays",
            'create gala --yearly "12-25 18:00" --start 2036-01-01T00:00Z --topic mail --exclude holidays --max-runs 3',
            "update gala --expires-after 2h --partition-key gala",
            "upcoming gala --count 3",
            "apply -f schedules.toml --owner newsroom --dry-run",
            "apply -f schedules.toml --owner newsroom --prune",
            "list --tag owner:newsroom",
            "create-many -f reminders.jsonl",
            "import-crontab my.crontab --topic cron --tz Europe/London --dry-run",
        ),
    ),
    Part(
        "Operate",
        "`tocsin doctor`, `loadtest` and `bench` speak of the machine they run on; see the runbooks and the load test.",
        ("dead-letters list", "audit"),
    ),
)


def page() -> str:
    """The page, made in the working directory."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Commands"
    yield ""
    yield "Every command here was run as it is shown, on an embedded store, one after the other; a test makes this page"
    yield "again and compares. `tocsin COMMAND --help` has all options and ends with examples. Errors go to standard"
    yield "error; the exit code is 0 where nothing else is said."
    for part in PARTS:
        yield f"\n## {part.title}"
        if part.text:
            yield f"\n{part.text}"
        for command in part.commands:
            yield from _shown(command)


def _shown(command: str) -> Iterator[str]:
    from command_line import tocsin

    words = shlex.split(command)
    for name, text in FILES.items():
        if name in words and not Path(name).exists():
            Path(name).write_text(text)
            yield f"\n`{name}`:\n\n```text\n{text}```"
    answer = tocsin(*words, columns=COLUMNS)
    said = normal(answer.out + answer.err).strip("\n")
    code = f"\n\nExit code {answer.code}." if answer.code else ""
    yield f"\n```console\n$ tocsin {command}\n{said}\n```{code}"


def normal(text: str) -> str:
    """What is said, with the present and what is drawn replaced."""
    for found, shown in SHOWN:
        text = found.sub(shown, text)
    return INSTANT.sub(_without_the_present, text)


def _without_the_present(instant: re.Match[str]) -> str:
    days = abs((date.fromisoformat(instant[1]) - datetime.now(UTC).date()).days)
    return instant[0] if days > 1 else f"2026-12-01T10:00:00{'.000' if instant[2] else ''}Z"


def test_the_page_shows_what_the_commands_print() -> None:
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        assert page() == PAGE.read_text(), "after a change on purpose: python tests/unit/test_commands_page.py"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.environ.pop("TOCSIN_STORE", None)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        made = page()
    PAGE.write_text(made)
