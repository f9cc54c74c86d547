"""The service of the routes: calls, their records and statuses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc
import grpc.aio

from pagemill.server.access.key_ring import KeyRing
from pagemill.server.errors import ApiError
from pagemill.server.records.record import OnEnd, RequestRecord
from pagemill.server.records.timings import server_timing
from pagemill.server.rpc.call import Call
from pagemill.server.rpc.handler import Context, bytes_handler
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
        self._handlers = {
            method.path: bytes_handler(partial(self._call, method)) for method in METHODS
        }
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


def _of(record: RequestRecord) -> str:
    return f" (key {record.key_id})" if record.key_id else ""
