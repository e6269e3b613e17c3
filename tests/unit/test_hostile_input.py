"""A thousand hostile inputs, by the client and at the command line: an error that says what to do, and nothing written.

What they are made of is what breaks programs: control characters and escape sequences, separators of CQL, SQL, JSON and
shells, text that is no text, numbers at the edges of their types, and very much of anything.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from command_line import tocsin
from unit.manual_clock import START_MS, ManualClock
from unit.scripted_store import ScriptedStore

from tocsin import AsyncScheduler, Cron, Every, InvalidSchedule
from tocsin.schema.instants import to_datetime
from tocsin.schema.open_store import open_store

INPUTS = 1_000
#: What the command line gets of them: each is a whole run of the command.
TYPED = 120
HOURLY = Every(timedelta(hours=1))
PIECES = (
    "\x1b[2J",
    "\x1b]0;owned\x07",
    "\x00",
    "\r\n",
    "\u202e",
    "\u2028",
    "\ud800",
    "\x7f",
    "\x9b31m",
)
LEGIT = ("'; DROP TABLE schedules; --", "$(reboot)", "%s%n", "{{7*7}}", "../../etc/passwd", "a" * 40, "ü日本")
FIELDS = ("tenant", "partition_key", "definition", "content_type", "start", "until", "jitter", "headers")
WRITES = {"write_pack", "write_marker", "insert_schedule", "replace_schedule", "replace_settings"}


def hostile_text(random: Random) -> str:
    """Text with at least one character that no id may hold, somewhere among harmless ones."""
    pieces = random.choices(LEGIT, k=random.randint(0, 3))
    pieces.insert(random.randint(0, len(pieces)), random.choice(PIECES))
    return "".join(pieces)


def hostile_value(random: Random) -> Any:
    """A value that is none of what any field takes."""
    return random.choice(
        [
            object(),
            float("nan"),
            float("inf"),
            2**200,
            -(2**63),
            b"\xff" * random.randint(1, 9),
            [[[]]],
            {"a": {}},
            lambda: None,
            datetime(2027, 1, 1),  # noqa: DTZ001 — what is refused
            datetime.max.replace(tzinfo=UTC),
            timedelta.max,
            "\ud800",
        ]
    )


Attack = tuple[str, Callable[[AsyncScheduler], Any]]


def attack(random: Random) -> Attack:
    text, value = hostile_text(random), hostile_value(random)
    field = random.choice(FIELDS)
    at = to_datetime(START_MS) + timedelta(days=1)
    many = "x" * random.randint(1 << 10, 1 << 14)
    attacks: tuple[Attack, ...] = (
        ("id", lambda client: client.create(text, HOURLY, topic="t")),
        ("long id", lambda client: client.create(many, HOURLY, topic="t")),
        ("topic", lambda client: client.create("s", HOURLY, topic=text)),
        ("payload", lambda client: client.create("s", HOURLY, topic="t", payload=text)),
        (field, lambda client: client.create("s", HOURLY, topic="t", **{field: value})),
        ("tag", lambda client: client.create("s", HOURLY, topic="t", tags=[text])),
        ("headers", lambda client: client.create("s", HOURLY, topic="t", headers={text: "x"})),
        ("cron", lambda client: client.create("s", Cron(f"{text} * * * *"), topic="t")),
        ("zone", lambda client: client.create("s", Cron("* * * * *", tz=text), topic="t")),
        ("get", lambda client: client.get(text)),
        ("pause", lambda client: client.pause(value)),
        ("cancel", lambda client: client.cancel(text)),
        ("trigger", lambda client: client.trigger("there", request_id=text)),
        ("backfill", lambda client: client.backfill("there", value, value)),
        ("recall", lambda client: client.recall(f"{text}@2026-12-01T00:00:00.000Z!{text}")),
        ("timer", lambda client: client.send_at("t", b"", at=at, timer_id=text)),
        ("timer at", lambda client: client.send_at("t", b"", at=value)),
        ("calendar", lambda client: client.set_calendar(text, [])),
        ("dates", lambda client: client.set_calendar("c", [value])),
        ("update", lambda client: client.update("there", **{field: value})),
        ("upcoming", lambda client: client.upcoming("there", value)),
    )
    return random.choice(attacks)


@pytest.fixture
async def store() -> AsyncIterator[ScriptedStore]:
    clock = ManualClock()
    store = ScriptedStore(open_store("sqlite:///:memory:", clock=clock, create=True))
    store.clock = clock
    yield store
    await store.close()


async def test_a_thousand_hostile_calls_are_refused_and_nothing_is_written(store: ScriptedStore) -> None:
    random = Random(20261201)
    async with AsyncScheduler(store, clock=store.clock) as scheduler:
        await scheduler.create("there", HOURLY, topic="t")
        begun = sum(name in WRITES for name in store.made)
        for _ in range(INPUTS):
            what, call = attack(random)
            with pytest.raises((InvalidSchedule, LookupError)) as refused:
                await call(scheduler)
            assert str(refused.value), what
        assert sum(name in WRITES for name in store.made) == begun


def test_hostile_arguments_reach_no_terminal_and_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tocsin("init")
    random = Random(7)
    for _ in range(TYPED):
        # No program can be given a null byte or half a surrogate by a shell.
        text = hostile_text(random).replace("\x00", "\x01").replace("\ud800", "\x1b")
        line = random.choice(
            [
                ["create", text, "--every", "1h", "--topic", "t"],
                ["create", "s", "--every", "1h", "--topic", text],
                ["create", "s", "--every", text, "--topic", "t"],
                ["create", "s", "--cron", text, "--topic", "t"],
                ["create", "s", "--at", text, "--topic", "t"],
                ["create", "s", "--every", "1h", "--topic", "t", "--header", f"{text}={text}"],
                ["get", text],
                ["cancel", text],
                ["recall", text],
                ["next", text],
                ["list", "--tag", text],
                ["send", "--at", "+1h", "--topic", "t", "--id", text],
                ["audit", "--zone", text],
                ["layout", "set", "--sub-partitions", "32", "--from", text],
                ["restore", text],
                ["status", "--store", f"sqlite:///{text}/x.db"],
            ]
        )
        answer = tocsin(*line)
        assert answer.code in {1, 2, 3}, (line, answer)
        assert not set(answer.out + answer.err) & set("\x00\x01\x07\x1b\x7f\x9b\u202e\u2028\r"), (line, answer)
        assert "Traceback" not in answer.err
    assert tocsin("list", "-o", "json").out == ""


def test_what_is_accepted_is_escaped_where_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tocsin("init")
    note = "broken\nDone.\u202eenod"
    assert tocsin("create", "s", "--every", "1h", "--topic", "t", "--note", note, "--payload", "\x1b[2J").code == 0
    shown = tocsin("get", "s").out + tocsin("list").out + tocsin("bucket", "show", "+1h").out
    assert not set(shown) & set("\x1b\r\u202e")
    assert "\\u202e" in shown
    assert json.loads(tocsin("get", "s", "-o", "json").out)["note"] == note
