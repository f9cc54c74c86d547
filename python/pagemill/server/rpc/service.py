"""The services that the listener offers: calls, their records and statuses, and health."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio

from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.endpoints.probes import ready
from pagemill.server.errors import ApiError
from pagemill.server.records.record import OnEnd, RequestRecord
from pagemill.server.records.timings import server_timing
from pagemill.server.rpc.call import Call, Context
from pagemill.server.rpc.message import number_message
from pagemill.server.rpc.status import code_of, details_of, metadata_of
from pagemill.server.rpc.table import METHODS, Method
from pagemill.server.state import ServerState

_LOGGER = logging.getLogger("pagemill.server")
_CLIENT_GONE = 499


class InferenceService(grpc.GenericRpcHandler):
    """The calls of `table.METHODS`."""

    def __init__(self, state: ServerState, ring: KeyRing, listeners: Sequence[OnEnd]) -> None:
        """`listeners` get the record of each call at its end."""
        self._state = state
        self._ring = ring
        self._listeners = (state.request_ended, *listeners)
        self._handlers = {method.path: _handler(partial(self._call, method)) for method in METHODS}
        for method in METHODS:
            method.endpoint.load()  # what a handler imports is imported before the first call

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call; gRPC asks for it before it reads the call's message."""
        return self._handlers.get(handler_call_details.method)

    async def _call(self, method: Method, messages: object, context: Context) -> None:
        del messages  # the context has them
        call = Call(self._state, method, context)
        record, refusal = call.record, None
        try:
            await call.answer(self._ring)
            record.status = 200
        except ApiError as error:
            self._state.returns.schedule(error)
            refusal = error
        except (asyncio.CancelledError, grpc.aio.BaseError):
            record.status = _CLIENT_GONE
            raise
        except Exception:
            _LOGGER.exception("%s failed%s", method.path, _of(record))
            refusal = ApiError(500, "The server failed in an unexpected way; its log says more.")
        finally:
            if refusal is not None:
                record.status = refusal.status
            self._ended(record)
        trailers = call.trailers
        if self._state.config.enable_per_request_metrics and record.work.timings is not None:
            trailers.append(("server-timing", server_timing(record.work.timings)))
        if refusal is None:
            context.set_trailing_metadata(tuple(trailers))
            return
        if refusal.status == 403:
            _LOGGER.warning("%s refused%s", method.path, _of(record))
        trailers += metadata_of(refusal)
        await context.abort(code_of(refusal), details_of(refusal), tuple(trailers))

    def _ended(self, record: RequestRecord) -> None:
        record.duration_s = time.monotonic() - record.started
        for listener in self._listeners:
            listener(record)


class HealthService(grpc.GenericRpcHandler):
    """`grpc.health.v1.Health/Check`: would a new request be served? Needs no key.

    Its request, which may name a service, is not read: any sender could make it large, and all
    services are served or none is. `Watch` is not there; clients that try it take that as healthy.
    """

    _PATH = "/grpc.health.v1.Health/Check"
    _SERVING, _NOT_SERVING = 1, 2

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._check_handler = _handler(self._check)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call."""
        return self._check_handler if handler_call_details.method == self._PATH else None

    async def _check(self, messages: object, context: Context) -> None:
        del messages
        try:
            await ready(self._state, {}, ANONYMOUS)
            status = self._SERVING
        except ApiError:
            status = self._NOT_SERVING
        await context.write(number_message(status))


def _handler(answer: Any) -> Any:
    """A handler that reads and writes messages itself, as bytes. Calls of one message each way do
    not differ on the wire."""
    return cast(Any, grpc.stream_stream_rpc_method_handler)(answer)


def _of(record: RequestRecord) -> str:
    return f" (key {record.key_id})" if record.key_id else ""
