"""An engine for clients in other processes: a Unix socket, and a native client for each connection.
Clients on other machines have connections that were made before (`remote/joining.py`).

    server = EngineServer(bindings, model, output_schema)
    await server.listen(path)          # in a folder that only this user can enter
    ...
    await server.close()

A process that connects may do everything, so the socket is for this user alone: it has mode 0600 in
a folder of mode 0700, and a process of another user is turned away. A client that does not read its
outputs has them merged in the engine, so that it costs memory per request and token; one that sends
anything but messages is disconnected, and its requests are aborted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from pagemill.engine.control_calls import run_call
from pagemill.engine.frames import FrameReader, frame
from pagemill.engine.messages import (
    PROTOCOL,
    Abort,
    Call,
    ClientMessage,
    Counters,
    Durations,
    EngineMessage,
    EngineRequest,
    Error,
    Extend,
    Hello,
    ModelFacts,
    Outputs,
    Release,
    Reply,
    Room,
    Stats,
    Submit,
    client_messages,
    message_encoder,
)
from pagemill.engine.native import NativeBindings, NativeClient
from pagemill.engine.native_requests import (
    adapters_on_demand,
    functions_take_time,
    native_chunk,
    native_room,
    output_functions,
    submit_all,
    to_engine_error,
)
from pagemill.engine.outputs import EngineError
from pagemill.engine.unix_peer import is_this_user

_LOGGER = logging.getLogger("pagemill.engine")
STATS_INTERVAL_S = 0.5
_MAX_CALLS = 64  # of one client, at a time
_FINISH_S, _LOOK_EVERY_S = 5.0, 0.02
_WRITE_BUFFER_BYTES = 2**20  # with more unsent, outputs stay in the engine


class EngineServer:
    """Accepts clients until it is closed. Lives on one event loop."""

    def __init__(self, bindings: NativeBindings, model: ModelFacts, output_schema: str) -> None:
        self.bindings = bindings
        fields = tuple(row for row in bindings.engine.stats().fields)
        self.hello = Hello(PROTOCOL, output_schema, model, fields)
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._stats_task: asyncio.Task[None] | None = None

    async def listen(self, path: str) -> None:
        """Binds the socket at `path`, which must not exist.

        Raises:
            OSError: it cannot be bound.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(path)
            os.chmod(path, 0o600)
        except OSError:
            listener.close()
            raise
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), sock=listener)
        self._begin_stats()

    async def take(self, connection: socket.socket) -> None:
        """Serves the client at the other end, which may be on another machine and has proved that
        it may be one."""
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: _Connection(self), connection)
        self._begin_stats()

    async def finish(self) -> None:
        """Disconnects clients when they have what the engine has for them, at most a few seconds
        later."""
        for connection in list(self._connections):
            connection.finish()
        end = time.monotonic() + _FINISH_S
        while self._connections and time.monotonic() < end:
            await asyncio.sleep(_LOOK_EVERY_S)

    async def close(self) -> None:
        """Disconnects all clients, which aborts their requests."""
        if self._stats_task is not None:
            self._stats_task.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.disconnect()
        await asyncio.sleep(0)

    def stats(self) -> Stats:
        """The engine's statistics as a message."""
        snapshot = self.bindings.engine.stats()
        fields = self.hello.stat_fields
        return Stats([_statistic(kind, getattr(snapshot, name)) for name, kind, *_ in fields])

    def add(self, connection: _Connection) -> None:
        """A client has connected."""
        self._connections.add(connection)

    def remove(self, connection: _Connection) -> None:
        """A client has disconnected."""
        self._connections.discard(connection)

    def send_room(self) -> None:
        """Lets all clients know how much room there is for requests."""
        for connection in self._connections:
            connection.send_room()

    def _begin_stats(self) -> None:
        if self._stats_task is None:
            self._stats_task = asyncio.get_running_loop().create_task(self._push_stats())

    async def _push_stats(self) -> None:
        while True:
            await asyncio.sleep(STATS_INTERVAL_S)
            message = self.stats()
            for connection in self._connections:
                connection.send_stats(message)
            self.send_room()


class _Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: EngineServer) -> None:
        self._server = server
        self._bindings = server.bindings
        self._reader = FrameReader()
        self._decoder = client_messages()
        self._encoder = message_encoder()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._client: NativeClient | None = None
        self._fd = -1
        self._writable = True
        self._calls: set[asyncio.Task[None]] = set()
        self._not_submitted: set[int] = set()  # of those that `_has_to_wait`
        self._room = Room(1)  # the last that was sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type
        peer = transport.get_extra_info("socket")
        if peer.family == socket.AF_UNIX and not is_this_user(peer):
            _LOGGER.warning("a process of another user was turned away from the engine's socket")
            self._transport.abort()
            return
        try:
            self._client = self._bindings.engine.new_client()
        except self._bindings.status_error as error:
            _LOGGER.warning("a client was turned away: %s", error)
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        self._fd = self._client.output_fd()
        self._server.add(self)
        self._send(self._server.hello)
        self._send(self._server.stats())
        self.send_room()
        self._loop.add_reader(self._fd, self._on_outputs)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.remove(self)
        for task in self._calls:
            task.cancel()
        client, self._client = self._client, None
        if client is None:
            return
        if self._writable:
            self._loop.remove_reader(self._fd)
        client.close()

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._handle(_on_this_clock(self._decoder.decode(message)))
        except (msgspec.DecodeError, UnicodeDecodeError, EngineError) as error:
            _LOGGER.warning("a client sent an invalid message (%s) and is disconnected", error)
            self.disconnect()

    def pause_writing(self) -> None:
        """The client does not read: its outputs stay in the engine, its messages in the socket."""
        self._writable = False
        assert self._transport is not None
        self._loop.remove_reader(self._fd)
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable = True
        if self._client is not None and self._transport is not None:
            self._transport.resume_reading()
            self._loop.add_reader(self._fd, self._on_outputs)

    def finish(self) -> None:
        """Sends the outputs that are there, and disconnects."""
        self._on_outputs()
        if self._transport is not None:
            self._transport.close()

    def disconnect(self) -> None:
        """Drops the connection."""
        if self._transport is not None:
            self._transport.abort()

    def send_stats(self, message: Stats) -> None:
        """Sends statistics, unless the client does not read."""
        if self._writable:
            self._send(message)

    def send_room(self) -> None:
        """Sends how much room there is for requests of the client, if that has changed."""
        if self._client is None or not self._writable:
            return
        most = self._server.hello.model.max_unfinished
        try:
            room = Room(native_room(self._bindings, self._client, most))
        except EngineError as error:
            room = Room(0, Error.of(error))
        if room != self._room:
            self._room = room
            self._send(room)

    def _handle(self, message: ClientMessage) -> None:
        client = self._client
        if client is None:
            return
        match message:
            case Submit(sequence, requests) if not self._has_to_wait(requests):
                self._reply(sequence, lambda: self._submit_now(requests, client))
            case Abort(request_ids):
                for request_id in request_ids:
                    client.abort(request_id)
                self._not_submitted.difference_update(request_ids)
            case Release(request_id):
                client.release(request_id)
            case Submit() | Extend() | Call():
                self._start(message, client)

    def _has_to_wait(self, requests: Sequence[EngineRequest]) -> bool:
        """Whether something has to be made or read before they can be submitted."""
        return functions_take_time(requests) or bool(adapters_on_demand(self._bindings, requests))

    def _submit_now(self, requests: Sequence[EngineRequest], client: NativeClient) -> None:
        submit_all(self._bindings, client, requests, output_functions(self._bindings, requests))

    def _reply(self, sequence: int, act: Callable[[], None]) -> None:
        try:
            act()
            self._send(Reply(sequence))
        except EngineError as error:
            self._send(Reply(sequence, Error.of(error)))
        self._server.send_room()

    def _start(self, message: Submit | Extend | Call, client: NativeClient) -> None:
        if len(self._calls) >= _MAX_CALLS:
            error = Error("RESOURCE_EXHAUSTED", "Too many control operations run; retry", None, 1)
            self._send(Reply(message.sequence, error))
            return
        task = self._loop.create_task(self._finish(message, client))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _finish(self, message: Submit | Extend | Call, client: NativeClient) -> None:
        value = None
        try:
            if isinstance(message, Call):
                value = await run_call(self._bindings, message.operation, message.arguments)
            elif isinstance(message, Submit):
                await self._submit(message, client)
            else:
                chunk = native_chunk(self._bindings, message.chunk)
                await asyncio.to_thread(client.extend, message.request_id, chunk)
        except EngineError as error:
            self._send(Reply(message.sequence, Error.of(error)))
        except self._bindings.status_error as error:
            self._send(Reply(message.sequence, Error.of(to_engine_error(error))))
        else:
            self._send(Reply(message.sequence, None, value))
        self._server.send_room()

    async def _submit(self, message: Submit, client: NativeClient) -> None:
        """Makes functions and loads adapters of requests, which takes time, and submits them."""
        ids = {choice.id for request in message.requests for choice in request.choices}
        self._not_submitted |= ids
        try:
            functions = await asyncio.to_thread(output_functions, self._bindings, message.requests)
            for name in adapters_on_demand(self._bindings, message.requests):
                await run_call(self._bindings, "require_adapter", {"name": name})
        finally:
            aborted = ids - self._not_submitted
            self._not_submitted -= ids
        submit_all(self._bindings, client, message.requests, functions)
        for request_id in aborted:
            client.abort(request_id)

    def _on_outputs(self) -> None:
        if self._client is not None:
            self._send(Outputs(self._client.poll_wire()))
            self._server.send_room()  # requests may have ended

    def _send(self, message: EngineMessage) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(frame(self._encoder.encode(message)))


def _on_this_clock(message: ClientMessage) -> ClientMessage:
    """Deadlines by the clock of this machine: what is left of them when `message` arrives."""
    if not isinstance(message, Submit):
        return message
    later_us = int(1e6 * time.monotonic()) - message.sent_us
    requests = [
        request
        if request.deadline_us is None
        else replace(request, deadline_us=request.deadline_us + later_us)
        for request in message.requests
    ]
    return replace(message, requests=requests)


def _statistic(kind: str, value: Any) -> float | Durations | Counters:
    if kind == "counters":
        return Counters(value)
    if kind == "histogram":
        return Durations(value.bounds_s, value.counts, value.sum_s)
    return float(value)
