"""Numbered changes of the tables, expand first and contract one version later.

A release adds what it needs in a migration's `expand`, and writes nothing that the release before cannot live with, so
both run side by side during a rolling upgrade. What only the older one used is taken away by `contract`, which runs
with the *next* migration, when no process of that age is left. So a release works on tables of its own version and on
those one version newer, never on older ones: `init` of the newer release comes first, then process after process.

Packs have a format of their own, named by their first byte. A release reads every format there has been and writes none
that the oldest release at work cannot read: `Settings.oldest_reader` says which that is, and an operator raises it
(`tocsin init --oldest-reader`) once no older release runs. Fields added to the end of an entry need no new format: an
older release does not look at them, a newer one takes their defaults.

`init` brings a store up to the newest version, alone: SQLite does it in one transaction, Cassandra under a lock held
by a lightweight transaction. Every statement can be repeated, because an `init` may die half-way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tocsin.schema import entries
from tocsin.schema.errors import SettingsError
from tocsin.schema.store import SCHEMA_VERSION, Settings


class Migration(NamedTuple):
    """One step from version − 1 to version."""

    version: int
    expand: tuple[str, ...]
    contract: tuple[str, ...] = ()


def pending(migrations: Sequence[Migration], found: int) -> Iterator[str]:
    """The statements that bring a store from the version found (0: none) to the newest, in order."""
    for before, migration in zip((Migration(0, ()), *migrations), migrations, strict=False):
        if migration.version > found:
            yield from before.contract
            yield from migration.expand


def require_readable(settings: Settings, url: str) -> None:
    """Refuse a store of another schema version, or one whose packs this release may not be able to read.

    Raises:
        SettingsError: says what to do.
    """
    require_schema_version(settings.schema_version, url)
    if settings.oldest_reader > entries.FORMAT:
        raise SettingsError(
            f"packs of the store {url} may have body format {settings.oldest_reader}, "
            f"this release reads up to {entries.FORMAT}; use a newer release."
        )


def require_schema_version(found: int, url: str) -> None:
    """Refuse tables that are older than this release, or newer by more than one version.

    Raises:
        SettingsError: says which of the two, the store or this release, is the older one, and what to do.
    """
    if found < SCHEMA_VERSION:
        raise SettingsError(
            f"the store {url} has schema version {found}, this release needs {SCHEMA_VERSION}; run: tocsin init {url}"
        )
    if found > SCHEMA_VERSION + 1:
        raise SettingsError(
            f"the store {url} has schema version {found}, this release knows {SCHEMA_VERSION}; use a newer release."
        )
