"""Crontabs as crontab(5) has them: which lines are jobs, what they run, and the ids they keep."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tocsin.deploy.crontab import NICKNAMES, Job, Options, read_crontab
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.recurrence import Cron


def read(text: str, **options: Any) -> list[Job]:
    return list(read_crontab(text.splitlines(), Options(**{"topic": "cron"} | options)))


def payload(job: Job) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(job.schedule.payload)
    return decoded


def test_blank_lines_and_comments_are_no_jobs_and_a_sign_within_a_line_is_no_comment() -> None:
    jobs = read("\n   \n# a comment\n\t# another\n0 9 * * * echo '# not one'\n")
    assert [(job.line, job.command) for job in jobs] == [(5, "echo '# not one'")]


def test_a_line_becomes_a_schedule() -> None:
    (job,) = read("  30\t2 * * 1-5   run  --twice  ", tenant="ops")
    schedule = job.schedule
    assert schedule.recurrence == Cron("30 2 * * 1-5")
    assert (schedule.topic, schedule.tenant, schedule.content_type) == ("cron", "ops", "application/json")
    assert payload(job) == {"command": "run  --twice"}


@pytest.mark.parametrize(("nickname", "expression"), NICKNAMES.items())
def test_a_nickname_means_its_five_fields(nickname: str, expression: str) -> None:
    assert [job.expression for job in read(f"{nickname} run\n{nickname.upper()} run2")] == [expression] * 2


@pytest.mark.parametrize(
    ("rest", "command", "stdin"),
    [
        ("cat", "cat", None),
        ("cat%one", "cat", "one\n"),
        ("cat % one % two", "cat", " one \n two\n"),
        ("cat%", "cat", "\n"),
        (r"date +\%F % now \% here", "date +%F", " now % here\n"),
        (r"printf 'a\\b'", r"printf 'a\\b'", None),
    ],
)
def test_what_follows_a_percent_sign_is_standard_input(rest: str, command: str, stdin: str | None) -> None:
    (job,) = read(f"* * * * * {rest}")
    assert (payload(job)["command"], payload(job).get("stdin")) == (command, stdin)


def test_variables_hold_for_the_lines_below_them() -> None:
    text = "* * * * * one\nPATH = /bin:/usr/bin\nMAILTO=\"\"\n'NAME' = 'x y'\n* * * * * two\nPATH=/opt\n* * * * * three"
    one, two, three = (payload(job).get("environment") for job in read(text))
    assert one is None
    assert two == {"PATH": "/bin:/usr/bin", "MAILTO": "", "NAME": "x y"}
    assert three == {"PATH": "/opt", "MAILTO": "", "NAME": "x y"}


def test_the_zone_is_that_of_the_nearest_line_above() -> None:
    text = "0 9 * * * one\nTZ=Asia/Tokyo\n0 9 * * * two\nCRON_TZ=Europe/Berlin\n0 9 * * * three"
    zones = [job.schedule.recurrence.zone_name for job in read(text, tz="Europe/London")]
    assert zones == ["Europe/London", "Asia/Tokyo", "Europe/Berlin"]
    assert all("environment" not in payload(job) for job in read(text))


def test_a_system_s_crontab_names_a_user() -> None:
    plain, nick = read("0 9 * * * root run --all\n@daily nobody tidy", system=True)
    assert (payload(plain)["user"], payload(plain)["command"]) == ("root", "run --all")
    assert (payload(nick)["user"], payload(nick)["command"]) == ("nobody", "tidy")


def test_the_same_line_keeps_its_id_wherever_it_stands_and_another_one_has_another() -> None:
    before = read("0 9 * * * run\n0 10 * * * run")
    after = read("# moved\n0 10 * * * run\n\n0  9 * * *  run")
    assert {job.schedule.schedule_id for job in before} == {job.schedule.schedule_id for job in after}
    others = read("0 9 * * * run\n0 9 * * * run2\n0 8 * * * run\nCRON_TZ=Asia/Tokyo\n0 9 * * * run")
    assert len({job.schedule.schedule_id for job in others}) == 4


def test_a_line_that_stands_twice_is_two_jobs() -> None:
    one, two = (job.schedule.schedule_id for job in read("0 9 * * * run\n0 9 * * * run", prefix="old-"))
    assert one is not None
    assert one.startswith("old-")
    assert two == f"{one}-2"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("0 9 * *", "needs five fields and a command"),
        ("0 9 * * *", "needs five fields and a command"),
        ("@daily", "needs a nickname and a command"),
        ("@reboot run", "has no instant"),
        ("@fortnightly run", "is no nickname"),
        ("61 9 * * * run", "61"),
        ("TZ=Europe/Atlantis\n0 9 * * * run", "Atlantis"),
        ("0 9 * * * " + "x" * 70_000, "payload"),
    ],
)
def test_a_line_that_cannot_be_is_refused_by_its_number(line: str, told: str) -> None:
    with pytest.raises(InvalidSchedule, match=told) as refused:
        read(f"# first\n{line}")
    assert refused.value.field.startswith(f"line {2 + line.count(chr(10))}: ")


def test_a_system_s_line_without_a_command_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="a user and a command"):
        read("0 9 * * * root", system=True)
