"""`pagemill serve` in several processes: one for each engine, one or more that serve HTTP, and this
one, which starts them, starts those again that end, and drains.

    supervisor --+-- engine    Unix socket in a private folder
                 +-- api 0     SO_REUSEPORT on the port, a client of the engine
                 +-- api 1     ...

With `data_parallel_size` there are engine 0, engine 1, ...; each API process is a client of all.

The supervisor holds the port, without listening, so that it stays the server's. Children end with
it (`child_process`). It reads the keys, again when their file changes, and tells the API processes.
What must outlive an API process is in an engine's process (requests' shares, tenants), in the
folder (counts of metrics, what keys have used), in the file of `response_store` or in the folder of
`batch_dir`; nothing else is kept between requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from pagemill.config import ServeConfig
from pagemill.config.fields import flatten
from pagemill.config.memory import available_memory_bytes
from pagemill.observe.restarts import RestartCounts
from pagemill.server.access.key_ring import KeyFile
from pagemill.server.access.keys import ApiKey
from pagemill.server.limits.ledger import Ledger
from pagemill.server.processes.child_process import (
    ask_to_stop,
    start_child,
    tell,
    wait_ready,
    wait_silent,
)
from pagemill.server.transport.http_server import bind

_LOGGER = logging.getLogger("pagemill.server")
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 30.0
_STABLE_AFTER_S = 60.0
_STOP_GRACE_S = 10.0
Start = Callable[[], Awaitable[Process]]


def supervise(config: ServeConfig, key_file: KeyFile) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit status.

    Raises:
        OSError: the address cannot be listened on.
    """
    server = config.server
    with (
        contextlib.closing(bind(server.host, server.port, shared=True)) as holder,
        _hold_grpc_port(config) as config,
        tempfile.TemporaryDirectory(prefix="pagemill-") as folder,  # mode 0700
    ):
        return asyncio.run(_Supervisor(config, key_file, holder, folder).run())


@contextlib.contextmanager
def _hold_grpc_port(config: ServeConfig) -> Generator[ServeConfig]:
    """Holds the port of gRPC as well, if there is one; `config` with its number."""
    server = config.server
    if server.grpc_port is None:
        yield config
        return
    with contextlib.closing(bind(server.host, server.grpc_port, shared=True)) as holder:
        port = holder.getsockname()[1]
        yield replace(config, server=replace(server, grpc_port=port))


class _EndedError(Exception):
    """The server has to end; `status` is its exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Supervisor:
    def __init__(
        self, config: ServeConfig, key_file: KeyFile, holder: socket.socket, folder: str
    ) -> None:
        self._config = config
        self._port = holder.getsockname()[1]
        engines = range(config.server.data_parallel_size)
        self._sockets = [f"{folder}/engine-{index}" for index in engines]
        # Engines that are started again have what others, which run by then, have left of it.
        self._memory_bytes = available_memory_bytes() // len(engines)
        self._metrics = f"{folder}/metrics"
        os.mkdir(self._metrics)
        self._limits = f"{folder}/limits"
        Ledger.create(self._limits)
        self._restarts = RestartCounts(self._metrics)
        self._values = flatten(config)
        self._key_file = key_file
        self._keys = msgspec.to_builtins(key_file.keys)
        self._processes: dict[str, Process] = {}
        self._stop = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        engines = range(len(self._sockets))
        keepers = [asyncio.create_task(self._keep_engine(index)) for index in engines]
        for index in range(self._config.server.api_server_count):
            keepers.append(asyncio.create_task(self._keep_api(index)))
        following = asyncio.create_task(self._key_file.follow(self._replace_keys))
        stopping = asyncio.create_task(self._stop.wait())
        status = 0
        try:
            await asyncio.wait({stopping, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            for keeper in keepers:
                if keeper.done():
                    keeper.result()
            await self._drain()
        except _EndedError as ended:
            status = ended.status
        finally:
            for task in (stopping, following, *keepers):
                task.cancel()
            await self._kill(list(self._processes))
        return status

    def _on_signal(self) -> None:
        if self._stop.is_set():  # a second time: they wait for no request any longer
            self._ask(self._names("api"))
        self._stop.set()

    async def _keep_engine(self, index: int) -> None:
        name = "engine" if len(self._sockets) == 1 else f"engine {index}"
        was_ready = False
        stuck_after_s = self._config.server.engine_stuck_timeout

        async def start() -> Process:
            Path(self._sockets[index]).unlink(missing_ok=True)
            return await self._start(name, "pagemill.server.processes.engine_process", index)

        async def watch(process: Process) -> None:
            nonlocal was_ready
            if not await wait_ready(process):
                if not was_ready:
                    raise _EndedError(await process.wait() or 1)
                return
            was_ready = True
            if await wait_silent(process, stuck_after_s) and not self._stop.is_set():
                _LOGGER.error(
                    "%s (process %d) is stuck: no progress for %g s; it is killed",
                    name,
                    process.pid,
                    stuck_after_s,
                )
                process.kill()

        await self._keep(name, start, watch)

    async def _keep_api(self, index: int) -> None:
        name = f"api {index}"
        await self._keep(
            name, lambda: self._start(name, "pagemill.server.processes.api_process", index)
        )

    async def _keep(
        self, name: str, start: Start, watch: Callable[[Process], Awaitable[None]] | None = None
    ) -> None:
        """Starts the process again whenever it ends, later and later if it ends soon."""
        delay_s = _FIRST_DELAY_S
        while True:
            started = time.monotonic()
            process = self._processes[name] = await start()
            if watch is not None:
                await watch(process)
            status = await process.wait()
            if self._stop.is_set():
                return
            if time.monotonic() - started > _STABLE_AFTER_S:
                delay_s = _FIRST_DELAY_S
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            _LOGGER.error(
                "%s (process %d) %s; it is started again in %.1f s", name, process.pid, how, delay_s
            )
            self._restarts.add(name.partition(" ")[0])
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    async def _start(self, name: str, module: str, index: int) -> Process:
        keys = self._keys
        job = {
            "name": name,
            "index": index,  # among engines, or API processes
            "limits": self._limits,
            "config": self._values,
            "keys": keys,
            "sockets": self._sockets,
            "memory_bytes": self._memory_bytes,  # of an engine
            "metrics": self._metrics,
            "is_first": name == "api 0",  # it has the operator's routes
            "host": self._config.server.host,
            "port": self._port,
        }
        process = await start_child(module, job, {"PROMETHEUS_MULTIPROC_DIR": self._metrics})
        if self._keys is not keys:  # replaced meanwhile
            tell(process, self._keys)
        return process

    def _replace_keys(self, keys: Sequence[ApiKey]) -> None:
        self._keys = msgspec.to_builtins(keys)
        for name in self._names("api"):
            tell(self._processes[name], self._keys)

    def _names(self, kind: str) -> list[str]:
        """The processes of a kind, "engine" or "api"."""
        return [name for name in self._processes if name.startswith(kind)]

    def _ask(self, names: list[str]) -> None:
        for name in names:
            ask_to_stop(self._processes[name])

    async def _drain(self) -> None:
        """API processes finish their requests, then the engines end."""
        _LOGGER.info("stopping: running requests may finish")
        timeout_s = self._config.server.shutdown_timeout + _STOP_GRACE_S
        await self._ask_to_end(self._names("api"), timeout_s)
        await self._ask_to_end(self._names("engine"), _STOP_GRACE_S)
        _LOGGER.info("stopped")

    async def _ask_to_end(self, names: list[str], timeout_s: float) -> None:
        self._ask(names)
        waiting = [asyncio.create_task(self._processes[name].wait()) for name in names]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)

    async def _kill(self, names: list[str]) -> None:
        for name in names:
            process = self._processes[name]
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
