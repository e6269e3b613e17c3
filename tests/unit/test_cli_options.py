"""What is typed becomes what is meant, and every example in a help can be typed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
from command_line import tocsin
from typer.main import get_command

from tocsin.deploy.application import application
from tocsin.deploy.create import read_headers, read_moment, read_payload
from tocsin.deploy.examples import EXAMPLES
from tocsin.deploy.output import span
from tocsin.deploy.recurrence_options import read_duration
from tocsin.deploy.show import rule_text
from tocsin.producer.definition import PAYLOAD_BYTES_LIMIT
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.recurrence import Daily

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
COMMANDS = [name for name in EXAMPLES if name != "tocsin"]


def test_every_command_has_examples_and_every_example_a_command() -> None:
    commands = get_command(application()).commands  # type: ignore[attr-defined]

    assert set(commands) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_a_line_that_the_command_accepts(name: str) -> None:
    commands = get_command(application()).commands  # type: ignore[attr-defined]
    for example in EXAMPLES[name]:
        program, command, *arguments = shlex.split(example)

        assert (program, command) == ("tocsin", name)
        commands[name].make_context(name, arguments)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_help_ends_with_its_examples_and_fits_the_terminal(name: str, columns: int) -> None:
    answer = tocsin(*([name] if name else []), "--help", columns=columns)

    lines = [line.strip() for line in answer.out.splitlines() if line.strip()]
    examples = EXAMPLES[name or "tocsin"]
    assert answer.code == 0
    assert tuple(lines[-len(examples) :]) == examples
    assert max(map(len, answer.out.splitlines())) <= columns


def test_a_moment_may_be_relative_to_now() -> None:
    assert read_moment("at", "+1h30m", NOW) == NOW + timedelta(hours=1, minutes=30)
    assert read_moment("from", "-2d", NOW) == NOW - timedelta(days=2)
    assert read_moment("at", "2026-12-24T18:00+01:00", NOW) == datetime(2026, 12, 24, 17, 0, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-12-24T18:00", "+", "+10", "-10", "tomorrow", ""])
def test_a_moment_without_zone_or_unit_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchedule, match="at: "):
        read_moment("at", text, NOW)


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "0001-01-01T00:00Z", "9999-12-31T23:59-14:00"])
def test_a_moment_beyond_the_years_that_rules_answer_for_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchedule, match="at: must lie in the years 1900 to 9899"):
        read_moment("at", text, NOW)


def test_a_calendar_rule_is_shown_in_words_and_without_its_tag() -> None:
    assert rule_text(Daily(time(9), tz="Europe/Berlin")) == "daily at 09:00:00, tz Europe/Berlin"


def test_a_payload_is_a_text_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(b'{"a": 1}\x00')

    assert read_payload("hot ☕") == "hot ☕".encode()
    assert read_payload(f"@{tmp_path / 'm.json'}") == b'{"a": 1}\x00'


def test_a_payload_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for text in (f"@{tmp_path}/none", f"@{tmp_path}", "@\x00"):
        with pytest.raises(InvalidSchedule, match="cannot be read"):
            read_payload(text)


def test_no_more_of_a_payload_is_read_than_any_store_takes() -> None:
    assert len(read_payload("@/dev/zero")) == PAYLOAD_BYTES_LIMIT + 1


def test_headers_are_name_and_value_and_a_value_may_hold_signs() -> None:
    assert read_headers(["a=b", "query=x=y", "empty="]) == {"a": "b", "query": "x=y", "empty": ""}


@pytest.mark.parametrize("texts", [["none"], ["a=1", "a=2"]])
def test_a_header_without_value_or_twice_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidSchedule):
        read_headers(texts)


@pytest.mark.parametrize("text", ["5s", "1h30m", "500ms", "2d", "1d1h1m1s1ms"])
def test_durations_are_shown_as_they_are_typed(text: str) -> None:
    assert span(read_duration("jitter", text)) == text


#: The verbs that are promised for schedules, timers and what dispatches them.
VERBS = (
    *("demo", "dev", "up", "down", "init", "next", "create", "create-many", "send", "recall", "get", "list"),
    *("update", "pause", "resume", "cancel", "trigger", "backfill", "upcoming", "occurrences", "apply"),
    *("import-crontab", "dispatch", "status", "bucket", "dead-letters", "audit", "calendar", "bench"),
)
#: One word for what an option takes, whichever command it is of.
WORDS = {
    **dict.fromkeys(("--at", "--from", "--to", "--since", "--until", "--start"), "INSTANT"),
    **dict.fromkeys(("--jitter", "--expires-after", "--every"), "DURATION"),
    **dict.fromkeys(("--count", "--limit", "--per-second", "--max-runs"), "N"),
    "--topic": "TOPIC",
    "--payload": "WHAT",
    "--header": "K=V",
    "--tz": "ZONE",
    "--store": "URL",
    "--output": "FORM",
}


def test_every_verb_that_is_promised_is_there() -> None:
    assert set(VERBS) <= set(COMMANDS)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in {"up", "bench"}])
def test_an_option_takes_what_it_takes_under_one_word_everywhere(verb: str) -> None:
    command = get_command(application()).commands[verb]  # type: ignore[attr-defined]
    for each in getattr(command, "commands", {verb: command}).values():
        shown = {name: option.metavar for option in each.params for name in option.opts if name in WORDS}
        assert shown == {name: WORDS[name] for name in shown}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str, tmp_path: Path) -> None:
    """As a shell asks it: the script first, then the words that can follow."""
    told = ask_completion(tmp_path, shell=shell)
    assert "_TOCSIN_COMPLETE" in told
    if shell == "bash":
        words = ask_completion(tmp_path, words="tocsin up", word=1)
        assert {"up", "update", "upcoming"} <= set(words.split())


def ask_completion(folder: Path, *, shell: str = "bash", words: str = "", word: int | None = None) -> str:
    environment = {**os.environ, "HOME": str(folder)}
    command = [sys.executable, "-m", "tocsin.deploy.main"]
    if word is None:
        environment["_TOCSIN_COMPLETE"] = f"source_{shell}"
    else:
        environment |= {"_TOCSIN_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(word)}
    answer = subprocess.run(
        command, check=False, env=environment, cwd=folder, capture_output=True, text=True, timeout=60
    )
    return answer.stdout
