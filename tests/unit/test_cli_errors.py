"""Every error is a sentence and an exit code; a terminal is never driven by what strangers wrote."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from command_line import tocsin

from tocsin.deploy import application, main
from tocsin.schema.errors import (
    ClockSkew,
    InvalidSchedule,
    NotInitialised,
    OutcomeUnknown,
    Overloaded,
    ScheduleExists,
    ScheduleNotFound,
    SettingsError,
    StoreTimeout,
    StoreUnavailable,
    TocsinError,
    VersionConflict,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidSchedule("topic", "", "is empty"), 1),
        (SettingsError("no"), 1),
        (NotInitialised("sqlite:///x.db"), 1),
        (ScheduleNotFound("x"), 3),
        (ScheduleExists("x"), 4),
        (VersionConflict("x", 1, 2), 4),
        (OutcomeUnknown("x"), 5),
        (StoreUnavailable("gone"), 6),
        (StoreTimeout("slow"), 6),
        (Overloaded(100), 6),
        (ClockSkew(2_000, 1_000), 6),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: TocsinError, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = failing_with(error, monkeypatch)

    assert answer.code == code
    assert answer.out == ""
    assert answer.err.startswith(f"✗ {error}")
    assert "Traceback" not in answer.err


def test_a_terminal_is_not_driven_by_the_text_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = failing_with(ScheduleNotFound("\x1b[2Jx\u202ey"), monkeypatch)
    plain = failing_with(SettingsError("red \x1b[31m, bell \x07, back \u202e, [bold]not markup[/]"), monkeypatch)

    assert "\x1b" not in answer.err + plain.err
    assert "\\x1b[31m" in plain.err
    assert "\\u202e" in plain.err
    assert "[bold]not markup[/]" in plain.err


def test_an_interrupt_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = failing_with(KeyboardInterrupt(), monkeypatch)

    assert (answer.code, answer.out, answer.err) == (130, "", "")


def test_a_fault_of_ours_is_named_and_says_how_to_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = failing_with(ZeroDivisionError("oops\x1b"), monkeypatch)

    assert answer.code == 70
    assert answer.err.startswith("tocsin: a fault of Tocsin itself: ZeroDivisionError: 'oops\\x1b'\n")
    assert main.TRACEBACK_VARIABLE in answer.err

    monkeypatch.setenv(main.TRACEBACK_VARIABLE, "1")
    with pytest.raises(ZeroDivisionError):
        failing_with(ZeroDivisionError("oops"), monkeypatch)


@pytest.mark.parametrize("missing", ["typer", "rich", "pydantic_settings", "structlog", "prometheus_client"])
def test_without_the_extra_the_command_says_what_to_install(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from tocsin.deploy.main import main; main()"

    answer = subprocess.run([sys.executable, "-c", program, "get", "x"], capture_output=True, text=True, check=False)

    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr == f"tocsin: {missing} is not installed.\nRun: pip install 'tocsin[dispatcher]'\n"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["get"], ["get", "x", "--nonsense"], ["create", "x", "--topic", "t"]]
)
def test_a_malformed_command_line_is_answered_with_two(arguments: list[str]) -> None:
    answer = tocsin(*arguments)

    assert answer.code == 2
    assert answer.out == ""
    assert "--help" in answer.err


def test_a_terminal_without_our_signs_gets_their_codes() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tocsin.deploy.main", "--help"],
        env={"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )

    assert (told.returncode, told.stderr) == (0, b"")
    assert b"tocsin demo" in told.stdout


def failing_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Any:
    def fail() -> None:
        raise error

    monkeypatch.setattr(application, "application", fail)
    return tocsin()
