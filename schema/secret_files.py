"""A secret from the environment, or from a file that the environment names, as mounted secrets are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tocsin.schema.errors import SettingsError


def read_secret(environment: Mapping[str, str], name: str) -> str | None:
    """The first line of the file that `<name>_FILE` names, else what `name` holds; None where neither is set.

    Raises:
        SettingsError: the file cannot be read.
    """
    path = environment.get(f"{name}_FILE")
    if not path:
        return environment.get(name) or None
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"the file {path} cannot be read ({why}); correct {name}_FILE.") from error
