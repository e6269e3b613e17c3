"""Why a file cannot be read, in words: the system's reason without its numbers and without the path once more."""

from __future__ import annotations


def why(error: Exception) -> str:
    """The reason as people say it: "no such file or directory"."""
    text = getattr(error, "strerror", None) or str(error)
    return text[:1].lower() + text[1:]
