"""`pagemill serve`: listens, loads the model, serves, drains, exits.

The socket listens before the model is loaded, so that probes are answered from the start: `/health`
says that the process lives, `/ready` that it is not there yet. One of several API processes listens
once it can serve: the system distributes connections among those that listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import uvloop

from pagemill import __version__
from pagemill.config import ServeConfig, ServerConfig, flatten, for_media
from pagemill.engine.async_engine import AsyncEngine
from pagemill.inputs.io_processor import find_io_processor
from pagemill.observe.logging import configure
from pagemill.observe.metrics import MetricsOptions
from pagemill.observe.stats_line import StatsLine
from pagemill.server.access.caller import OPERATOR
from pagemill.server.access.key_ring import KeyFile, KeyRing
from pagemill.server.access.keys import warn_if_open
from pagemill.server.app import create_admin_app, create_app
from pagemill.server.batches.folder import locked_folder
from pagemill.server.batches.run import BatchWork
from pagemill.server.batches.worker import BatchWorker
from pagemill.server.endpoints.plugins import plugin_endpoints
from pagemill.server.limits.limiter import KeyLimiter
from pagemill.server.middleware import check_middleware
from pagemill.server.open_model import open_model
from pagemill.server.processes.admin_listener import check_admin_address, operator_listener
from pagemill.server.processes.engine_source import (
    EngineSource,
    Load,
    OwnEngine,
    load_in_thread,
)
from pagemill.server.processes.supervisor import supervise
from pagemill.server.records.listeners import RecordListeners, check_listeners
from pagemill.server.records.metrics_plugins import check_metrics_plugins, open_metrics_plugins
from pagemill.server.responses import store_file
from pagemill.server.rpc.extra import import_grpc
from pagemill.server.state import ServerState
from pagemill.server.tools.servers import open_servers
from pagemill.server.transport.http_server import HttpServer, listen
from pagemill.server.transport.tls import open_tls
from pagemill.server.transport.unix_listener import unix_listener

if TYPE_CHECKING:
    from pagemill.server.rpc.listener import RpcListener

_LOGGER = logging.getLogger("pagemill.server")
_STATS_INTERVAL_S = 10.0
_LOOKS_PER_INTERVAL = 20  # whether the engine lives
_ABORT_GRACE_S = 5.0  # for responses to be written after their requests were aborted


def stop_on_signals(stop: Callable[[], None]) -> None:
    """In the event loop: SIGTERM and SIGINT call `stop`."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """How a server of one process meets what is around it.

    `name` is that of the process in each line of its log, "" if it is the only one. `attend` is
    called in the event loop with the function that ends the server, `became_ready` when it serves.
    `load` loads its model.
    """

    name: str = ""
    attend: Callable[[Callable[[], None]], None] = stop_on_signals
    load: Load = load_in_thread
    became_ready: Callable[[ServerState], Awaitable[None]] | None = None


def run(config: ServeConfig, around: Surroundings = Surroundings()) -> int:
    """Serves until SIGTERM or SIGINT; returns the process's exit status. `around` is for a server
    without a supervisor.

    Raises:
        ConfigError: a setting does not fit the model or the machine.
        OSError: the address cannot be listened on.
    """
    configure(config.observe.log_level, around.name, config.observe.log_format)
    policy = config.engine.scheduler.scheduling_policy
    key_file = KeyFile(config.server, allows_priority=policy == "priority")
    if config.server.uds is None:
        warn_if_open(config.server.host, key_file.keys)
    check_admin_address(config.server.admin_address, key_file.keys)
    check_listeners(config)
    check_metrics_plugins(config.metrics.metrics_plugin)
    if config.engine.model.io_processor_plugin is not None:
        find_io_processor(config.engine.model.io_processor_plugin)
    model = config.engine.model.model or "the default model"
    _LOGGER.info("pagemill %s, %s", __version__, model)
    if config.server.grpc_port is not None:
        import_grpc()
    config = replace(config, engine=for_media(config.engine, config.server.media))
    with locked_folder(config.server.batches), _response_store(config) as config:
        return _serve(config, key_file, around)


@contextlib.contextmanager
def _response_store(config: ServeConfig) -> Generator[ServeConfig]:
    """`config` with a file for stored responses, one of this run if the flag names none.

    Raises:
        ConfigError: the file cannot be used.
    """
    with contextlib.ExitStack() as stack:
        path = config.server.response_store
        if path is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pagemill-responses-"))
            path = f"{folder}/responses.sqlite3"
        if config.server.response_store_bytes:
            store_file.create(path)
        yield replace(config, server=replace(config.server, response_store=path))


def _serve(config: ServeConfig, key_file: KeyFile, around: Surroundings) -> int:
    if config.server.has_supervisor:
        # A mistake ends the server here, not each of its processes.
        open_tls(config.server.tls)
        open_servers(config.server.mcp_servers)
        check_middleware(config.server.middleware)
        plugin_endpoints(config.server.endpoint_plugin)
        return supervise(config, key_file)
    with (
        _listener(config.server) as listener,
        operator_listener(config.server.admin_address) as operator,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        ring = KeyRing(key_file.keys)
        engine = OwnEngine(config.engine, around.load)
        server = Server(config, ring, listener, engine, operator=operator)
        server.became_ready = around.became_ready

        async def serve() -> int:
            around.attend(server.stop)
            following = asyncio.create_task(key_file.follow(ring.replace))
            try:
                return await server.run()
            finally:
                following.cancel()

        return runner.run(serve())


def _listener(config: ServerConfig) -> contextlib.AbstractContextManager[socket.socket]:
    """The clients' socket."""
    if config.uds is not None:
        return unix_listener(config.uds, 0o666)
    return contextlib.closing(listen(config.host, config.port))


class Server:
    """One run of a process that serves HTTP.

    `shared_metrics` is the folder in which the processes of a server keep their counts, "" if it
    has one process.
    """

    def __init__(
        self,
        config: ServeConfig,
        ring: KeyRing,
        listener: socket.socket,
        source: EngineSource,
        shared_metrics: str = "",
        limiter: KeyLimiter | None = None,
        operator: socket.socket | None = None,
    ) -> None:
        self.became_ready: Callable[[ServerState], Awaitable[None]] | None = None
        """Called once, when requests are served."""
        self._config = config
        self._listener = listener
        self._source = source
        self._shared_metrics = shared_metrics
        tools = open_servers(config.server.mcp_servers)
        self._state = ServerState(config.server, limiter, flatten(config), tools)
        self._records = RecordListeners(config)
        app = create_app(self._state, ring, listeners=self._records.each)
        self._tls = open_tls(config.server.tls)
        connections = config.server.connections
        on_slow = self._state.count_slow_reader
        self._http = [HttpServer(app, connections, self._tls, on_slow)]
        self._operator = operator
        if operator is not None:
            is_port = operator.family != socket.AF_UNIX
            keys = ring if is_port else None
            app = create_admin_app(self._state, keys, OPERATOR, self._records.each)
            tls = self._tls if is_port else None
            self._http.append(HttpServer(app, connections, tls, on_slow))
        self._rpc: RpcListener | None = None
        if config.server.grpc_port is not None:
            import_grpc()
            from pagemill.server.rpc.listener import RpcListener

            shared = config.server.api_server_count > 1
            self._rpc = RpcListener(self._state, ring, self._records.each, shared=shared)
        self._batches: BatchWorker | None = None
        if config.server.batches.batch_dir is not None:
            has_priority = config.engine.scheduler.scheduling_policy == "priority"
            work = BatchWork(self._state, ring.caller_named, is_low_priority=has_priority)
            self._batches = BatchWorker(work)
        self._engine: AsyncEngine | None = None
        self._may_listen = asyncio.Event()
        if config.server.api_server_count == 1:
            self._may_listen.set()
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Listens, loads, serves; returns after `stop` and the drain."""
        serving = asyncio.create_task(self._listen())
        background = asyncio.create_task(self._load_and_report())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({serving, background, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if background.done():
                # It only ends by failing: the model cannot be loaded, or the engine has ended.
                background.result()
            await self._drain()
        finally:
            background.cancel()
            stopping.cancel()
            if self._batches is not None:
                await self._batches.close()
            if self._engine is not None:
                await self._engine.shutdown()
            await self._source.close()
            if self._rpc is not None:
                await self._rpc.stop(_ABORT_GRACE_S)
            for server in self._http:
                server.should_exit = True
            if not self._may_listen.is_set():
                serving.cancel()
            await asyncio.wait({serving}, timeout=_ABORT_GRACE_S)
            await self._state.close()
            await asyncio.to_thread(self._records.close)
        _LOGGER.info("stopped")
        return 0

    def stop(self) -> None:
        """Drains; the second time, without waiting for requests any longer."""
        if self._stop.is_set():
            _LOGGER.warning("stopped a second time: not waiting any longer")
            self._state.lifecycle.give_up()
        self._stop.set()

    async def _listen(self) -> None:
        operators = self._http[1:]
        if operators and self._operator is not None:
            async with asyncio.TaskGroup() as group:
                group.create_task(operators[0].serve([self._operator]))
                group.create_task(self._listen_to_clients())
        else:
            await self._listen_to_clients()

    async def _listen_to_clients(self) -> None:
        await self._may_listen.wait()
        await self._http[0].serve([self._listener])

    async def _load_and_report(self) -> None:
        started = time.monotonic()
        if self._rpc is not None and self._may_listen.is_set():
            await self._rpc.start()
        metrics = self._config.metrics
        observed = MetricsOptions(
            self._shared_metrics,
            reference_names=metrics.metrics_compatibility != "none",
            max_tenants=metrics.max_metrics_tenants,
            estimate_work=metrics.enable_mfu_metrics,
        )
        client, pipeline = await open_model(
            self._source, self._config.engine, observed, self._config.server.media
        )
        self._engine = pipeline.engine
        # What exists now lives as long as the process: collections need not look at it again.
        gc.collect()
        gc.freeze()
        listeners = open_metrics_plugins(metrics.metrics_plugin, pipeline.metrics.registry)
        self._state.serve(pipeline, client.stats, lambda: client.connected, listeners)
        if self._rpc is not None and not self._may_listen.is_set():
            await self._rpc.start()
        self._may_listen.set()
        if self._batches is not None:
            self._batches.start()
        seconds = time.monotonic() - started
        _LOGGER.info("%s is ready after %.2f s: %s", pipeline.model.name, seconds, self._address())
        if self.became_ready is not None:
            await self.became_ready(self._state)
        line = StatsLine(client.stats)
        while True:
            for _ in range(_LOOKS_PER_INTERVAL):
                await asyncio.sleep(_STATS_INTERVAL_S / _LOOKS_PER_INTERVAL)
                self._source.check()
            if not self._shared_metrics:  # else the engine's process writes it
                line.log()

    def _address(self) -> str:
        """Where clients reach the server."""
        if self._listener.family == socket.AF_UNIX:
            return f"unix:{self._config.server.uds}"
        host, port = self._listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        url = f"{'http' if self._tls is None else 'https'}://{shown}:{port}"
        others = f", playground: {url}/" if self._config.server.playground else ""
        others += f", gRPC: {self._rpc.address}" if self._rpc is not None else ""
        return f"{url}/v1{others}"

    async def _drain(self) -> None:
        lifecycle = self._state.lifecycle
        lifecycle.begin_drain()
        if self._batches is not None:
            self._batches.stop()
        timeout = self._config.server.shutdown_timeout
        _LOGGER.info("draining: %d request(s) may run for %g s more", lifecycle.active, timeout)
        if not await lifecycle.wait_idle(timeout):
            _LOGGER.warning("aborting %d request(s)", lifecycle.active)
