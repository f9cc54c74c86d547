"""Passes requests on: chooses a server, tries another if it fails at once, relays the answer."""

from __future__ import annotations

import contextlib

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from pagemill.router.fleet import Fleet, Hint, Server
from pagemill.router.headers import to_server
from pagemill.router.hints import HintReader
from pagemill.router.relay import relay
from pagemill.router.upstream import Reply, UpstreamError
from pagemill.server.admission import read_body
from pagemill.server.disconnect import until_disconnect
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response

_TRIES = 2


class Proxy:
    """An ASGI endpoint for the requests that one server answers.

    A request is tried once more, on another server, if the first one cannot be reached, breaks off
    before the head of its response, or answers 503. Generating twice is safe: it changes nothing.
    """

    def __init__(self, fleet: Fleet, hints: HintReader, max_body_bytes: int) -> None:
        self._fleet = fleet
        self._hints = hints
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        request = Request(scope, receive)
        try:
            body = await read_body(request, self._max_body_bytes)
            hint = await self._hints.read(scope["path"], request.headers, body)
            await until_disconnect(self._answer(request, body, hint, send), receive)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
        except ClientDisconnect:
            pass  # the server has been told by its connection

    async def _answer(self, request: Request, body: bytes, hint: Hint, send: Send) -> None:
        """Raises ApiError if no server answers."""
        problem = ""
        for attempt in range(1, _TRIES + 1):
            server = self._fleet.route(hint)
            if server is None:
                break
            self._fleet.retries += attempt > 1
            try:
                reply = await self._send(server, request, body)
            except UpstreamError as error:
                self._fleet.finish(server)
                if error.timed_out:
                    raise ApiError(504, f"No answer: {error}.") from error
                problem = str(error)
                continue
            except BaseException:
                server.counts.aborted += 1
                self._fleet.finish(server)
                raise
            if reply.status == 503 and attempt < _TRIES and len(self._fleet.available) > 1:
                await reply.close()
                self._fleet.finish(server)
                self._fleet.request_failed(server, UpstreamError("it answers 503"))
                server.counts.failed += 1
                continue
            await self._relay(server, reply, request.scope, send)
            return
        if problem:
            raise ApiError(502, f"No server answered this request: {problem}.")
        raise ApiError(503, "No server is ready; the router's /metrics show their state.")

    async def _send(self, server: Server, request: Request, body: bytes) -> Reply:
        """Raises UpstreamError, having noted it."""
        client = request.client
        headers = to_server(
            request.headers.raw,
            host=server.upstream.host,
            client=client.host if client is not None else "",
            request_id=request.state.request_id,
            size=len(body),
        )
        target = request.url.path
        if request.url.query:
            target += f"?{request.url.query}"
        try:
            return await server.upstream.send(request.method, target, headers, body)
        except UpstreamError as error:
            server.counts.failed += 1
            self._fleet.request_failed(server, error)
            raise

    async def _relay(self, server: Server, reply: Reply, scope: Scope, send: Send) -> None:
        counts = server.counts
        try:
            await relay(reply, scope, send)
            counts.served += 1
            server.breaker.request_served()
        except UpstreamError as error:
            counts.broken += 1
            self._fleet.request_failed(server, error)
        except BaseException:
            counts.aborted += 1
            raise
        finally:
            self._fleet.finish(server)
            with contextlib.suppress(UpstreamError):
                await reply.close()
