"""Run the `tocsin` command: within this process where only its answer counts, as a process where signals do."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from contextvars import copy_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from tocsin.deploy import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def objects(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Typed(io.TextIOWrapper):
    """What somebody types, or pipes in."""

    def __init__(self, text: bytes) -> None:
        super().__init__(io.BytesIO(text), encoding="utf-8")


def tocsin(*arguments: str, typed: bytes = b"", columns: int = 100) -> Answer:
    """The command's answer, in the working directory of this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["tocsin", *arguments]),
        mock.patch.object(sys, "stdin", Typed(typed)),
        mock.patch.dict(os.environ, {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        # What --config chose ends with the run.
        code = copy_context().run(main.run)
    return Answer(code, out.getvalue(), err.getvalue())


def start_tocsin(*arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """The command as a process, with both outputs to read."""
    return subprocess.Popen(
        [sys.executable, "-m", "tocsin.deploy.main", *arguments],
        cwd=folder,
        env={**_without_settings(), "NO_COLOR": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def actions_until(process: subprocess.Popen[str], action: str) -> Sequence[dict[str, Any]]:
    """The log of a process, JSON lines, up to the first line of this action; fails where it ends before."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(json.loads(line))
        if said[-1]["action"] == action:
            return said
    raise AssertionError(f"the process ended without {action!r}: {said}")


def _without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
