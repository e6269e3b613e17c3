"""The command line on an embedded store: schedules in and out, and bad input refused with nothing written."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import Answer, tocsin


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without a store."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Path:
    """An initialised store where commands look for it."""
    assert tocsin("init").code == 0
    return folder / "tocsin.db"


def create(*options: str, schedule_id: str = "tea", typed: bytes = b"") -> Answer:
    return tocsin("create", schedule_id, "--topic", "tea", *options, "-o", "json", typed=typed)


def written(store: Path) -> list[int]:
    """How many rows each table holds that a create writes to."""
    with sqlite3.connect(store) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        ours = [name for name in names if name in {"schedules", "packs", "changes"}]
        assert len(ours) == 3
        return [connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ours]


def test_init_says_what_the_store_is_and_repeating_it_changes_nothing(folder: Path) -> None:
    first = tocsin("init", "sqlite:///tocsin.db", "--shard-ranges", "8", "-o", "json").objects()
    again = tocsin("init", "sqlite:///tocsin.db", "-o", "json").objects()

    assert first == again
    assert (first[0]["shard_ranges"], first[0]["sub_partitions"]) == (8, 16)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--shard-ranges", "8"], "was made with 4 shard ranges and keeps them"),
        (["--sub-partitions", "32"], "was made with 16 sub-partitions and keeps them"),
        (["--shard-ranges", "3", "--sub-partitions", "16"], "3 shard ranges do not divide 16 sub-partitions"),
    ],
)
def test_init_refuses_what_the_store_cannot_become(store: Path, options: list[str], told: str) -> None:
    answer = tocsin("init", *options)

    assert answer.code == 1
    assert told in answer.err


def test_a_schedule_is_created_with_every_field_and_shown_as_it_was_given(store: Path, folder: Path) -> None:
    (folder / "m.json").write_text('{"to": "all"}')
    given = {
        "--cron": "0 9 * * 1-5",
        "--tz": "Europe/London",
        "--payload": "@m.json",
        "--content-type": "application/json",
        "--header": "kind=brief",
        "--partition-key": "staff",
        "--start": "2036-01-01T00:00Z",
        "--until": "2037-01-01T00:00+01:00",
        "--jitter": "30s",
        "--catch-up": "all",
        "--max-catch-up": "7",
        "--expires-after": "1h",
        "--tenant": "office",
        "--tag": "daily",
        "--definition": "brief-2",
        "--note": "as agreed",
    }

    created = create(*(word for option in given.items() for word in option), schedule_id="brief").objects()
    shown = tocsin("get", "brief", "-o", "json").objects()

    assert created == shown
    assert (
        shown[0].items()
        >= {
            "schedule_id": "brief",
            "state": "active",
            "topic": "tea",
            "payload": '{"to": "all"}',
            "content_type": "application/json",
            "headers": {"kind": "brief"},
            "partition_key": "staff",
            "start": "2036-01-01T00:00:00.000Z",
            "until": "2036-12-31T23:00:00.000Z",
            "jitter": "30s",
            "catch_up": "all",
            "max_catch_up": 7,
            "expires_after": "1h",
            "tenant": "office",
            "tags": ["daily"],
            "definition": "brief-2",
            "note": "as agreed",
        }.items()
    )
    assert shown[0]["recurrence"]["expression"] == "0 9 * * 1-5"
    assert shown[0]["next_at"].startswith("2036-01-01T09:00:")


def test_the_table_shows_times_in_utc_and_on_the_clock_of_the_zone(store: Path) -> None:
    create("--cron", "0 9 * * *", "--tz", "Europe/London", "--start", "2036-07-01T00:00Z")

    shown = tocsin("get", "tea", columns=80).out

    assert "2036-07-01T08:00:00.000Z   Tue 2036-07-01 09:00:00 BST" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_relative_instant_counts_from_now(store: Path) -> None:
    before = datetime.now(UTC)

    due = datetime.fromisoformat(create("--at", "+10m").objects()[0]["next_at"])

    assert timedelta(minutes=10) <= due - before < timedelta(minutes=11)


def test_a_payload_may_be_piped_in(store: Path) -> None:
    assert create("--every", "5s", "--payload", "-", typed=b"\xff\x00").objects()[0]["payload_base64"] == "/wA="


def test_max_runs_becomes_the_last_instant_and_paused_waits_for_resume(store: Path) -> None:
    created = create("--every", "1h", "--start", "2036-01-01T00:00Z", "--max-runs", "3", "--paused").objects()[0]

    assert (created["state"], created["until"], created["next_at"]) == ("paused", "2036-01-01T02:00:00.000Z", None)
    assert tocsin("resume", "tea", "-o", "json").objects()[0]["schedule"]["next_at"] == "2036-01-01T00:00:00.000Z"


def test_the_same_create_again_finds_the_schedule_and_another_one_conflicts(store: Path) -> None:
    first, again = (create("--at", "2036-01-01T00:00Z", "--payload", "hot") for _ in range(2))
    other = create("--at", "2036-01-01T00:00Z", "--payload", "cold")

    assert first.code == again.code == 0
    assert first.out == again.out
    assert other.code == 4
    assert "exists with other content" in other.err


def test_pause_resume_and_cancel_say_what_they_mean_for_what_was_pending(store: Path) -> None:
    create("--every", "1h", "--start", "2036-01-01T00:00Z")

    answers = [tocsin(command, "tea", "-o", "json").objects()[0] for command in ("pause", "resume", "cancel", "cancel")]

    assert [answer["outcome"] for answer in answers[:3]] == ["prevented"] * 3
    assert [answer["schedule"]["state"] for answer in answers] == ["paused", "active", "cancelled", "cancelled"]
    assert "prevented: nothing pending" in tocsin("cancel", "tea").out


@pytest.mark.parametrize("command", ["get", "pause", "resume", "cancel"])
def test_an_id_that_is_not_there_is_not_found(store: Path, command: str) -> None:
    answer = tocsin(command, "nope")

    assert answer.code == 3
    assert answer.err == "✗ there is no schedule 'nope'. Check its spelling.\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--at", "2020-12-24T18:00Z"], "has passed; choose a later instant"),
        (["--every", "999ms"], "must lie between 1 second and 100 years"),
        (["--every", "5s", "--payload", "x" * (64 * 1024 + 1)], "has 65537 bytes, allowed are 65536"),
        (["--every", "5s", "--payload", "@none"], "the file none cannot be read"),
        (["--every", "5s", "--header", "ce_id=x"], "are set by Tocsin"),
        (["--every", "5s", "--start", "2036-01-02T00:00Z", "--until", "2036-01-01T00:00Z"], "lies before start"),
        (["--every", "5s", "--jitter", "13h"], "must lie between"),
        (["--every", "5s", "--max-runs", "0"], "max_runs"),
        (["--cron", "0 0 30 2 *"], "no date matches"),
    ],
)
def test_bad_input_is_refused_with_the_reason_and_nothing_is_written(
    store: Path, options: list[str], told: str
) -> None:
    refused(create(*options), told, code=1)
    assert written(store) == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--at", "2036-12-24T18:00"], "is no instant; write it with its offset"),
        (["--every", "5s", "--start", "2036-12-24"], "start: is no instant"),
        (["--every", "5s", "--until", "+5"], "until: is no duration"),
        (["--daily", "09:00", "--tz", "Europe/Lodnon"], "did you mean Europe/London"),
        (["--cron", "0 9 * * *", "--tz", "nowhere"], "tz: "),
        (["--every", "soon"], "is no duration"),
        (["--every", "5s", "--jitter", "a little"], "jitter: is no duration"),
        (["--every", "5s", "--expires-after", "1"], "expires_after: is no duration"),
        (["--every", "5s", "--header", "x"], "is no header; write name=value"),
        (["--every", "5s", "--header", "a=1", "--header", "a=2"], "'a' is given twice"),
        (["--cron", "0 9 * * \x1b[2J"], "does not belong in a cron expression"),
        (["--daily", "nine"], "is no time of day"),
        (["--weekly", "someday 09:00"], "the weekdays are"),
        (["--monthly", "first 09:00"], "is no whole number"),
        (["--yearly", "02-29"], "is written"),
        (["--every", "5s", "--daily", "09:00"], "give exactly one rule"),
        ([], "give exactly one rule"),
    ],
)
def test_an_option_that_cannot_be_read_is_wrong_usage_and_nothing_is_written(
    store: Path, options: list[str], told: str
) -> None:
    refused(create(*options), told, code=2)
    assert written(store) == [0, 0, 0]


@pytest.mark.parametrize(
    "command",
    [
        ["update", "tea", "--every", "soon"],
        ["resume", "tea", "--from", "yesterday"],
        ["backfill", "tea", "--from", "yesterday", "--to", "+0s"],
        ["backfill", "tea", "--from", "-1h", "--to", "now", "--per-second", "many"],
        ["send", "--at", "soon", "--topic", "t"],
        ["occurrences", "tea", "--since", "yesterday"],
        ["occurrences", "tea", "--until", "+soon"],
        ["upcoming", "tea", "--count", "few"],
        ["list", "--limit", "none"],
        ["next", "every day"],
        ["next", "--every", "5s", "--from", "now"],
        ["next", "0 9 * * *", "--tz", "nowhere"],
        ["calendar", "set", "off", "2036-13-01"],
        ["bucket", "show", "now"],
        ["list", "--state", "asleep"],
        ["create", "tea", "--every", "5s", "--topic", "t", "--catch-up", "never"],
        ["create", "tea", "--every", "5s"],
        ["get"],
        ["cancel", "tea", "--hard"],
        ["no-such-command"],
    ],
)
def test_every_command_calls_what_it_cannot_read_wrong_usage(store: Path, command: list[str]) -> None:
    answer = tocsin(*command)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err
    assert "Traceback" not in answer.err


def refused(answer: Answer, told: str, *, code: int) -> None:
    assert answer.code == code
    assert answer.out == ""
    assert told in answer.err.replace("\n  ", " ")
    assert "\x1b" not in answer.err
    assert answer.err.endswith("Nothing was written; correct it and repeat the command.\n")


@pytest.mark.parametrize(
    ("schedule_id", "told"),
    [("", "is empty"), ("x" * 256, "has 256 characters, allowed are 255"), ("a\x1bb", "control character U+001B")],
)
def test_an_id_that_cannot_be_one_is_refused(store: Path, schedule_id: str, told: str) -> None:
    for answer in (create("--every", "5s", schedule_id=schedule_id), tocsin("get", schedule_id)):
        assert answer.code == 1
        assert told in answer.err
        assert "\x1b" not in answer.err
    assert written(store) == [0, 0, 0]


def test_a_wrong_cron_is_shown_with_a_caret_under_the_field(store: Path) -> None:
    answer = create("--cron", "0 25 * * *")

    assert answer.err.splitlines()[:3] == [
        "✗ expression: 25 is not a valid hour: hours go from 0 to 23",
        "      0 25 * * *",
        "        ^^",
    ]
    assert written(store) == [0, 0, 0]


@pytest.mark.parametrize("command", [["status"], ["get", "x"], ["create", "x", "--every", "5s", "--topic", "t"]])
def test_a_store_that_was_never_initialised_says_how_to_and_is_not_made(folder: Path, command: list[str]) -> None:
    answer = tocsin(*command)

    assert answer.code == 1
    assert "is not initialised; run: tocsin init sqlite:///tocsin.db" in answer.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("sqlite:///none/tocsin.db", 1, "the directory of none/tocsin.db does not exist"),
        ("postgres://h/d", 1, "is not a store"),
        ("sqlite:///", 1, "names no file"),
        ("cassandra://127.0.0.1:1/tocsin", 6, "127.0.0.1"),
    ],
)
def test_a_store_that_is_not_there_is_told_from_one_that_is_none(folder: Path, url: str, code: int, told: str) -> None:
    answer = tocsin("get", "x", "--store", url)

    assert answer.code == code
    assert told in answer.err
    assert list(folder.iterdir()) == []


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(folder: Path) -> None:
    (folder / "letter.txt").write_text("dear reader " * 100)

    answer = tocsin("init", "sqlite:///letter.txt")

    assert answer.code == 1
    assert "is not a SQLite database" in answer.err
    assert (folder / "letter.txt").read_text() == "dear reader " * 100


@pytest.mark.parametrize(("version", "told"), [(99, "use a newer release"), (0, "run: tocsin init")])
def test_a_store_of_another_schema_version_is_refused(store: Path, version: int, told: str) -> None:
    with sqlite3.connect(store) as connection:
        ((text,),) = connection.execute("SELECT value FROM settings WHERE name = 'settings'").fetchall()
        settings = json.dumps(json.loads(text) | {"schema_version": version})
        connection.execute("UPDATE settings SET value = ? WHERE name = 'settings'", (settings,))

    answer = create("--every", "5s")

    assert answer.code == 1
    assert told in answer.err
    assert written(store) == [0, 0, 0]


def test_what_strangers_wrote_does_not_drive_the_terminal(store: Path) -> None:
    create("--every", "5s", "--payload", "-", "--note", "a\nb", typed=b"\x1b[2J \xe2\x80\xae [bold]x[/]")

    shown = tocsin("get", "tea").out

    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b[2J \\u202e [bold]x[/]" in shown


def test_status_without_a_dispatcher_shows_every_range_unowned(store: Path) -> None:
    table = tocsin("status", columns=80).out
    ranges = tocsin("status", "-o", "json").objects()

    assert "4 unowned: run tocsin dispatch" in table
    assert [each["shard_range"] for each in ranges] == [0, 1, 2, 3]
    assert {(each["owner"], each["epoch"]) for each in ranges} == {(None, 0)}
    assert all(each["lag_seconds"] >= 0 for each in ranges)
