"""The command line where it is about many schedules, and about changing one: files in, lists out."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from command_line import Answer, tocsin

from tocsin.schema.errors import StoreUnavailable
from tocsin.schema.sqlite import SqliteStore

SET = """
[defaults]
topic = "mail"
tz = "Europe/London"

[[schedule]]
id = "brief"
cron = "0 9 * * 1-5"
payload = '{"kind": "brief"}'
tags = ["daily"]

[[schedule]]
id = "ping"
every = "30s"
topic = "ops"
start = 2036-12-24T18:00:00+01:00
"""
CRONTAB = """
# what the old machine ran
MAILTO=root
CRON_TZ=Europe/Berlin
*/5 * * * *  echo 50\\% done % first % second
@hourly      /bin/run --all
"""


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An initialised store in the working directory, where commands look for it."""
    monkeypatch.chdir(tmp_path)
    assert tocsin("init").code == 0
    (tmp_path / "set.toml").write_text(SET)
    (tmp_path / "my.crontab").write_text(CRONTAB)
    return tmp_path / "tocsin.db"


def writes(store: Path) -> list[int]:
    """How many rows each table holds that a change writes to."""
    with sqlite3.connect(store) as connection:
        counts = (connection.execute(f"SELECT count(*) FROM {name}") for name in ("schedules", "packs", "changes"))
        return [count.fetchone()[0] for count in counts]


def applied(*options: str) -> dict[str, Any]:
    answer = tocsin("apply", "-f", "set.toml", "--owner", "billing", *options, "-o", "json")
    assert answer.code == 0, answer.err
    (result,) = answer.objects()
    return result


def ids(*options: str) -> list[str]:
    return [schedule["schedule_id"] for schedule in tocsin("list", *options, "-o", "json").objects()]


# apply


def test_a_file_is_applied_and_applying_it_again_changes_nothing(store: Path) -> None:
    assert applied("--dry-run")["created"] == ["brief", "ping"]
    assert ids() == []
    assert applied()["created"] == ["brief", "ping"]
    before = writes(store)
    assert applied()["unchanged"] == ["brief", "ping"]
    assert writes(store) == before
    (brief, ping) = tocsin("list", "--tag", "owner:billing", "-o", "json").objects()
    assert (brief["recurrence"]["tz"], brief["topic"], brief["tags"]) == (
        "Europe/London",
        "mail",
        ["daily", "owner:billing"],
    )
    assert (ping["topic"], ping["start"]) == ("ops", "2036-12-24T17:00:00.000Z")


def test_what_the_file_says_no_more_is_cancelled_with_prune_only(tmp_path: Path) -> None:
    applied()
    (tmp_path / "set.toml").write_text(SET.partition('[[schedule]]\nid = "ping"')[0].replace("9 * *", "8 * *"))
    assert applied()["updated"] == ["brief"]
    assert ids("--state", "cancelled") == []
    assert applied("--prune")["cancelled"] == ["ping"]
    assert ids("--state", "cancelled") == ["ping"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[schedule]]", "schedule 1: recurrence: give exactly one rule"),
        ('[[schedule]]\nid="a"\nevery="5s"', "schedule 1 (a): topic: must be text"),
        ('[[schedule]]\nid="a"\nevery="5s"\ntopic="t"\ntopick="x"', "schedule 1 (a): topick: is no field"),
        ('[[schedule]]\nid="a"\nevery="5"\ntopic="t"', "every: is no duration"),
        ('[[schedule]]\nid="a"\nevery="5s"\ntopic="t"\nstart=2027-01-01T00:00:00', "start: is no instant"),
        ('[[schedule]]\nid="a"\nevery="5s"\ntopic="t"\ncatch_up="some"', "catch_up: is one of latest, all"),
        ('[[schedule]]\nid="a"\nevery="5s"\ntopic="t"\n' * 2, "'a' is declared twice"),
        ('[[schedule]]\nevery="5s"\ntopic="t"', "schedule_id: is missing"),
        ('[schedules]\na="b"', "schedules: is unknown"),
        ("not toml", "is not TOML"),
        (None, "cannot be read"),
    ],
)
def test_a_file_with_anything_wrong_is_refused_whole(tmp_path: Path, store: Path, text: str | None, told: str) -> None:
    good = '[[schedule]]\nid="good"\nevery="5s"\ntopic="t"\n'
    if text is None:
        (tmp_path / "set.toml").unlink()
    else:
        # A table of its own has to come first, and counts as the first schedule then.
        (tmp_path / "set.toml").write_text(f"{text}\n{good}" if text.startswith("[") else text)
    before = writes(store)
    answer = tocsin("apply", "-f", "set.toml", "--owner", "billing")
    assert answer.code == 1
    assert told in " ".join(answer.err.split())
    assert writes(store) == before


# create-many


def test_lines_become_schedules_and_bad_ones_are_told_by_their_number(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "every": "5s", "topic": "t"},
        {"id": "b", "every": "5", "topic": "t"},
        {"daily": "09:00", "tz": "Asia/Tokyo", "topic": "t", "payload_base64": "AAE="},
        ["no", "object"],
        {"id": "c", "at": "2036-01-01T00:00Z", "topic": "t", "tags": ["x"], "headers": {"k": "v"}},
    ]
    text = "\n".join(json.dumps(line) for line in lines) + "\n\nno json\n"
    (tmp_path / "many.jsonl").write_text(text)
    answer = tocsin("create-many", "-f", "many.jsonl", "-o", "json")
    assert answer.code == 1
    told = [(each["id"], each["error"]) for each in answer.objects()]
    assert [name for name, error in told if error is None] == ["a", told[2][0], "c"]
    assert [error.partition(":")[0] for _, error in told if error] == ["line 2 (b)", "line 4", "line 7"]
    assert "3 created or there already, 3 failed" in answer.err
    assert set(ids()) == {"a", "c", told[2][0]}


def test_lines_may_come_from_standard_input_and_again() -> None:
    typed = b'{"id": "a", "every": "5s", "topic": "t"}\n' * 3
    for _ in range(2):
        answer = tocsin("create-many", "-f", "-", typed=typed)
        assert (answer.code, answer.err.strip()) == (0, "3 created or there already")
    assert ids() == ["a"]


@pytest.mark.parametrize(("call", "code"), [("write_pack", 6), ("insert_schedule", 5)])
def test_a_store_that_is_gone_is_told_once_and_nothing_more_is_tried(
    call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreUnavailable("SQLite: database or disk is full; nothing was changed.")

    lines = (json.dumps({"id": f"s{number}", "every": "1h", "topic": "t"}) for number in range(50))
    (tmp_path / "many.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(SqliteStore, call, full)
    monkeypatch.setenv("TOCSIN_TIMEOUT_MS", "100")
    answer = tocsin("create-many", "-f", "many.jsonl")
    assert answer.code == code
    assert answer.err.count("✗") == 1
    assert "line 1: " in answer.err
    assert "0 created or there already, 1 failed" in answer.err
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert tocsin("create-many", "-f", "many.jsonl").code == 0


def test_a_file_that_is_not_there_is_refused() -> None:
    assert tocsin("create-many", "-f", "nothing.jsonl").code == 1


# import-crontab


def test_a_crontab_becomes_schedules_and_again_changes_nothing(store: Path) -> None:
    shown = tocsin("import-crontab", "my.crontab", "--topic", "cron", "--dry-run", "-o", "json").objects()
    assert [(job["line"], job["cron"], job["tz"]) for job in shown] == [
        (5, "*/5 * * * *", "Europe/Berlin"),
        (6, "0 * * * *", "Europe/Berlin"),
    ]
    assert ids() == []
    assert tocsin("import-crontab", "my.crontab", "--topic", "cron").code == 0
    before = writes(store)
    assert tocsin("import-crontab", "my.crontab", "--topic", "cron").code == 0
    assert writes(store)[0] == before[0]
    found = {each["schedule_id"]: each for each in tocsin("list", "--topic", "cron", "-o", "json").objects()}
    assert found.keys() == {job["id"] for job in shown}
    payload = json.loads(found[shown[0]["id"]]["payload"])
    assert payload == {"command": "echo 50% done", "stdin": " first \n second\n", "environment": {"MAILTO": "root"}}


def test_a_crontab_with_a_line_that_cannot_be_is_refused_whole(tmp_path: Path) -> None:
    (tmp_path / "my.crontab").write_text("0 9 * * * fine\n@reboot start\n")
    answer = tocsin("import-crontab", "my.crontab", "--topic", "cron")
    assert answer.code == 1
    assert "line 2: crontab: @reboot has no instant" in " ".join(answer.err.split())
    assert ids() == []


# list, upcoming, update, calendar


@pytest.mark.parametrize("columns", [80, 140])
def test_a_list_fits_the_terminal_and_cuts_nothing(columns: int) -> None:
    applied()
    assert tocsin("create", "x" * 255, "--every", "1h", "--topic", "t" * 249, "--tag", "g" * 128).code == 0
    answer = tocsin("list", columns=columns)
    assert max(map(len, answer.out.splitlines())) <= columns
    assert answer.out.count("x") >= 255
    assert answer.out.count("t") >= 249
    assert answer.err.strip() == "3 schedules"


def test_a_list_is_restricted_and_limited() -> None:
    applied()
    assert ids("--topic", "ops") == ["ping"]
    assert ids("--tag", "daily", "--state", "active") == ["brief"]
    assert ids("--tenant", "nobody") == []
    assert len(ids("--limit", "1")) == 1
    assert tocsin("list", "--topic", "not a topic").code == 1
    assert tocsin("list", "--state", "asleep").code == 2


def test_what_is_upcoming_is_shown_in_both_zones() -> None:
    applied()
    shown = tocsin("upcoming", "brief", "--count", "3", "-o", "json").objects()
    assert len(shown) == 3
    table = tocsin("upcoming", "brief", "--count", "1").out
    assert shown[0]["due"] in table
    assert "09:00:00" in table
    tocsin("pause", "brief")
    paused = tocsin("upcoming", "brief")
    assert (paused.code, paused.out, paused.err.strip()) == (0, "", "brief is paused: nothing is due")
    assert tocsin("upcoming", "nobody").code == 3


def update(*options: str) -> Answer:
    return tocsin("update", "brief", *options, "-o", "json")


def test_an_update_changes_what_is_given_and_takes_away_what_is_unset() -> None:
    applied()
    changed = update("--every", "1h", "--header", "k=v", "--until", "2036-01-01T00:00Z", "--note", "n", "--tag", "t")
    (answer,) = changed.objects()
    schedule = answer["schedule"]
    assert answer["outcome"] == "prevented"
    assert schedule["recurrence"]["kind"] == "every"
    assert (schedule["headers"], schedule["until"], schedule["tags"]) == ({"k": "v"}, "2036-01-01T00:00:00.000Z", ["t"])
    assert schedule["payload"] == '{"kind": "brief"}'
    (answer,) = update("--unset", "until", "--unset", "headers", "--unset", "tags").objects()
    assert (answer["schedule"]["until"], answer["schedule"]["headers"], answer["schedule"]["tags"]) == (None, {}, [])
    assert answer["schedule"]["note"] == "n"


def test_an_update_of_nothing_or_of_both_or_at_another_version_is_refused() -> None:
    applied()
    (before,) = tocsin("get", "brief", "-o", "json").objects()
    assert update().code == 2
    assert update("--until", "2036-01-01T00:00Z", "--unset", "until").code == 2
    assert update("--every", "5s", "--cron", "* * * * *").code == 2
    assert update("--unset", "topic").code == 2
    conflict = update("--note", "n", "--expected-version", "7")
    assert conflict.code == 4
    assert str(before["version"]) in conflict.err
    assert tocsin("get", "brief", "-o", "json").objects() == [before]


def test_a_calendar_is_set_shown_and_excluded(tmp_path: Path) -> None:
    (tmp_path / "dates.txt").write_text("2036-01-02  # the second\n\n2036-01-03\n")
    assert tocsin("calendar", "set", "off", "2036-01-01", "-f", "dates.txt").code == 0
    (calendar,) = tocsin("calendar", "show", "off", "-o", "json").objects()
    assert calendar == {"name": "off", "version": 1, "dates": ["2036-01-01", "2036-01-02", "2036-01-03"]}
    rule = ("--daily", "09:00", "--start", "2036-01-01T00:00Z", "--topic", "t")
    (made,) = tocsin("create", "s", *rule, "--exclude", "off", "-o", "json").objects()
    assert made["next_at"] == "2036-01-04T09:00:00.000Z"
    assert tocsin("create", "other", *rule, "--exclude", "never").code == 1
    assert tocsin("calendar", "show", "never").code == 3
    assert tocsin("calendar", "set", "off", "yesterday").code == 2
    assert tocsin("calendar").code in {0, 2}


def test_a_schedule_without_an_id_gets_one() -> None:
    answers = [tocsin("create", "--every", "5s", "--topic", "t", "-o", "json").objects()[0] for _ in range(2)]
    assert len({answer["schedule_id"] for answer in answers}) == 2
