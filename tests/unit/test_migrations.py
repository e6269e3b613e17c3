"""Migrations expand at once and contract one version later; another version's tables are refused with what to do."""

from __future__ import annotations

import pytest

from tocsin.schema.errors import SettingsError
from tocsin.schema.migrations import Migration, pending, require_schema_version
from tocsin.schema.store import SCHEMA_VERSION

THREE = (
    Migration(1, expand=("make a",)),
    Migration(2, expand=("add b",), contract=("drop a",)),
    Migration(3, expand=("add c",), contract=("drop b",)),
)


def test_a_new_store_gets_every_version_in_order() -> None:
    assert list(pending(THREE, 0)) == ["make a", "add b", "drop a", "add c"]


def test_what_only_the_older_release_used_goes_one_version_later() -> None:
    assert list(pending(THREE, 1)) == ["add b", "drop a", "add c"]
    assert list(pending(THREE, 2)) == ["drop a", "add c"]
    assert list(pending(THREE[:2], 1)) == ["add b"]


def test_the_newest_version_needs_nothing() -> None:
    assert list(pending(THREE, 3)) == []


def test_an_older_store_is_told_to_run_init() -> None:
    with pytest.raises(
        SettingsError, match=r"has schema version \d+, this release needs.*run: tocsin init sqlite:///a\.db"
    ):
        require_schema_version(SCHEMA_VERSION - 1, "sqlite:///a.db")


def test_a_newer_store_needs_a_newer_release() -> None:
    with pytest.raises(SettingsError, match="use a newer release"):
        require_schema_version(SCHEMA_VERSION + 2, "sqlite:///a.db")


def test_tables_of_the_next_release_are_worked_on_while_it_rolls_out() -> None:
    require_schema_version(SCHEMA_VERSION, "sqlite:///a.db")
    require_schema_version(SCHEMA_VERSION + 1, "sqlite:///a.db")
