"""Passes requests on: chooses a server, tries another if it fails at once, relays the answer."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from pagemill.router.fleet import Fleet, Hint, Server
from pagemill.router.headers import to_server
from pagemill.router.hints import HintReader
from pagemill.router.relay import relay
from pagemill.router.upstream import Reply, UpstreamError
from pagemill.server.access.caller import Caller
from pagemill.server.admission import FORM, JSON, read_body
from pagemill.server.disconnect import until_disconnect
from pagemill.server.endpoints.endpoint import Transport
from pagemill.server.endpoints.table import ENDPOINTS, error_shape
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response

_TRIES = 2
_FORMS = frozenset(row.path for row in ENDPOINTS if row.transport is Transport.AUDIO_FORM)


class Proxy:
    """An ASGI endpoint for the requests that one server answers.

    A request is tried once more, on another server, if the first one cannot be reached, breaks off
    before the head of its response, or answers 503. Generating twice is safe: it changes nothing.
    A 503 says nothing of the server's other requests: they go on, until a probe fails.
    """

    def __init__(self, fleet: Fleet, hints: HintReader, max_body_bytes: int) -> None:
        self._fleet = fleet
        self._hints = hints
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        request = Request(scope, receive)
        try:
            content = FORM if scope["path"] in _FORMS else JSON
            body = await read_body(request, self._max_body_bytes, content)
            caller: Caller = request.state.caller
            hint = await self._hints.read(scope["path"], request.headers, body, caller.tenant)
            await until_disconnect(self._answer(request, body, hint, send), receive)
        except ApiError as error:
            await error_response(error, error_shape(scope["path"]))(scope, receive, send)
        except ClientDisconnect:
            pass  # its server's connection is closed, which aborts the request

    async def _answer(self, request: Request, body: bytes, hint: Hint, send: Send) -> None:
        """Raises ApiError if no server answers."""
        problem, server = "", None
        for tries_left in reversed(range(_TRIES)):
            server = self._fleet.route(hint, server)
            if server is None:
                break
            self._fleet.retries += bool(problem)
            try:
                problem = await self._try(server, request, body, send, tries_left)
            except asyncio.CancelledError:
                server.counts.aborted += 1
                raise
            finally:
                self._fleet.finish(server)
            if not problem:
                return
        if problem:
            raise ApiError(502, f"No server answered this request: {problem}.")
        raise ApiError(503, "No server is ready; the router's /metrics show their state.")

    async def _try(
        self, server: Server, request: Request, body: bytes, send: Send, tries_left: int
    ) -> str:
        """Relays what `server` answers; or why it did not, if another one may be tried.

        Raises:
            ApiError: 504.
        """
        url = server.upstream.url
        try:
            reply = await self._send(server, request, body)
        except UpstreamError as error:
            self._failed(server, error)
            if error.timed_out:
                raise ApiError(504, f"No answer: {error}.") from error
            return str(error)
        try:
            if reply.status == 503 and tries_left and len(self._fleet.available) > 1:
                server.counts.failed += 1
                return f"{url} answers 503"
            await relay(reply, request.scope, send)
            server.counts.served += 1
            server.breaker.request_served()
        except UpstreamError as error:
            server.counts.broken += 1
            if not error.by_client:
                self._fleet.request_failed(server, error)
        finally:
            await reply.close()
        return ""

    def _failed(self, server: Server, error: UpstreamError) -> None:
        server.counts.failed += 1
        self._fleet.request_failed(server, error)

    async def _send(self, server: Server, request: Request, body: bytes) -> Reply:
        client, url = request.client, request.url
        headers = to_server(
            request.headers.raw,
            host=server.upstream.host,
            client=client.host if client is not None else "",
            request_id=request.state.request_id,
            size=len(body),
        )
        target = f"{url.path}?{url.query}" if url.query else url.path
        return await server.upstream.send(request.method, target, headers, body)
