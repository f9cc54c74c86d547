"""A process that serves HTTP, with an engine in it or in another process: listens, loads the model,
serves, drains."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pagemill.config import ServeConfig, flatten
from pagemill.engine.async_engine import AsyncEngine
from pagemill.observe.metrics import MetricsOptions
from pagemill.observe.stats_line import StatsLine
from pagemill.server.access.caller import OPERATOR
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.app import create_admin_app, create_app
from pagemill.server.batches.run import BatchWork
from pagemill.server.batches.worker import BatchWorker
from pagemill.server.limits.limiter import KeyLimiter
from pagemill.server.open_model import open_model
from pagemill.server.processes.engine_source import EngineSource
from pagemill.server.records.listeners import RecordListeners
from pagemill.server.records.metrics_plugins import open_metrics_plugins
from pagemill.server.rpc.extra import import_grpc
from pagemill.server.state import ServerState
from pagemill.server.tools.servers import open_servers
from pagemill.server.transport.http_server import HttpServer
from pagemill.server.transport.tls import open_tls

if TYPE_CHECKING:
    from pagemill.server.rpc.listener import RpcListener

_LOGGER = logging.getLogger("pagemill.server")
_STATS_INTERVAL_S = 10.0
_LOOKS_PER_INTERVAL = 20  # whether the engine lives
_ABORT_GRACE_S = 5.0  # for responses to be written after their requests were aborted


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
