"""Probes of servers: `/ready` decides whether a server gets requests."""

from __future__ import annotations

import asyncio

from pagemill.router.fleet import Fleet, Server
from pagemill.router.upstream import TimeLimits, UpstreamError

_MAX_ANSWER_BYTES = 2**16


async def probe_forever(fleet: Fleet, server: Server, limit_s: float) -> None:
    """Probes `server` whenever its breaker says so."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(max(0.0, server.breaker.probe_at - loop.time()))
        if server.breaker.probe_at <= loop.time():  # else a request failed meanwhile
            fleet.probed(server, await _problem(server, limit_s))


async def _problem(server: Server, limit_s: float) -> str | None:
    """Why the server takes no requests; None: it does."""
    upstream = server.upstream
    try:
        async with asyncio.timeout(limit_s):
            reply = await upstream.send(
                "GET", "/ready", [(b"host", upstream.host)], limits=TimeLimits(limit_s, limit_s)
            )
            await reply.body(_MAX_ANSWER_BYTES)
    except UpstreamError as error:
        return str(error)
    except TimeoutError:
        return f"{upstream.url} does not answer /ready in {limit_s:g} s"
    return None if reply.status == 200 else f"/ready is {reply.status}"
