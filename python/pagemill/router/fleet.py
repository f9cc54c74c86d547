"""The servers behind a router, and which of them gets a request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from pagemill import _native
from pagemill.config import RouterConfig
from pagemill.router.breaker import Breaker
from pagemill.router.client_tls import client_context
from pagemill.router.upstream import TimeLimits, Upstream, UpstreamError

_LOGGER = logging.getLogger("pagemill.router")


@dataclass(frozen=True, slots=True)
class Hint:
    """What is known of a request before it is sent: the tokens of its prompt (none: not known),
    its `cache_salt`, and its session."""

    token_ids: Sequence[int] = ()
    cache_salt: str = ""
    session: str = ""


@dataclass(slots=True)
class Counts:
    """Of one server."""

    served: int = 0
    """Responses that were complete, refusals included."""
    failed: int = 0
    """Requests that got no response from it."""
    broken: int = 0
    """Responses that it broke off."""
    aborted: int = 0
    """Requests whose client left."""
    events: int = 0
    """KV events received."""
    events_lost: int = 0


@dataclass(eq=False, slots=True)
class Server:
    """One server."""

    index: int
    upstream: Upstream
    breaker: Breaker
    outages: int = 0
    """How often it ceased to get requests; what was known of its cache is forgotten then."""
    counts: Counts = field(default_factory=Counts)


class Fleet:
    """All servers of a router. Event loop only."""

    def __init__(self, config: RouterConfig, max_connections: int) -> None:
        """`max_connections`: to each server.

        Raises:
            StatusError: an option of the routing is out of range.
            ConfigError: see `client_context`.
        """
        limits, tls = (
            TimeLimits(config.connect_timeout, config.read_timeout),
            client_context(config),
        )
        self.servers = [
            Server(
                i, Upstream(url, limits, max_connections, tls=tls), Breaker(config.probe_interval)
            )
            for i, url in enumerate(config.server)
        ]
        self.router = _native.Router(
            policy=config.policy,
            num_engines=len(self.servers),
            block_size=config.block_size,
            hash_algorithm=config.prefix_caching_hash_algo,
            max_prefix_blocks=config.max_prefix_blocks,
        )
        for server in self.servers:
            self.router.set_available(server.index, False)
        self._used: set[Server] = set()
        self.retries = 0

    @property
    def available(self) -> list[Server]:
        """The servers that get requests."""
        return [server for server in self.servers if server in self._used]

    def route(self, hint: Hint, tried: Server | None = None) -> Server | None:
        """The server for a request, which the caller passes to `finish` once, and another one than
        it has `tried`, if there is one. None: there is none at present."""
        leaves_out = tried is not None and tried in self._used and len(self._used) > 1
        if tried is not None and leaves_out:
            self.router.set_available(tried.index, False)
        index = self.router.route(hint.token_ids, cache_salt=hint.cache_salt, session=hint.session)
        if tried is not None and leaves_out:
            self.router.set_available(tried.index, True)
        return None if index is None else self.servers[index]

    def finish(self, server: Server) -> None:
        """A request that was routed to `server` is over."""
        self.router.finish(server.index)

    def request_failed(self, server: Server, error: UpstreamError) -> None:
        """`server` failed a request: no further ones until a probe succeeds."""
        server.breaker.request_failed(asyncio.get_running_loop().time())
        self._update(server, str(error))

    def probed(self, server: Server, problem: str | None) -> None:
        """The outcome of a probe; None: the server is ready."""
        server.breaker.probed(asyncio.get_running_loop().time(), problem is None)
        self._update(server, problem or "")

    async def close(self) -> None:
        """Closes all connections."""
        for server in self.servers:
            await server.upstream.close()

    def _update(self, server: Server, problem: str) -> None:
        """Tells the policy; logs a change once."""
        may = server.breaker.closed
        if may == (server in self._used):
            return
        self.router.set_available(server.index, may)
        if may:
            self._used.add(server)
            _LOGGER.info("%s gets requests", server.upstream.url)
        else:
            self._used.discard(server)
            server.outages += 1
            self.router.forget(server.index)
            _LOGGER.warning("%s gets no requests: %s", server.upstream.url, problem)
