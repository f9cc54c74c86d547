"""A server in a thread whose model writes what a test says, and a browser that visits it."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence

from pagemill.config import ConnectionConfig
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.render.formats.json_formats import HERMES
from pagemill.render.formats.reasoning_formats import THINK
from pagemill.render.output_machine import Formats
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.media import Media
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import EOS, FakeServer, fake_server
from pagemill.server.transport.http_server import HttpServer, listen


class ScriptedModel:
    """Writes one of `outputs` for each request, in turn; the last one again after that."""

    def __init__(self, outputs: Sequence[str]) -> None:
        self._outputs = [[*output.encode(), EOS] for output in outputs]
        self._next = -1

    def next_token(self, previous: int, position: int, seed: int) -> int:
        """`FakeOptions.next_token`. A request begins when the one before it has ended or is being
        aborted; the latter may write whatever comes."""
        del previous, seed
        if position == 0:
            self._next = min(self._next + 1, len(self._outputs) - 1)
        output = self._outputs[self._next]
        return output[min(position, len(output) - 1)]


@contextlib.contextmanager
def scripted_server(
    *outputs: str,
    step_s: float = 0.0005,
    fail_at: int = -1,
    keys: Sequence[ApiKey] = (),
    images: Media | None = None,
) -> Iterator[tuple[str, FakeServer]]:
    """Runs a server whose model writes `outputs`; yields its URL and its parts.

    Args:
        outputs: what the model writes, an output for each request.
        step_s: the pause between two tokens, in seconds.
        fail_at: a request that reaches this position of its output fails.
        keys: the API keys; none: no key is needed.
        images: what is done with the images of messages; None: they are refused.
    """
    started: queue.Queue[tuple[str, FakeServer, asyncio.AbstractEventLoop]] = queue.Queue()
    options = FakeOptions(
        next_token=ScriptedModel(outputs).next_token, step_s=step_s, fail_at_position=fail_at
    )
    renderer = FakeRenderer(Formats(THINK, HERMES))
    stop = asyncio.Event()

    async def serve() -> None:
        listener = listen("127.0.0.1", 0)
        async with fake_server(options, renderer=renderer, max_model_len=2048, keys=keys) as server:
            if images is not None:
                resolved = server.state.models.resolve("fake", Caller("test"))
                resolved.model.rendering.media = images
            http = HttpServer(server.app, ConnectionConfig())
            serving = asyncio.create_task(http.serve([listener]))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            started.put((url, server, asyncio.get_running_loop()))
            await stop.wait()
            http.should_exit = True
            await serving

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    url, server, loop = started.get(timeout=60)
    try:
        yield url, server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=60)
        assert not thread.is_alive()
