"""`pagemill route`: listens, probes its servers, passes requests on, drains, exits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

import uvloop

from pagemill.config import ModelConfig, RouteConfig, RouterConfig
from pagemill.config.env import cache_folder
from pagemill.config.other_servers import read_key
from pagemill.router.app import create_app
from pagemill.router.fleet import Fleet
from pagemill.router.front import begin, listening, until_drained
from pagemill.router.health import probe_forever
from pagemill.router.hints import HintReader
from pagemill.router.kv_events import KvEventReader
from pagemill.server.access.key_ring import KeyFile, KeyRing
from pagemill.server.lifecycle import Lifecycle
from pagemill.server.rendering import Rendering, open_renderer
from pagemill.server.transport.http_server import listen
from pagemill.weights.fetch import resolve
from pagemill.weights.source import ModelSource

_LOGGER = logging.getLogger("pagemill.router")
_LONGEST_CONTEXT = 2**20  # of a model whose configuration does not say


def run(config: RouteConfig) -> int:
    """Routes until a signal stops it; returns the process's exit status.

    Raises:
        ConfigError, FetchError, WeightsError, RenderError: a setting, or the model, cannot be used.
        OSError: the address cannot be listened on.
    """
    key_file = begin(config)
    rendering = open_rendering(config.router)
    with (
        contextlib.closing(listen(config.listen.host, config.listen.port)) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_route(config, key_file, rendering, listener))


async def _route(
    config: RouteConfig,
    key_file: KeyFile,
    rendering: Rendering | None,
    listener: socket.socket,
) -> int:
    lifecycle = Lifecycle()
    ring = KeyRing(key_file.keys)
    async with RunningRouter(config, lifecycle, ring, rendering, listener):
        await until_drained(config, lifecycle, key_file, ring)
    _LOGGER.info("stopped")
    return 0


class RunningRouter:
    """A router that listens: `async with RunningRouter(...) as router`."""

    def __init__(
        self,
        config: RouteConfig,
        lifecycle: Lifecycle,
        ring: KeyRing,
        rendering: Rendering | None,
        listener: socket.socket,
    ) -> None:
        """Raises ConfigError if the file of the servers' key cannot be read."""
        self._config = config
        self._server_key = server_key(config.router)
        self._listener = listener
        self._lifecycle = lifecycle
        self.fleet = Fleet(config.router, config.connections.max_connections)
        hints = HintReader(config.router, rendering)
        self._app = create_app(config, self.fleet, hints, lifecycle, ring)
        self._open = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> RunningRouter:
        config = self._config.router
        self._tasks = [
            asyncio.create_task(probe_forever(self.fleet, server, config.probe_timeout))
            for server in self.fleet.servers
        ]
        if self.fleet.router.uses_prefixes:
            self._tasks += [
                asyncio.create_task(
                    KvEventReader(self.fleet, server, config, self._server_key).run()
                )
                for server in self.fleet.servers
            ]
        what = f"routing to {len(config.server)} servers"
        served = listening(self._app, self._config, self._listener, self._lifecycle, what)
        self._open.push_async_callback(self.fleet.close)
        await self._open.enter_async_context(served)
        self._open.push_async_callback(self._end_tasks)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._open.aclose()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def open_rendering(config: RouterConfig) -> Rendering | None:
    """Tokenizer and chat template of the servers' model; None if the policy needs neither.

    Raises:
        FetchError, WeightsError, RenderError, ConfigError: the model cannot be found or read.
    """
    if config.policy != "prefix_aware":
        return None
    path = resolve(config.model, cache_dir=cache_folder(None), revision=None, urls=True)
    source = ModelSource.open(path)
    model = ModelConfig(
        model=config.model,
        chat_template=config.chat_template,
        chat_template_content_format=config.chat_template_content_format,
        tokenizer_mode=config.tokenizer_mode,
        trust_control_tokens=config.trust_control_tokens,
    )
    context = source.config.get("max_position_embeddings", _LONGEST_CONTEXT)
    return Rendering(open_renderer(source, model), int(context))


def server_key(config: RouterConfig) -> str:
    """The key that the router sends itself, "" for none.

    Raises:
        ConfigError: the file cannot be read, or holds no key.
    """
    return read_key("--server-key-file", config.server_key_file)
