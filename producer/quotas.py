"""How fast one tenant may create: a token bucket for each, in the client that creates for them.

A tenant who creates without end costs everybody else the store. The client that takes their requests, an API server
say, is the place to say no: it knows the tenant, and nothing was written yet. So a quota counts within one client
object; ten of them allow ten times as much.

`create` of a tenant who is over refuses with Overloaded, which names when to come back; `create_many` waits, since its
caller takes results one by one and is held back by it. Changes of what exists are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.schema.clock import Clock
from tocsin.schema.errors import Overloaded, SettingsError
from tocsin.schema.instants import SECOND_MS

#: The name under which the rate of every tenant without one of its own stands.
EVERY_OTHER = "*"
#: Tenants remembered at most; beyond them the ones with full buckets are forgotten, which changes nothing for them.
TENANTS_MAX = 10_000


class TokenBucket:
    """So many a second, and as many at once as a second brings; time is on the monotonic clock, in ms."""

    def __init__(self, per_second: int, now: int) -> None:
        self._per_second = per_second
        self._tokens = float(per_second)
        self._at = now

    def wait_ms(self, now: int) -> int:
        """How long until one more may be taken; 0: now."""
        self._fill(now)
        return 0 if self._tokens >= 1 else -(-int((1 - self._tokens) * SECOND_MS) // self._per_second) or 1

    def take(self, now: int, count: int = 1) -> None:
        """Take so many. More than there are is a debt, which later takers wait for."""
        self._fill(now)
        self._tokens -= count

    def is_full(self, now: int) -> bool:
        """Whether it is as good as new."""
        self._fill(now)
        return self._tokens >= self._per_second

    def _fill(self, now: int) -> None:
        self._tokens = min(self._per_second, self._tokens + (now - self._at) * self._per_second / SECOND_MS)
        self._at = now


class Quotas:
    """Creates a second, by tenant.

    Args:
        per_second: by name of the tenant; `*`: every other. A tenant without a rate is not limited.
        clock: this host's.

    Raises:
        SettingsError: a rate is below 1.
    """

    def __init__(self, per_second: Mapping[str, int], clock: Clock) -> None:
        for tenant, rate in per_second.items():
            if type(rate) is not int or rate < 1:
                raise SettingsError(f"the rate of tenant {tenant!r} is {rate!r}; it must be a whole number from 1 on.")
        self._per_second = dict(per_second)
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def require(self, tenant: str) -> None:
        """Count one create. Raises Overloaded, and counts nothing, where the tenant is over its rate."""
        bucket = self._bucket(tenant)
        if bucket is None:
            return
        now = self._clock.monotonic_ms()
        wait_ms = bucket.wait_ms(now)
        if wait_ms:
            raise Overloaded(wait_ms)
        bucket.take(now)

    async def wait(self, tenant: str) -> None:
        """Count one create, once the tenant may."""
        bucket = self._bucket(tenant)
        while bucket is not None:
            now = self._clock.monotonic_ms()
            wait_ms = bucket.wait_ms(now)
            if not wait_ms:
                bucket.take(now)
                return
            await self._clock.sleep_ms(wait_ms)

    def _bucket(self, tenant: str) -> TokenBucket | None:
        rate = self._per_second.get(tenant, self._per_second.get(EVERY_OTHER))
        if rate is None:
            return None
        now = self._clock.monotonic_ms()
        if tenant not in self._buckets and len(self._buckets) >= TENANTS_MAX:
            self._buckets = {name: each for name, each in self._buckets.items() if not each.is_full(now)}
        return self._buckets.setdefault(tenant, TokenBucket(rate, now))
