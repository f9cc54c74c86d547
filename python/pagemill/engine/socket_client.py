"""A client of an engine in another process, over the socket of an `engine_server`.

When the engine ends, however it does, its requests fail, each with UNAVAILABLE, and the client
connects again as soon as there is an engine at the same path.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

import msgspec

from pagemill.engine.client import READY, RESTARTING, OnLost, OnOutputs, OnStats, ignore_stats
from pagemill.engine.frames import FrameReader, frame
from pagemill.engine.messages import (
    MAX_FRAME_BYTES,
    PROTOCOL,
    Abort,
    Call,
    ClientMessage,
    Counters,
    Durations,
    EngineMessage,
    EngineRequest,
    Extend,
    Hello,
    ModelFacts,
    Outputs,
    Release,
    Reply,
    Room,
    Stats,
    Submit,
    engine_messages,
    message_encoder,
)
from pagemill.engine.native import OutputCodec
from pagemill.engine.outputs import EngineError
from pagemill.inputs.rendered_prompt import InputChunk
from pagemill.observe.snapshot import EngineSnapshot

_LOGGER = logging.getLogger("pagemill.engine")
_MAX_UNANSWERED = 4096
_RETRY_S = 0.05
_STALE_AFTER_S = 5.0  # statistics come twice a second
P = TypeVar("P", bound=asyncio.BaseProtocol)


class Connect(Protocol):
    """Makes a connection to the engine whose socket is at `path`; raises OSError if it cannot."""

    async def __call__(self, make: Callable[[], P], path: str) -> P: ...


async def connect_unix(make: Callable[[], P], path: str) -> P:
    """Connects to the socket at `path`.

    Raises:
        OSError: there is none.
    """
    _, protocol = await asyncio.get_running_loop().create_unix_connection(make, path)
    return protocol


class SocketClient:
    """An `EngineClient` of the engine whose socket is at `path`, or that `connect` reaches by
    that."""

    def __init__(self, path: str, codec: OutputCodec, connect: Connect = connect_unix) -> None:
        self._path = path
        self._codec = codec
        self._connect = connect
        self._on_outputs: OnOutputs | None = None
        self._on_lost: OnLost | None = None
        self._on_stats: OnStats = ignore_stats
        self._hello: Hello | None = None
        self._connection: _Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._values = _Values((), [])
        self._values_at = time.monotonic()

    @property
    def model(self) -> ModelFacts:
        """Of the last engine that was reached."""
        assert self._hello is not None, "start() comes first"
        return self._hello.model

    @property
    def connected(self) -> bool:
        """Whether there is an engine now."""
        return self._connection is not None

    async def start(
        self, on_outputs: OnOutputs, on_lost: OnLost, on_stats: OnStats = ignore_stats
    ) -> None:
        """Waits until there is an engine; see `EngineClient`."""
        self._on_outputs, self._on_lost, self._on_stats = on_outputs, on_lost, on_stats
        loop = asyncio.get_running_loop()
        self._first = loop.create_future()
        self._keeper = loop.create_task(self._keep_connected())
        await self._first

    async def submit(self, requests: Sequence[EngineRequest], engine: int | None = None) -> int:
        """See `EngineClient`."""
        sent_us = int(1e6 * time.monotonic())
        await self._ask(lambda sequence: Submit(sequence, list(requests), sent_us))
        return 0

    def room(self) -> int:
        """As of the engine's last message about it."""
        if self._connection is None:
            raise engine_gone()
        room = self._connection.room
        if room.error is not None:
            raise room.error.exception()
        return room.places

    def abort(self, request_ids: Sequence[int]) -> None:
        """See `EngineClient`."""
        if self._connection is not None:
            self._connection.send(Abort(list(request_ids)))

    def release(self, request_id: int) -> None:
        """See `EngineClient`."""
        if self._connection is not None:
            self._connection.send(Release(request_id))

    async def extend(self, request_id: int, chunk: InputChunk) -> None:
        """See `EngineClient`."""
        await self._ask(lambda sequence: Extend(sequence, request_id, chunk))

    async def call(self, operation: str, **arguments: Any) -> Any:
        """See `EngineClient`."""
        return await self._ask(lambda sequence: Call(sequence, operation, arguments))

    def stats(self) -> EngineSnapshot:
        """The last that came. An engine process that sends none is as stuck as its steps."""
        silent_s = time.monotonic() - self._values_at
        if silent_s > _STALE_AFTER_S:
            self._values.progress_age_s = max(self._values.progress_age_s, silent_s)
        return cast(EngineSnapshot, self._values)

    def engines(self) -> Sequence[EngineSnapshot | None]:
        """See `EngineClient`."""
        return (self.stats() if self.connected else None,)

    def states(self) -> Sequence[str]:
        """See `EngineClient`."""
        return (READY if self.connected else RESTARTING,)

    async def close(self) -> None:
        """See `EngineClient`."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        self._keeper = None

    async def _ask(self, make: Callable[[int], ClientMessage]) -> Any:
        if self._connection is None:
            raise engine_gone()
        return await self._connection.ask(make)

    def _new_connection(self) -> _Connection:
        return _Connection(self._codec, self._on_message)

    async def _keep_connected(self) -> None:
        while True:
            try:
                connection = await self._connect(self._new_connection, self._path)
            except OSError:
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                await connection.ended
            finally:
                connection.close()
                was_connected, self._connection = self._connection is not None, None
                error = connection.error or engine_gone()
                connection.fail(error)
                if was_connected and self._on_lost is not None:
                    self._on_lost(error)
            if self._first is not None and not self._first.done() and connection.error is not None:
                self._first.set_exception(connection.error)
                return
            await asyncio.sleep(_RETRY_S)

    def _on_message(self, connection: _Connection, message: EngineMessage) -> None:
        match message:
            case Outputs(wire):
                assert self._on_outputs is not None
                self._on_outputs(self._codec.decode(wire))
            case Stats(values):
                if self._hello is not None:
                    self._values = _Values(self._hello.stat_fields, values)
                    self._values_at = time.monotonic()
                    self._on_stats()
                if self._first is not None and not self._first.done():
                    self._first.set_result(None)  # they follow Hello
            case Hello():
                if (message.protocol, message.output_schema) != (PROTOCOL, self._codec.schema):
                    raise EngineError(
                        "FAILED_PRECONDITION",
                        "the engine's process is of another version of Pagemill; run the same"
                        " version in all processes",
                    )
                self._hello = message
                self._connection = connection
            case Reply():
                connection.answer(message)
            case Room():
                connection.room = message


class _Values:
    """Statistics by name, with the table of them."""

    progress_age_s: float = 0.0

    def __init__(
        self,
        fields: Sequence[tuple[str, str, str, str]],
        values: list[float | Durations | Counters],
    ) -> None:
        self.fields = fields
        for row, value in zip(fields, values, strict=True):
            setattr(self, row[0], value.counts if isinstance(value, Counters) else value)


class _Connection(asyncio.Protocol):
    """One connection to an engine, from its first message to its end."""

    def __init__(self, codec: OutputCodec, on_message: Any) -> None:
        self._codec = codec
        self._on_message = on_message
        self._reader = FrameReader()
        self._decoder = engine_messages()
        self._encoder = message_encoder()
        self._sequence = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: EngineError | None = None
        """Why it was ended on this side."""
        self.room = Room(1)
        """The last that the engine sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._on_message(self, self._decoder.decode(message))
        except EngineError as error:
            self._break(error)
        except (msgspec.DecodeError, UnicodeDecodeError, self._codec.error) as error:
            self._break(EngineError("INTERNAL", f"The engine sent an invalid message: {error}"))

    async def ask(self, make: Callable[[int], ClientMessage]) -> Any:
        """Sends the message that `make(sequence)` returns, and waits for its answer."""
        assert self._transport is not None
        unsent_bytes = self._transport.get_write_buffer_size()  # a network may be slow
        if len(self._waiting) >= _MAX_UNANSWERED or unsent_bytes > MAX_FRAME_BYTES:
            raise EngineError(
                "RESOURCE_EXHAUSTED", "Too many requests wait for the engine.", retry_after_s=1
            )
        sequence = next(self._sequence)
        message = make(sequence)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[sequence] = answer
        try:
            self.send(message)
            return await answer
        finally:
            self._waiting.pop(sequence, None)

    def answer(self, reply: Reply) -> None:
        """Ends the `ask` that `reply` answers."""
        waiting = self._waiting.get(reply.sequence)
        if waiting is None or waiting.done():
            return  # given up
        if reply.error is not None:
            waiting.set_exception(reply.error.exception())
        else:
            waiting.set_result(reply.value)

    def send(self, message: ClientMessage) -> None:
        """Raises EngineError for a message that is too large."""
        assert self._transport is not None
        self._transport.write(frame(self._encoder.encode(message)))

    def fail(self, error: EngineError) -> None:
        """Ends everything that waits for an answer."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)

    def close(self) -> None:
        """Idempotent."""
        if self._transport is not None:
            self._transport.abort()

    def _break(self, error: EngineError) -> None:
        _LOGGER.error("the connection to the engine is given up: %s", error.message)
        self.error = error
        self.close()


def engine_gone() -> EngineError:
    """The refusal while there is no engine."""
    return EngineError(
        "UNAVAILABLE", "The engine has ended and is started again; retry.", retry_after_s=2
    )
