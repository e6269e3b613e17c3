"""Goal: zone rules come from the pinned package alone, and no clock change is missed.

Method: the compiled zone files are read here a second time, byte by byte (RFC 9636), and what they list is compared
with what spans say.
"""

from __future__ import annotations

import functools
import itertools
import os
import struct
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import metadata, resources
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.schema import zones
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.instants import FIRST_INSTANT_MS, HOUR_MS

#: A deadline would measure the machine, not the code.
unhurried = settings(deadline=None)
HEADER = ">4sc15x6l"
ZONES = sorted(zones.zone_names())
INSTANTS = st.integers(FIRST_INSTANT_MS, int(datetime(2150, 1, 1, tzinfo=UTC).timestamp()) * 1000)


class ListedChange(NamedTuple):
    """A change of offset that a zone file lists, in seconds."""

    at: int
    before: int
    after: int


@functools.cache
def listed_changes(name: str) -> list[ListedChange]:
    """Every change of offset in the 64-bit block of a compiled zone file."""
    data = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    size = struct.calcsize(HEADER)
    *_, utc, standard, leaps, times, types, signs = struct.unpack(HEADER, data[:size])
    start = size + times * 5 + types * 6 + signs + leaps * 8 + standard + utc
    *_, utc, standard, leaps, times, types, signs = struct.unpack(HEADER, data[start : start + size])
    body = data[start + size :]
    instants = struct.unpack(f">{times}q", body[: 8 * times])
    kinds = body[8 * times : 9 * times]
    offsets = [struct.unpack(">lbb", body[9 * times + 6 * k : 9 * times + 6 * k + 6])[0] for k in range(types)]
    shown = [offsets[0], *(offsets[kind] for kind in kinds)]
    return [ListedChange(at, a, b) for at, (a, b) in zip(instants, itertools.pairwise(shown), strict=True) if a != b]


def test_changes_of_one_zone_lie_far_enough_apart_to_be_found_by_probing() -> None:
    pauses = [later.at - earlier.at for name in ZONES for earlier, later in itertools.pairwise(listed_changes(name))]
    assert len(pauses) > 20_000
    assert min(pauses) > 2 * zones.PROBE_MS // 1000


def test_no_change_is_larger_than_the_walk_allows_for() -> None:
    changes = [change for name in ZONES for change in listed_changes(name)]
    assert max(abs(change.after - change.before) for change in changes) * 1000 <= zones.CHANGE_MS_MAX


@pytest.mark.parametrize("name", ["Europe/London", "Africa/Casablanca", "Pacific/Apia", "America/Argentina/San_Luis"])
def test_spans_begin_where_the_zone_file_lists_a_change(name: str) -> None:
    changes = [change for change in listed_changes(name) if change.at * 1000 > FIRST_INSTANT_MS]
    assert len(changes) > 10
    for change in changes:
        span = zones.span_at(name, change.at * 1000)
        before = zones.span_at(name, change.at * 1000 - 1)
        assert (span.start_ms, span.offset_before_ms, span.offset_ms) == (
            change.at * 1000,
            change.before * 1000,
            change.after * 1000,
        )
        assert before.end_ms == change.at * 1000
        moved_ms = (change.after - change.before) * 1000
        assert span.shifted_until_ms - span.shifted_from_ms == max(0, moved_ms)
        assert span.repeated_until_ms - span.start_ms == max(0, -moved_ms)
        assert before.end_ms - before.repeats_from_ms == max(0, -moved_ms)


@unhurried
@given(st.sampled_from(ZONES), INSTANTS)
def test_a_span_holds_its_instant_and_one_offset(name: str, instant_ms: int) -> None:
    span = zones.span_at(name, instant_ms)
    assert span.start_ms <= instant_ms < span.end_ms
    for probe in (span.start_ms, instant_ms, span.end_ms - 1000):
        assert zones.offset_ms(name, probe) == span.offset_ms
    assert zones.span_at(name, span.end_ms).start_ms == span.end_ms


def test_the_release_of_the_rules_is_that_of_the_pinned_package() -> None:
    year, letter = zones.zone_data_version()[:4], zones.zone_data_version()[4:]
    assert metadata.version("tzdata") == f"{year}.{ord(letter) - ord('a') + 1}"


@pytest.mark.parametrize(
    "name", ["", "Nowhere", "europe/london", "../../etc/passwd", "/etc/localtime", "Europe", None, 5]
)
def test_a_name_that_is_no_zone_is_refused(name: object) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        zones.check_zone(name)
    assert refused.value.field == "tz"


def test_a_misspelled_zone_is_answered_with_its_neighbours() -> None:
    with pytest.raises(InvalidSchedule, match="America/New_York"):
        zones.zone("America/NewYork")


def test_an_old_link_name_is_the_zone_it_links_to() -> None:
    instants = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=7 * step) for step in range(1_300)]
    old, new = zones.zone("US/Eastern"), zones.zone("America/New_York")
    assert [i.astimezone(old).utcoffset() for i in instants] == [i.astimezone(new).utcoffset() for i in instants]


ASK = (
    "from datetime import UTC, datetime\n"
    "from tocsin.schema.recurrence import Cron\n"
    "print(Cron('0 9 * * *', tz='America/New_York').after(datetime(2026, 7, 1, tzinfo=UTC)).isoformat())\n"
)


NAIVE_ASK = (
    "from datetime import datetime\n"
    "from zoneinfo import ZoneInfo\n"
    "print(datetime(2026, 7, 1, tzinfo=ZoneInfo('America/New_York')).utcoffset())\n"
)


def ask_under(tzpath: str, question: str = ASK) -> str:
    """The same question in a process whose zone path is another."""
    environment = {**os.environ, "PYTHONTZPATH": tzpath, "TZ": "Asia/Tokyo"}
    return subprocess.run(
        [sys.executable, "-c", question], env=environment, check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_the_hosts_zone_files_are_never_read(tmp_path: Path) -> None:
    empty, wrong = tmp_path / "empty", tmp_path / "wrong"
    empty.mkdir()
    (wrong / "America").mkdir(parents=True)
    tokyo = resources.files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes()
    (wrong / "America" / "New_York").write_bytes(tokyo)
    assert ask_under(str(empty)) == ask_under(str(wrong)) == "2026-07-01T13:00:00+00:00"


def test_the_zone_path_is_what_zoneinfo_alone_would_follow(tmp_path: Path) -> None:
    (tmp_path / "America").mkdir()
    tokyo = resources.files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes()
    (tmp_path / "America" / "New_York").write_bytes(tokyo)
    assert ask_under(str(tmp_path), NAIVE_ASK) == "9:00:00"


def test_a_fixed_zone_is_one_offset_for_ever() -> None:
    assert zones.offset_ms("Etc/GMT-14", 0) == 14 * HOUR_MS
    assert zones.offset_ms("UTC", 0) == 0
    assert isinstance(zones.zone("UTC"), ZoneInfo)
