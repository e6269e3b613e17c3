"""The last step of an upgrade: from here on packs may be written that the release before cannot read."""

from __future__ import annotations

import msgspec

from tocsin.schema import entries
from tocsin.schema.errors import SettingsError
from tocsin.schema.store import Settings, Store


async def raise_oldest_reader(store: Store, settings: Settings, body_format: int, *, release: str) -> Settings:
    """Let every process write packs of this format; it never falls again. The settings then.

    Args:
        store: open.
        settings: in force.
        body_format: what every release at work can read.
        release: ours.

    Raises:
        SettingsError: this release cannot read it, another release still dispatches, or somebody changed the settings
            at the same time; nothing was changed.
    """
    if body_format > entries.FORMAT:
        raise SettingsError(f"this release reads body formats up to {entries.FORMAT}; finish the upgrade first.")
    if body_format < settings.oldest_reader:
        raise SettingsError(f"packs of body format {settings.oldest_reader} may be there; it cannot fall again.")
    if body_format == settings.oldest_reader:
        return settings
    others = {beat.dispatcher_id: beat.release for beat in await store.read_heartbeats() if beat.release != release}
    if others:
        named = ", ".join(f"{name} ({other})" for name, other in sorted(others.items()))
        raise SettingsError(f"dispatchers of another release are at work: {named}; upgrade or stop them first.")
    raised = msgspec.structs.replace(settings, oldest_reader=body_format)
    if not await store.replace_settings(raised, settings):
        raise SettingsError("somebody changed the settings of this store at the same time; repeat the command.")
    return raised
