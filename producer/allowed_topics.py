"""Which topics may be named: patterns, matched the same by clients and by dispatchers.

A dispatcher that is given a list publishes to no other topic, whoever asked for it (dispatcher/allow_list.py). A client
that is given one refuses at once what would end as a dead letter; it protects nobody, since others need not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from tocsin.schema.errors import InvalidSchedule


class AllowedTopics:
    """A list of topics.

    Args:
        patterns: names, with `*` and `?` as in file names; matched whole and case-sensitive.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        #: Whether a topic is on the list.
        self.allows = lru_cache(maxsize=4096)(self._matches)

    def require(self, topic: str) -> None:
        """Raise InvalidSchedule for a topic that is not on the list; an empty list is none."""
        if self._patterns and not self.allows(topic):
            listed = ", ".join(self._patterns)
            raise InvalidSchedule("topic", topic, f"is not on the list of allowed topics: {listed}")

    def _matches(self, topic: str) -> bool:
        return any(fnmatchcase(topic, pattern) for pattern in self._patterns)
