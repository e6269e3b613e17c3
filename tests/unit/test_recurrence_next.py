"""Goal: `tocsin next` tells what a rule will do, and what it will not do, so that people can decide by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer
from command_line import tocsin
from typer.testing import CliRunner

from tocsin.deploy import next as next_room
from tocsin.deploy.recurrence_options import Written, read_duration, read_instant
from tocsin.schema.errors import InvalidSchedule, NeverOccurs

APPLICATION = typer.Typer()
next_room.register(APPLICATION)
NEW_YORK = ["--tz", "America/New_York"]


def run(*arguments: str, width: int = 80) -> str:
    """What the command prints."""
    result = CliRunner().invoke(
        APPLICATION, list(arguments), env={"COLUMNS": str(width), "NO_COLOR": "1"}, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


def lines(*arguments: str, width: int = 80) -> list[str]:
    """The rows of the table, without its title and heading."""
    return [line.rstrip() for line in run(*arguments, width=width).splitlines()[2:]]


def rows(*arguments: str) -> list[dict[str, Any]]:
    """The JSON answer."""
    return [json.loads(line) for line in run(*arguments, "-o", "json").splitlines()]


def test_a_skipped_day_stands_between_its_neighbours() -> None:
    assert lines("30 2 * * *", *NEW_YORK, "--from", "2026-03-07T00:00Z", "--count", "2") == [
        "Sat 2026-03-07 02:30 EST  2026-03-07 07:30Z",
        "Sun 2026-03-08 02:30      —                  skipped: 02:30 does not exist",
        "Mon 2026-03-09 02:30 EDT  2026-03-09 06:30Z",
    ]


@pytest.mark.parametrize(
    ("gap", "right"),
    [
        (
            "skip",
            [
                "Sun 2026-03-08 01:45 EST  2026-03-08 06:45Z",
                "Sun 2026-03-08 02:00      —                  skipped: 4 times, 02:00 to 02:45",
                "Sun 2026-03-08 03:00 EDT  2026-03-08 07:00Z",
                "Sun 2026-03-08 03:15 EDT  2026-03-08 07:15Z",
            ],
        ),
        (
            "shift",
            [
                "Sun 2026-03-08 01:45 EST  2026-03-08 06:45Z",
                "Sun 2026-03-08 03:00 EDT  2026-03-08 07:00Z  shifted: 02:00 does not exist",
                "Sun 2026-03-08 03:15 EDT  2026-03-08 07:15Z  shifted: 02:15 does not exist",
            ],
        ),
    ],
)
def test_every_quarter_hour_over_new_yorks_gap(gap: str, right: list[str]) -> None:
    shown = lines("*/15 * * * *", *NEW_YORK, "--from", "2026-03-08T06:45Z", "--count", "3", "--gap", gap)
    assert shown == right


@pytest.mark.parametrize(
    ("overlap", "right"),
    [
        (
            "first",
            [
                "Sun 2026-11-01 01:45 EDT  2026-11-01 05:45Z  first 01:45 of two, runs once",
                "Sun 2026-11-01 02:00 EST  2026-11-01 07:00Z",
            ],
        ),
        (
            "last",
            [
                "Sun 2026-11-01 01:00 EST  2026-11-01 06:00Z  second 01:00 of two, runs once",
                "Sun 2026-11-01 01:15 EST  2026-11-01 06:15Z  second 01:15 of two, runs once",
            ],
        ),
        (
            "both",
            [
                "Sun 2026-11-01 01:45 EDT  2026-11-01 05:45Z  first 01:45 of two",
                "Sun 2026-11-01 01:00 EST  2026-11-01 06:00Z  second 01:00 of two",
            ],
        ),
    ],
)
def test_every_quarter_hour_over_new_yorks_overlap(overlap: str, right: list[str]) -> None:
    shown = lines("*/15 * * * *", *NEW_YORK, "--from", "2026-11-01T05:45Z", "--count", "2", "--overlap", overlap)
    assert shown == right


def test_a_clamped_day_says_so_and_utc_needs_one_column() -> None:
    assert lines("--monthly", "31 09:00", "--from", "2027-01-31T00:00Z", "--count", "3") == [
        "Sun 2027-01-31 09:00",
        "Sun 2027-02-28 09:00   clamped: Feb 2027 has 28 days",
        "Wed 2027-03-31 09:00",
    ]


@pytest.mark.parametrize("width", [80, 140])
def test_no_row_is_wider_than_the_terminal_or_wrapped(width: int) -> None:
    for gap, start in (("skip", "2026-03-08T06:00Z"), ("shift", "2026-03-08T06:00Z"), ("skip", "2026-11-01T05:00Z")):
        shown = lines("*/15 * * * *", *NEW_YORK, "--from", start, "--count", "8", "--gap", gap, width=width)
        assert len(shown) == 8 + ("2026-03" in start and gap == "skip")
        assert max(map(len, shown)) <= width


def test_a_day_that_never_was_is_shown_as_skipped() -> None:
    first, skipped, last = rows(
        "--daily", "12:00", "--tz", "Pacific/Apia", "--from", "2011-12-29T00:00Z", "--count", "2"
    )
    assert first["utc"] == "2011-12-29T22:00:00.000Z"
    assert skipped == {
        "local": "2011-12-30T12:00:00",
        "utc": None,
        "change": "skipped",
        "note": "skipped: 12:00 does not exist",
    }
    assert last["local"] == "2011-12-31T12:00:00+14:00"


def test_json_is_one_object_a_line_with_local_and_utc() -> None:
    assert rows("--every", "90m", "--tz", "America/Toronto", "--from", "2026-03-08T06:30Z", "--count", "2") == [
        {"local": "2026-03-08T01:30:00-05:00", "utc": "2026-03-08T06:30:00.000Z", "change": None, "note": None},
        {"local": "2026-03-08T04:00:00-04:00", "utc": "2026-03-08T08:00:00.000Z", "change": None, "note": None},
    ]


def test_seconds_are_shown_where_there_are_any() -> None:
    shown = lines("*/30 * * * * *", "--dialect", "seconds-first", "--from", "2026-01-01T00:00Z", "--count", "2")
    assert shown == ["Thu 2026-01-01 00:00:00", "Thu 2026-01-01 00:00:30"]


def test_h_is_shown_as_what_it_means_for_the_id() -> None:
    one, other = (run("H H * * *", "--schedule-id", name).splitlines()[0] for name in ("tea", "coffee"))
    assert one.startswith("H H * * * → ")
    assert one != other


def test_a_hole_of_a_second_each_is_counted_and_not_listed() -> None:
    shown = rows(
        "* * * * * *", "--dialect", "seconds-first", *NEW_YORK, "--from", "2026-03-08T06:59:59Z", "--count", "2"
    )
    assert [row["note"] for row in shown] == [None, "skipped: 1000+ times, 02:00 to 02:16:39", None]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["61 9 * * *"], "    61 9 * * *\n    ^^"),
        (["0 9 * * *", "--tz", "Pacific/Aipa"], "did you mean Pacific/Apia"),
        (["--every", "5s", "--tz", "Nowhere"], "no zone"),
        (["--every", "0s"], "between 1 second"),
        (["--every", "5 s"], "write 500ms, 5s"),
        (["--daily", "25:00"], "no time of day"),
        (["--weekly", "09:00"], "is written"),
        (["--weekly", "moon 09:00"], "weekdays are"),
        (["--monthly", "x 09:00"], "no whole number"),
        (["--yearly", "02-30 09:00"], "from 1 to 29"),
        (["--yearly", "2-29"], "is written"),
        (["0 9 * * *", "--from", "2026-01-01"], "with its offset"),
        (["0 9 * * *", "--from", "tomorrow"], "with its offset"),
    ],
)
def test_what_is_refused_says_why(arguments: list[str], text: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        CliRunner().invoke(APPLICATION, arguments, catch_exceptions=False)
    assert text in str(refused.value)


def test_a_rule_that_the_clock_always_skips_never_occurs() -> None:
    with pytest.raises(NeverOccurs):
        CliRunner().invoke(APPLICATION, ["30 2 * 3 0#2", *NEW_YORK], catch_exceptions=False)


@pytest.mark.parametrize("arguments", [[], ["0 9 * * *", "--every", "5s"], ["0 9 * * *", "--count", "0"]])
def test_a_malformed_command_line_exits_with_2(arguments: list[str]) -> None:
    assert tocsin("next", *arguments).code == 2


def test_durations_and_instants_are_read_as_people_type_them() -> None:
    assert read_duration("every", "1h30m") == read_duration("every", "90m")
    assert read_duration("every", "1w") == read_duration("every", "7d")
    assert read_duration("every", "1500ms").total_seconds() == 1.5
    assert read_instant("at", "2026-12-24T18:00+01:00") == read_instant("at", "2026-12-24T17:00Z")
    for text in ("", "5", "s", "5s5", "-5s", "1.5h", "\u0665s"):
        with pytest.raises(InvalidSchedule):
            read_duration("every", text)


def test_each_way_to_write_a_rule_gives_that_rule() -> None:
    kinds = {
        "cron": "0 9 * * *",
        "every": "5s",
        "daily": "09:00",
        "weekly": "fri,MON 09:00",
        "monthly": "-1 09:00:30",
        "yearly": "02-29 09:00",
        "at": "2026-12-24T18:00+01:00",
    }
    for kind, text in kinds.items():
        written = Written(**{kind: text})
        assert type(written.recurrence()).__name__.lower() == {"at": "once"}.get(kind, kind)
    with pytest.raises(InvalidSchedule, match="exactly one"):
        Written().recurrence()
    with pytest.raises(InvalidSchedule, match="exactly one"):
        Written(cron="0 9 * * *", every="5s").recurrence()
