"""Who should own which shard range: a pure function of the living dispatchers and the owners of now.

Every dispatcher computes it for itself from the same tables. Fair: the numbers of ranges differ by at most one. Few
moves: a dispatcher keeps what it has up to its share, and only the surplus and what nobody living owns is handed out.
Two dispatchers that see the tables a moment apart may disagree for one heartbeat; the lease decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping


def assign(dispatchers: Iterable[str], owners: Mapping[int, str | None]) -> dict[int, str]:
    """The wanted owner of each range.

    Args:
        dispatchers: ids of those that live.
        owners: the owner of each range now; None, or one that does not live, means that it is free.
    """
    living = sorted(set(dispatchers))
    if not living:
        return {}
    held: defaultdict[str, list[int]] = defaultdict(list)
    free: list[int] = []
    for shard_range in sorted(owners):
        owner = owners[shard_range]
        if owner in living and owner is not None:
            held[owner].append(shard_range)
        else:
            free.append(shard_range)
    share, larger = divmod(len(owners), len(living))
    # The larger shares go to those that hold most already: that moves least.
    by_holding = sorted(living, key=lambda dispatcher: (-len(held[dispatcher]), dispatcher))
    shares = {dispatcher: share + (rank < larger) for rank, dispatcher in enumerate(by_holding)}
    wanted: dict[int, str] = {}
    for dispatcher in living:
        keeps = held[dispatcher][: shares[dispatcher]]
        free += held[dispatcher][shares[dispatcher] :]
        wanted |= dict.fromkeys(keeps, dispatcher)
    free.sort(reverse=True)
    for dispatcher in living:
        missing = shares[dispatcher] - min(len(held[dispatcher]), shares[dispatcher])
        for _ in range(missing):
            wanted[free.pop()] = dispatcher
    return wanted
