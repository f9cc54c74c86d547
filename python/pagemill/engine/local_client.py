"""A client of an engine in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pagemill.engine.client import READY, RESTARTING, OnLost, OnOutputs, OnStats, ignore_stats
from pagemill.engine.control_calls import run_call
from pagemill.engine.messages import EngineRequest, ModelFacts
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
from pagemill.inputs.rendered_prompt import InputChunk
from pagemill.observe.snapshot import EngineSnapshot


class LocalClient:
    """An `EngineClient` of `bindings.engine`.

    The loop watches the client's descriptor; one wake-up passes all outputs that wait.
    """

    def __init__(self, bindings: NativeBindings, model: ModelFacts) -> None:
        self.model = model
        self._bindings = bindings
        self._client: NativeClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        self._on_outputs: OnOutputs | None = None
        self._on_lost: OnLost | None = None

    @property
    def connected(self) -> bool:
        """Whether it was started and not closed."""
        return self._client is not None

    async def start(
        self, on_outputs: OnOutputs, on_lost: OnLost, on_stats: OnStats = ignore_stats
    ) -> None:
        """Opens a native client and watches it."""
        self._client = self._bindings.engine.new_client()
        self._on_outputs, self._on_lost = on_outputs, on_lost
        self._loop = asyncio.get_running_loop()
        self._fd = self._client.output_fd()
        self._loop.add_reader(self._fd, self._on_readable)

    async def submit(self, requests: Sequence[EngineRequest], engine: int | None = None) -> int:
        """Suspends only for adapters that are loaded on demand, for grammars and for plugins."""
        client = self._opened()
        if functions_take_time(requests):
            functions = await asyncio.to_thread(output_functions, self._bindings, requests)
        else:
            functions = output_functions(self._bindings, requests)
        for name in adapters_on_demand(self._bindings, requests):
            await run_call(self._bindings, "require_adapter", {"name": name})
        submit_all(self._bindings, client, requests, functions)
        return 0

    def room(self) -> int:
        """Of this moment."""
        return native_room(self._bindings, self._opened(), self.model.max_unfinished)

    def abort(self, request_ids: Sequence[int]) -> None:
        """See `EngineClient`."""
        if self._client is not None:
            for request_id in request_ids:
                self._client.abort(request_id)

    def release(self, request_id: int) -> None:
        """See `EngineClient`."""
        if self._client is not None:
            self._client.release(request_id)

    async def extend(self, request_id: int, chunk: InputChunk) -> None:
        """In a thread: it waits until the engine is between two steps."""
        client = self._opened()
        native = native_chunk(self._bindings, chunk)
        try:
            await asyncio.to_thread(client.extend, request_id, native)
        except self._bindings.status_error as error:
            raise to_engine_error(error) from error

    async def call(self, operation: str, **arguments: Any) -> Any:
        """See `control_calls`."""
        return await run_call(self._bindings, operation, arguments)

    def stats(self) -> EngineSnapshot:
        """Of this moment."""
        return self._bindings.engine.stats()

    def engines(self) -> Sequence[EngineSnapshot | None]:
        """See `EngineClient`."""
        return (self.stats(),)

    def states(self) -> Sequence[str]:
        """See `EngineClient`."""
        return (READY if self.connected else RESTARTING,)

    async def close(self) -> None:
        """See `EngineClient`."""
        client, self._client = self._client, None
        if client is not None:
            assert self._loop is not None
            self._loop.remove_reader(self._fd)
            await asyncio.to_thread(client.close)

    def _opened(self) -> NativeClient:
        if self._client is None:
            raise EngineError("UNAVAILABLE", "The server is shutting down.")
        return self._client

    def _on_readable(self) -> None:
        assert self._client is not None and self._on_outputs is not None
        try:
            outputs = self._client.poll()
        except self._bindings.status_error as error:
            assert self._on_lost is not None
            self._on_lost(to_engine_error(error))
            return
        self._on_outputs(outputs)
