"""What a dispatcher says can be read by people and by programs, and drives no terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from tocsin.dispatcher.log import LogObserver, configure_log
from tocsin.schema.entries import Entry

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Leave structlog as it was."""
    yield
    structlog.reset_defaults()


def test_programs_get_every_figure_as_a_field(capsys: Said) -> None:
    configure_log(as_json=True)

    LogObserver().owns(3, 7)

    line = json.loads(capsys.readouterr().err)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "Took shard range 3, epoch 7.",
        "action": "took_range",
        "level": "info",
        "shard_range": 3,
        "epoch": 7,
    }


def test_people_get_a_sentence_and_its_action(capsys: Said) -> None:
    configure_log(as_json=False)

    LogObserver().parked("mail", [Entry(name, 0, 0, 1) for name in "abc"])

    time, sentence = capsys.readouterr().err.rstrip("\n").split("  ", 1)
    assert len(time) == len("12:34:56")
    assert sentence == "Topic mail is missing or takes no records; 3 occurrences wait and are tried again.  parked"


@pytest.mark.parametrize("as_json", [True, False])
def test_no_text_of_a_stranger_drives_the_terminal(capsys: Said, as_json: bool) -> None:
    configure_log(as_json=as_json)

    LogObserver().dead_lettered("too_large", "\x1b[2J\u202ea@b\n")
    LogObserver().troubled("heartbeat_failed", OSError("\x1b[31mred"))
    structlog.get_logger().warning("Library.", action="x", error=OSError("\x1b[31mred"))

    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert said.count("\n") == 3
