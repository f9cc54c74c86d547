"""Passes a request on to the process of the model that it names, which is loaded if need be."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from pagemill.model_host.host import ModelHost
from pagemill.model_host.hosted_model import HostedModel
from pagemill.router.headers import to_server
from pagemill.router.relay import relay
from pagemill.router.upstream import Reply, UpstreamError
from pagemill.server.access.caller import Caller
from pagemill.server.access.caller import Scope as Grant
from pagemill.server.admission import read_body
from pagemill.server.disconnect import until_disconnect
from pagemill.server.endpoints.endpoint import Transport
from pagemill.server.endpoints.table import ENDPOINTS, error_shape
from pagemill.server.errors import ApiError, invalid_body
from pagemill.server.form import FileLimit, read_form
from pagemill.server.http_answer import error_response
from pagemill.server.protocol.decode import decode_object

_FORMS = frozenset(row.path for row in ENDPOINTS if row.transport is Transport.AUDIO_FORM)


class _ModelField(msgspec.Struct):
    model: str | None = None


class _NoSink:
    """Drops a form's file, which is passed on with the body."""

    async def begin(self, filename: str | None) -> None:
        """Does nothing."""

    async def write(self, data: bytes) -> None:
        """Does nothing."""


class ModelProxy:
    """An ASGI endpoint for the requests that a model answers."""

    def __init__(self, host: ModelHost, max_body_bytes: int, body_timeout_s: float) -> None:
        """`body_timeout_s`: see `read_form`."""
        self._host = host
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        request = Request(scope, receive)
        caller: Caller = request.state.caller
        try:
            caller.require(Grant.INFERENCE)
            body, name = await self._read(request)
            model = self._host.named(name, caller)
            await until_disconnect(self._answer(model, request, body, send), receive)
        except ApiError as error:
            await error_response(error, error_shape(scope["path"]))(scope, receive, send)
        except ClientDisconnect:
            pass  # its connection to the model is closed, which aborts the request

    async def _read(self, request: Request) -> tuple[bytes, str | None]:
        """The body, and the model that it names.

        Raises:
            ApiError: 400, 408, 413: it cannot be read.
            ClientDisconnect: the client went away.
        """
        if request.url.path in _FORMS:
            return await self._read_form(request)
        body = await read_body(request, self._max_body_bytes)
        try:
            return body, msgspec.json.decode(body, type=_ModelField).model
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            decode_object(body)  # says what else is wrong with it
            raise _not_a_string() from None

    async def _read_form(self, request: Request) -> tuple[bytes, str | None]:
        parts: list[bytes] = []

        async def receive() -> Message:
            message = await request.receive()
            parts.append(message.get("body", b""))
            return message

        limit = FileLimit(self._max_body_bytes, "--max-body-bytes")
        whole = Request(request.scope, receive)
        fields = await read_form(whole, limit, _NoSink(), self._body_timeout_s)
        name = fields.get("model")
        if not isinstance(name, str | None):  # `model[]` is a list
            raise _not_a_string()
        return b"".join(parts), name

    async def _answer(self, model: HostedModel, request: Request, body: bytes, send: Send) -> None:
        """Raises ApiError if the model cannot be loaded."""
        outcome = "refused"  # unless it is loaded
        try:
            async with self._host.use(model):
                outcome = await self._pass_on(model, request, body, send)
        except asyncio.CancelledError:
            outcome = "aborted"
            raise
        finally:
            model.counts.requests[outcome] += 1

    async def _pass_on(self, model: HostedModel, request: Request, body: bytes, send: Send) -> str:
        """Relays what the model's process answers; how the request ended."""
        try:
            reply = await send_to(model, request, body)
        except UpstreamError as error:
            refusal = unanswered(model, error)
            await error_response(refusal, error_shape(request.url.path))(
                request.scope, request.receive, send
            )
            return "failed"
        try:
            await relay(reply, request.scope, send)
        except UpstreamError:
            return "broken"
        finally:
            await reply.close()
        return "served"


def _not_a_string() -> ApiError:
    return invalid_body("`model` must be a string.", "model")


async def send_to(model: HostedModel, request: Request, body: bytes = b"") -> Reply:
    """The head of what the process of `model` answers to `request`.

    Raises:
        UpstreamError: it does not answer.
    """
    headers = to_server(
        request.headers.raw,
        host=model.upstream.host,
        client=request.client.host if request.client is not None else "",
        request_id=request.state.request_id,
        size=len(body),
    )
    url = request.url
    target = f"{url.path}?{url.query}" if url.query else url.path
    return await model.upstream.send(request.method, target, headers, body)


def unanswered(model: HostedModel, error: UpstreamError) -> ApiError:
    """The refusal of a request that gets no response because of `error`."""
    if error.timed_out:
        return ApiError(504, f"The model `{model.name}` does not answer in time.")
    return ApiError(502, f"The process of the model `{model.name}` did not answer: {error}.")
