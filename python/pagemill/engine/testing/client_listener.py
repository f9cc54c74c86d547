"""Runs an engine client on an event loop and collects what it passes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import uvloop

from pagemill.engine.client import EngineClient
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.native import NativeOutput
from pagemill.engine.outputs import EngineError
from pagemill.engine.testing.fake_engine import FakeEngine
from pagemill.engine.testing.fake_model import next_token
from pagemill.inputs.rendered_prompt import RenderedPrompt

Connect = Callable[[FakeEngine], contextlib.AbstractAsyncContextManager[Callable[[], EngineClient]]]
"""Gives a maker of clients, not started, of the engine."""


class Listener:
    """Collects what a client passes on."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = {}
        self.ends: dict[int, NativeOutput] = {}
        self.lost: EngineError | None = None
        self._news = asyncio.Event()

    def on_outputs(self, outputs: Sequence[NativeOutput]) -> None:
        for output in outputs:
            self.tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
            if output.finish_reason is not None:
                assert output.request_id not in self.ends
                self.ends[output.request_id] = output
        self._news.set()

    def on_lost(self, error: EngineError) -> None:
        self.lost = error
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for outputs until `condition` holds."""
        async with asyncio.timeout(60):
            while not condition():
                self._news.clear()
                await self._news.wait()


def request(request_id: int, *prompt: int, max_tokens: int = 8, **fields: Any) -> EngineRequest:
    choice = ChoiceRequest(request_id, {"max_tokens": max_tokens})
    return EngineRequest(RenderedPrompt.of(prompt), (choice,), **fields)


def expected(last: int, count: int) -> list[int]:
    tokens: list[int] = []
    for position in range(count):
        last = next_token(last, position, 0)
        tokens.append(last)
    return tokens


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Runs `main` on the event loop that the server has."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def run(
    connect: Connect, engine: FakeEngine, body: Callable[[EngineClient, Listener], Any]
) -> None:
    """Runs `body` with a started client of `engine`."""

    async def main() -> None:
        async with connect(engine) as make:
            client, listener = make(), Listener()
            await client.start(listener.on_outputs, listener.on_lost)
            assert client.connected
            assert client.model.names == ("fake",)
            try:
                await body(client, listener)
            finally:
                await client.close()
                await client.close()

    try:
        run_loop(main())
    finally:
        engine.shutdown()
