"""The durations of the protocol contradict each other nowhere, and contradictions are refused with a sentence."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.schema.errors import SettingsError
from tocsin.schema.timing import Timing


def test_the_defaults_hold_every_relation() -> None:
    Timing()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"lease_ttl_ms": 3_000}, "lease_ttl_ms must exceed three heartbeat_ms"),
        ({"lease_margin_ms": 999}, "lease_margin_ms must be at least one heartbeat_ms"),
        ({"lease_margin_ms": 5_000}, "lease_ttl_ms must leave time to be trusted"),
        ({"tick_ms_min": 251}, "tick_ms_min must not exceed tick_ms"),
        ({"lead_ms": 250}, "lead_ms must lie between tick_ms and minute_ms"),
        ({"lead_ms": 60_000}, "lead_ms must lie between tick_ms and minute_ms"),
        ({"far_seal_ms": 90_000_000}, "far_seal_ms must lie within far_from_ms"),
        ({"day_ms": 90_000}, "day_ms must be whole minutes"),
        ({"far_limit_ms": 172_799_999}, "far_limit_ms must reach a day that is not sealed yet"),
        ({"retry_ms": 2_001}, "retry_ms must not exceed retry_ms_max"),
        ({"park_ms": 300_001}, "park_ms must not exceed park_ms_max"),
        ({"margin_ms": 3_201}, "margin_ms must not exceed margin_ms_max"),
        ({"marker_slack_ms": 180_000_000}, "marker_slack_ms must be below marker_limit_ms"),
        ({"undecided_tries_max": 8}, "undecided tries must outlast commit_limit_ms"),
        ({"jitter_ms_max": 180_000_000}, "jitter_ms_max must be below marker_limit_ms"),
    ],
)
def test_a_contradiction_is_refused_with_the_sentence_that_names_it(changes: dict[str, int], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        Timing(**changes)


@pytest.mark.parametrize("name", Timing.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1])
def test_no_duration_is_zero_or_less(name: str, value: int) -> None:
    with pytest.raises(SettingsError, match=name):
        msgspec.structs.replace(Timing(), **{name: value})


def test_undecided_tries_last_one_two_four_and_so_on_seconds() -> None:
    timing = Timing()
    distances = [timing.undecided_ms << tries for tries in range(timing.undecided_tries_max)]
    assert timing.undecided_ms_max == sum(distances)
