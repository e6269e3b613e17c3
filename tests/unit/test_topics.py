"""What a process knows of topics: how long the failing ones rest, and when an unknown one is given up."""

from __future__ import annotations

import pytest

from tocsin.dispatcher.topics import Topics
from tocsin.schema.timing import Timing

TIMING = Timing()


@pytest.fixture
def topics() -> Topics:
    return Topics(TIMING)


def test_a_failing_topic_rests_longer_each_time_up_to_the_longest(topics: Topics) -> None:
    rests = [topics.failed("t") for _ in range(40)]
    assert rests[:4] == [1_000, 2_000, 4_000, 8_000]
    assert rests[-1] == TIMING.park_ms_max
    assert rests == sorted(rests)
    assert topics.failing == {"t"}


def test_an_acknowledgement_forgives_everything(topics: Topics) -> None:
    for _ in range(5):
        topics.failed("t")
    topics.is_given_up("t", 0)
    topics.acked("t")
    assert topics.failing == frozenset()
    assert topics.failed("t") == TIMING.park_ms
    assert not topics.is_given_up("t", TIMING.unknown_topic_ms)


def test_topics_fail_each_for_themselves(topics: Topics) -> None:
    topics.failed("bad")
    topics.acked("good")
    assert topics.failing == {"bad"}
    assert topics.failed("other") == TIMING.park_ms


def test_an_unknown_topic_is_waited_for(topics: Topics) -> None:
    assert not topics.is_given_up("t", 5)
    assert not topics.is_given_up("t", 4 + TIMING.unknown_topic_ms)
    assert topics.is_given_up("t", 5 + TIMING.unknown_topic_ms)


def test_the_broker_is_away_while_anybody_waits_for_it(topics: Topics) -> None:
    assert not topics.is_broker_away
    with topics.broker_away():
        with topics.broker_away():
            assert topics.is_broker_away
        assert topics.is_broker_away
    assert not topics.is_broker_away
