"""Python's cycle collector, in a process that dispatches."""

from __future__ import annotations

import gc

#: New objects before the collector looks at them; Python's default is 700.
COLLECT_AFTER = 100_000


def spare_the_collector() -> None:
    """A herd is a hundred thousand objects that live for seconds, none in a cycle; do not search them for any.

    Collecting as often as Python does by default costs a third of a record's processor time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 50, 100)
