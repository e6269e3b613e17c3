"""A hook of mkdocs: pages that other tools write take their place in the navigation once they are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

#: Written page: under which heading, and as what.
WRITTEN: Final = {
    "commands.md": ("Reference", "Commands"),
    "performance.md": ("Design", "Performance"),
    "loadtest.md": ("Design", "Load test"),
}


def on_config(config: Any) -> Any:
    """Add what is there, before the navigation is built."""
    for name, (heading, title) in WRITTEN.items():
        if (Path(config.docs_dir) / name).is_file():
            (entries,) = (entry[heading] for entry in config.nav if heading in entry)
            entries.append({title: name})
    return config
