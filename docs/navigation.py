"""A hook of mkdocs: pages that mkdocs.yml does not name take their place in the navigation by themselves.

Those that tools write are there or not; whoever writes one more for operators need not know this site.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

#: Under which heading a page stands; the title is its own.
HEADINGS: Final = {"commands.md": "Reference", "performance.md": "Design", "loadtest.md": "Design"}
#: Where every other page stands.
OPERATIONS: Final = "Operations"


def on_config(config: Any) -> Any:
    """Add what is there and not named, before the navigation is built."""
    named = set(_names(config.nav))
    for page in sorted(Path(config.docs_dir).glob("*.md")):
        if page.name not in named:
            _entries(config.nav, HEADINGS.get(page.name, OPERATIONS)).append(page.name)
    return config


def _names(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for part in entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else ():
        yield from _names(part)


def _entries(nav: list[Any], heading: str) -> list[Any]:
    """The entries under a heading, which is made where it is missing, before the last one."""
    for entry in nav:
        if heading in entry:
            found: list[Any] = entry[heading]
            return found
    nav.insert(-1, {heading: []})
    return _entries(nav, heading)
