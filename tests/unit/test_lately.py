"""What a process dispatched lately: remembered for a while, forgotten oldest first."""

from __future__ import annotations

import pytest

from tocsin.dispatcher import lately as module
from tocsin.dispatcher.lately import Identity, Lately, identity
from tocsin.schema.entries import Entry

MEMORY_MS = 1_000


def occurrence(name: str) -> Identity:
    return identity(Entry(name, 10, 10, 1))


@pytest.fixture
def lately() -> Lately:
    return Lately(MEMORY_MS)


def test_what_nobody_dispatched_is_unknown(lately: Lately) -> None:
    assert not lately.was_published(occurrence("a"))
    assert not lately.was_finished(occurrence("a"))


def test_what_was_published_and_not_re_armed_is_not_published_again_but_re_armed(lately: Lately) -> None:
    lately.published(occurrence("a"), 0)
    assert lately.was_published(occurrence("a"))
    assert not lately.was_finished(occurrence("a"))


def test_what_is_finished_has_nothing_left_to_do(lately: Lately) -> None:
    lately.finished(occurrence("a"), 0)
    assert lately.was_published(occurrence("a"))
    assert lately.was_finished(occurrence("a"))


def test_finished_is_never_taken_back(lately: Lately) -> None:
    lately.finished(occurrence("a"), 0)
    lately.published(occurrence("a"), 1)
    assert lately.was_finished(occurrence("a"))


def test_each_is_remembered_for_as_long_as_asked(lately: Lately) -> None:
    lately.finished(occurrence("a"), 0)
    lately.finished(occurrence("b"), MEMORY_MS)
    assert lately.was_published(occurrence("a"))
    lately.finished(occurrence("c"), MEMORY_MS + 1)
    assert not lately.was_published(occurrence("a"))
    assert lately.was_published(occurrence("b"))


def test_beyond_the_limit_the_oldest_are_forgotten(lately: Lately, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_MAX", 3)
    for name in "abcd":
        lately.finished(occurrence(name), 0)
    assert [lately.was_published(occurrence(name)) for name in "abcd"] == [False, True, True, True]


def test_version_nominal_time_and_request_make_another_occurrence(lately: Lately) -> None:
    lately.finished(identity(Entry("a", 10, 10, 1)), 0)
    others = (Entry("a", 11, 11, 1), Entry("a", 10, 10, 2), Entry("a", 10, 10, 1, request="r"))
    assert not any(lately.was_published(identity(other)) for other in others)
    assert not lately.was_published(identity(Entry("a", 10, 10, 1), 20))
    assert lately.was_published(identity(Entry("a", 10, 99, 1, tries=4, verify=True)))
