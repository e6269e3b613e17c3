"""Changing into how many sub-partitions minutes are split, while everything goes on.

A layout holds from an instant on, and that instant lies in the future. Two processes may know different layouts, so:

    a writer    uses the newest it knows of; it may know an old one only
    an owner    reads a minute in every layout there has been. It would miss entries in one that it has not heard of, so
                it reads no minute without having looked at the settings within `layout_notice_ms` before its start
    a change    is written at least twice that long before the instant from which it holds

Whoever looked at the settings less than a notice before a minute starts has seen every layout that can hold in it. No
host's clock is part of that: now is the store's.

An old layout is read for ever. So a store has few: `LAYOUTS_MAX`.
"""

from __future__ import annotations

import msgspec

from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import StoreClock
from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import to_datetime
from tocsin.schema.levels import Layout, Levels
from tocsin.schema.store import SCHEMA_VERSION, Settings, Store
from tocsin.schema.timing import Timing

#: Every minute is read in all of them.
LAYOUTS_MAX = 6
#: More parts than this are more reads each minute than a range can make.
SUB_PARTITIONS_MAX = 65_536


async def set_layout(
    store: Store, layout: Layout, *, timing: Timing, store_clock: StoreClock, persistence: Persistence, deadline: int
) -> Settings:
    """Let a layout hold from its instant on; the settings then. Repeating it is harmless.

    Args:
        store: open.
        layout: its instant is the start of a minute, ms UTC.
        timing: the durations of the protocol.
        store_clock: read lately.
        persistence: repeats what was not answered.
        deadline: on the monotonic clock, in ms.

    Raises:
        SettingsError: the layout cannot be, or it would hold too soon; nothing was changed.
        StoreUnavailable, StoreTimeout: the deadline passed; whether it is set is not known, repeat the call.
    """

    async def attempt() -> Settings | None:
        settings = await store.read_settings()
        if layout in settings.layouts:
            return settings
        check_layout(layout, settings, timing, store_clock.now_ms())
        changed = msgspec.structs.replace(settings, layouts=(*settings.layouts, layout))
        return changed if await store.replace_settings(changed, settings) else None

    while True:
        settings = await persistence.until_answered(attempt, deadline)
        if settings is not None:
            return settings


def check_layout(layout: Layout, settings: Settings, timing: Timing, now: int) -> None:
    """Raise SettingsError, with what to do, where the layout cannot be added at `now` (ms UTC)."""
    last = settings.layouts[-1]
    soonest = now + 2 * timing.layout_notice_ms
    if settings.schema_version != SCHEMA_VERSION:
        raise SettingsError("a newer release made this store's tables; set the layout with that release.")
    if not 0 < layout.sub_partitions <= SUB_PARTITIONS_MAX:
        raise SettingsError(f"{layout.sub_partitions} sub-partitions cannot be; choose 1 to {SUB_PARTITIONS_MAX}.")
    if layout.from_ms % timing.minute_ms:
        raise SettingsError(f"{_shown(layout.from_ms)} is not the start of a minute; choose one.")
    if layout.from_ms < soonest:
        raise SettingsError(
            f"{_shown(layout.from_ms)} is too near: dispatchers that look at the settings only later would not know. "
            f"Choose {_shown(-(-soonest // timing.minute_ms) * timing.minute_ms)} or later."
        )
    if layout.from_ms <= last.from_ms:
        raise SettingsError(f"a layout from {_shown(last.from_ms)} on is set already; choose a later instant.")
    if layout.sub_partitions == last.sub_partitions:
        raise SettingsError(f"minutes are split into {last.sub_partitions} by then already; nothing is to be done.")
    if len({each.sub_partitions for each in settings.layouts} | {layout.sub_partitions}) > LAYOUTS_MAX:
        raise SettingsError(
            f"this store has had {LAYOUTS_MAX} layouts, and each minute is read in all; choose one of "
            f"{', '.join(sorted({str(each.sub_partitions) for each in settings.layouts}))}."
        )
    Levels(timing, settings.shard_ranges, (layout,))


def _shown(instant: int) -> str:
    return to_datetime(instant).isoformat(timespec="seconds").replace("+00:00", "Z")
