"""The assignment is fair, moves little, and is the same for everybody who reads the same tables."""

from __future__ import annotations

import itertools
import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tocsin.dispatcher.assignment import assign

names = st.text("abcdef", min_size=1, max_size=2)
fleets = st.sets(names, min_size=1, max_size=6)
tables = st.dictionaries(st.integers(0, 63), st.none() | names, max_size=64)


@given(fleets, tables)
def test_everything_is_assigned_and_numbers_differ_by_one_at_most(fleet: set[str], owners: dict[int, str]) -> None:
    wanted = assign(fleet, owners)
    assert wanted.keys() == owners.keys()
    counts = [Counter(wanted.values())[dispatcher] for dispatcher in fleet]
    assert sum(counts) == len(owners)
    assert max(counts) - min(counts) <= 1


@given(st.sets(names, min_size=1, max_size=5), tables)
def test_no_fair_assignment_moves_less(fleet: set[str], owners: dict[int, str]) -> None:
    wanted = assign(fleet, owners)
    kept = sum(wanted[shard_range] == owner for shard_range, owner in owners.items())
    held = Counter(owner for owner in owners.values() if owner in fleet)
    share, larger = divmod(len(owners), len(fleet))
    best = max(
        sum(min(held[dispatcher], share + (dispatcher in favoured)) for dispatcher in fleet)
        for favoured in itertools.combinations(sorted(fleet), larger)
    )
    assert kept == best


@given(fleets, tables)
def test_an_assignment_that_was_followed_stays(fleet: set[str], owners: dict[int, str]) -> None:
    wanted = assign(fleet, owners)
    assert assign(fleet, wanted) == wanted


@given(fleets, tables, st.randoms(use_true_random=False))
def test_the_order_of_what_was_read_changes_nothing(
    fleet: set[str], owners: dict[int, str], shuffled: random.Random
) -> None:
    rows = list(owners.items())
    shuffled.shuffle(rows)
    assert assign(sorted(fleet, reverse=True), dict(rows)) == assign(fleet, owners)


@given(tables)
def test_nobody_living_owns_nothing(owners: dict[int, str]) -> None:
    assert assign([], owners) == {}


def test_what_the_dead_owned_is_shared_and_the_living_keep_theirs() -> None:
    owners: dict[int, str | None] = {r: "abc"[r % 3] for r in range(12)}
    wanted = assign({"a", "b"}, owners)
    assert all(wanted[r] == owner for r, owner in owners.items() if owner != "c")
    assert Counter(wanted.values()) == {"a": 6, "b": 6}
