"""`pagemill route`: listens, probes its servers, passes requests on, drains, exits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from pathlib import Path

import uvloop

from pagemill.config import ConfigError, ModelConfig, RouteConfig, RouterConfig, ServerConfig
from pagemill.config.env import cache_folder
from pagemill.config.server import check_key
from pagemill.observe.logging import configure
from pagemill.router.app import create_app
from pagemill.router.fleet import Fleet
from pagemill.router.health import probe_forever
from pagemill.router.hints import HintReader
from pagemill.router.kv_events import KvEventReader
from pagemill.server.access.key_ring import KeyFile, KeyRing
from pagemill.server.access.keys import warn_if_open
from pagemill.server.lifecycle import Lifecycle
from pagemill.server.rendering import Rendering, open_renderer
from pagemill.server.transport.http_server import HttpServer, listen
from pagemill.server.transport.tls import open_tls
from pagemill.weights.fetch import resolve
from pagemill.weights.source import ModelSource

_LOGGER = logging.getLogger("pagemill.router")
_ABORT_GRACE_S = 5.0  # for responses to end after their time is up
_LONGEST_CONTEXT = 2**20  # of a model whose configuration does not say


def run(config: RouteConfig) -> int:
    """Routes until SIGTERM or SIGINT; returns the process's exit status.

    Raises:
        ConfigError, FetchError, WeightsError, RenderError: a setting, or the model, cannot be used.
        OSError: the address cannot be listened on.
    """
    configure(config.observe.log_level, log_format=config.observe.log_format)
    key_file = KeyFile(ServerConfig(api_key_file=config.listen.api_key_file))
    warn_if_open(config.listen.host, key_file.keys)
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
    stop = asyncio.Event()
    lifecycle = Lifecycle()

    def on_signal() -> None:
        if stop.is_set():
            _LOGGER.warning("stopped a second time: not waiting any longer")
            lifecycle.give_up()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    ring = KeyRing(key_file.keys)
    async with RunningRouter(config, lifecycle, ring, rendering, listener):
        following = asyncio.create_task(key_file.follow(ring.replace))
        await stop.wait()
        following.cancel()
        lifecycle.begin_drain()
        timeout = config.listen.shutdown_timeout
        _LOGGER.info("draining: %d request(s) may run for %g s more", lifecycle.active, timeout)
        if not await lifecycle.wait_idle(timeout):
            _LOGGER.warning("aborting %d request(s)", lifecycle.active)
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
        app = create_app(config, self.fleet, hints, lifecycle, ring)
        self._http = HttpServer(app, config.connections, open_tls(config.tls))
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
        self._serving = asyncio.create_task(self._http.serve([self._listener]))
        self._lifecycle.became_ready()
        host, port = self._listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if self._config.tls.ssl_certfile else "http"
        url = f"{scheme}://{shown}:{port}"
        page = f", playground: {url}/" if self._config.listen.playground else ""
        _LOGGER.info("routing to %d servers: %s/v1%s", len(config.server), url, page)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._http.should_exit = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        _, late = await asyncio.wait({self._serving}, timeout=_ABORT_GRACE_S)
        for task in late:
            task.cancel()
        await self.fleet.close()


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
    if config.server_key_file is None:
        return ""
    name = f"--server-key-file {config.server_key_file}"
    try:
        key = Path(config.server_key_file).expanduser().read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: a key is printable ASCII") from None
    check_key(name, key)
    return key
