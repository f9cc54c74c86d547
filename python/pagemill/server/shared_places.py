"""A bound on the requests that are in one stage, shared among tenants.

async with places.place(tenant):
    ...    # is read, or waits for it
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from pagemill.server.errors import ApiError


class SharedPlaces:
    """`count` places. If all are taken, a request of a tenant that has fewer of them than another
    one, also with one more, gets the place of that tenant's newest request, which is refused.
    Belongs to one event loop.
    """

    def __init__(self, count: int, refusal: str) -> None:
        """`refusal` is the sentence of a request that gets no place, or loses it."""
        self._count = count
        self._refusal = refusal
        self._taken = 0
        self._of: dict[str, list[asyncio.Timeout]] = {}
        """By tenant what ends each of its requests, the newest last; no list is empty."""

    @contextlib.asynccontextmanager
    async def place(self, tenant: str) -> AsyncGenerator[None]:
        """A place for as long as the context lasts.

        Raises:
            ApiError: 429: there is none, or another tenant got it. What runs in the context is
                cancelled then.
        """
        if self._taken >= self._count:
            self._displace(tenant)
        held = asyncio.timeout(None)
        try:
            async with held:
                self._of.setdefault(tenant, []).append(held)
                self._taken += 1
                try:
                    yield
                finally:
                    if held in self._of.get(tenant, ()):
                        self._remove(tenant, held)
        except TimeoutError:
            if not held.expired():
                raise
            raise self._refused() from None

    def _displace(self, tenant: str) -> None:
        most = max(self._of, key=lambda each: len(self._of[each]))
        if len(self._of.get(tenant, ())) + 1 >= len(self._of[most]):
            raise self._refused()
        newest = self._of[most][-1]
        self._remove(most, newest)
        newest.reschedule(asyncio.get_running_loop().time())

    def _remove(self, tenant: str, held: asyncio.Timeout) -> None:
        self._taken -= 1
        self._of[tenant].remove(held)
        if not self._of[tenant]:
            del self._of[tenant]

    def _refused(self) -> ApiError:
        return ApiError(429, self._refusal)
