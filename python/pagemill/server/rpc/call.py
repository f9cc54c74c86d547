"""One call: the checks before its handler, and the messages of the answer.

The checks are those of HTTP in the same order: the key, the server's phase, the key's limits. Only
then is the message read: a call without a key takes no memory for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from urllib.parse import unquote

import msgspec

from pagemill.server.access.caller import ANONYMOUS, Caller
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.answer import Answer, Binary, FileContent, Portions, Talk, Text
from pagemill.server.dispatch import invoke
from pagemill.server.errors import ApiError, bad_request, binary_answer, no_key
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.protocol.request_id import named
from pagemill.server.records.record import RequestRecord
from pagemill.server.request_ids import request_id_of
from pagemill.server.rpc.events import write_events
from pagemill.server.rpc.handler import Context, headers_of
from pagemill.server.rpc.message import json_message, request_fields
from pagemill.server.rpc.status import Metadata
from pagemill.server.rpc.table import Method
from pagemill.server.state import ServerState
from pagemill.server.transport.connections import LEAST_SENT_BYTES


class Call:
    """One call of `method`; `record` is filled in as it goes on."""

    def __init__(self, state: ServerState, method: Method, context: Context) -> None:
        self._state = state
        self._method = method
        self._context = context
        self._headers = headers_of(context)
        self.record = RequestRecord(
            "POST",
            method.path,
            _address(context.peer()),
            time.monotonic(),
            request_id=request_id_of(self._headers),
            route=method.path,
        )
        self._limits: Metadata = []

    @property
    def trailers(self) -> Metadata:
        """Metadata of the answer, or of the refusal."""
        return [("x-request-id", self.record.request_id), *self._limits]

    async def answer(self, ring: KeyRing) -> None:
        """Answers, if the call has a key of `ring` and nothing else is against it.

        Raises:
            ApiError: it is refused, or it failed.
        """
        state, method = self._state, self._method
        caller = self._caller(ring)
        with contextlib.ExitStack() as stack:
            state.lifecycle.enter()
            stack.callback(state.lifecycle.leave)
            if method.endpoint.is_metered and caller.limits is not None:
                stack.callback(self._note_limits, caller.key_id, caller.limits)
                admitted = state.limiter.admit(caller.key_id, caller.limits)
                stack.callback(admitted.leave)
                caller = replace(caller, admitted=admitted)
            await self._write(await self._invoke(caller))

    def _caller(self, ring: KeyRing) -> Caller:
        record = self.record
        caller = ring.owner(self._headers) if ring.keys else ANONYMOUS
        if caller is None:
            raise no_key()
        record.key_id, record.tenant = caller.key_id, caller.tenant
        if self._state.config.trust_tenant_header:
            caller = caller.of_tenant(dict(self._headers).get(b"x-tenant-id", b"").decode())
            record.tenant = caller.tenant
        engine = dict(self._headers).get(b"x-data-parallel-rank", b"").decode()
        caller = caller.on_engine(engine, self._state.config.data_parallel.data_parallel_size)
        return replace(caller, record=record)

    def _note_limits(self, key_id: str, limits: KeyLimits) -> None:
        """Says in the trailers what is left of the key's limits."""
        left = self._state.limiter.headers(key_id, limits)
        self._limits = [(name.decode(), value.decode()) for name, value in left]

    async def _invoke(self, caller: Caller) -> Answer:
        message = await self._read()
        remaining_s = self._context.time_remaining()
        fields = request_fields(message, self._method, remaining_s)
        fields, self.record.request_id = named(fields, self.record.request_id)
        # By itself: a first message that does not get through would block a refusal's status. And
        # before there is an answer, which must be closed if the call is cancelled.
        await self._context.send_initial_metadata((("x-request-id", self.record.request_id),))
        return await invoke(self._state, self._method.endpoint, fields, caller)

    async def _read(self) -> bytes:
        """The call's message."""
        timeout_s = self._state.config.connections.body_timeout
        try:
            async with asyncio.timeout(timeout_s):
                message = await self._context.read()
        except TimeoutError:
            raise ApiError(
                408, f"The message was not complete within {timeout_s:g} s (--body-timeout)."
            ) from None
        if not isinstance(message, bytes):  # the end of the call
            raise bad_request("The call has no message.")
        return message

    async def _write(self, answer: Answer) -> None:
        if isinstance(answer, Text):
            await self._send(answer.content)
        elif isinstance(answer, msgspec.Struct):
            await self._send(msgspec.json.encode(answer))
        elif isinstance(answer, Binary):
            raise binary_answer()
        else:
            assert not isinstance(answer, FileContent | Portions | Talk), (
                "no call of gRPC has such an answer"
            )
            await write_events(answer, self._send, self._method.endpoint.errors)

    async def _send(self, payload: bytes) -> None:
        """Writes a `Response`, which takes as long as the client may take for it over HTTP."""
        timeout_s = self._state.config.connections.send_timeout
        try:
            async with asyncio.timeout(timeout_s * (1 + len(payload) // LEAST_SENT_BYTES)):
                await self._context.write(json_message(payload))
        except TimeoutError:
            self._state.count_slow_reader()
            raise ApiError(
                499,
                f"The client took less than {LEAST_SENT_BYTES} bytes of the answer in"
                f" {timeout_s:g} s (--send-timeout).",
            ) from None


def _address(peer: str) -> str:
    """The address in gRPC's name of a peer, such as "ipv4:127.0.0.1:50000"."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
