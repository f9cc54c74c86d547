"""A bound on the requests that are in one stage, shared among tenants.

async with places.place(tenant) as place:
    ...              # is read, or waits for it
    place.leave()    # the rest is done without one
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from pagemill.server.errors import ApiError


class Place:
    """That of one request. Belongs to one event loop."""

    def __init__(self, of_tenant: list[Place], held: asyncio.Timeout) -> None:
        self._of_tenant = of_tenant
        self._held = held

    def leave(self) -> None:
        """Gives it back before the context ends. Idempotent."""
        if self in self._of_tenant:
            self._of_tenant.remove(self)

    def lose(self) -> None:
        """Ends the request, which is refused."""
        self.leave()
        self._held.reschedule(asyncio.get_running_loop().time())


class SharedPlaces:
    """`count` places. If all are taken, a request of a tenant that has fewer of them than another
    one, also with one more, gets the place of that tenant's newest request, which is refused.
    Belongs to one event loop.
    """

    def __init__(self, count: int, refusal: str) -> None:
        """`refusal` is the sentence of a request that gets no place, or loses it."""
        self._count = count
        self._refusal = refusal
        self._of: dict[str, list[Place]] = {}
        """The places of each tenant, the newest last."""

    @contextlib.asynccontextmanager
    async def place(self, tenant: str) -> AsyncGenerator[Place]:
        """A place for as long as the context lasts.

        Raises:
            ApiError: 429: there is none, or another tenant got it. What runs in the context is
                cancelled then.
        """
        if sum(map(len, self._of.values())) >= self._count:
            self._displace(tenant)
        held = asyncio.timeout(None)
        try:
            async with held:
                places = self._of.setdefault(tenant, [])
                place = Place(places, held)
                places.append(place)
                try:
                    yield place
                finally:
                    place.leave()
        except TimeoutError:
            if not held.expired():
                raise
            raise self._refused() from None
        finally:
            if not self._of.get(tenant, [None]):
                del self._of[tenant]

    def _displace(self, tenant: str) -> None:
        most = max(self._of.values(), key=len)
        if len(self._of.get(tenant, ())) + 1 >= len(most):
            raise self._refused()
        most[-1].lose()

    def _refused(self) -> ApiError:
        return ApiError(429, self._refusal)
