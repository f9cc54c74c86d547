"""`pagemill serve` in several processes: one for each engine, one or more that serve HTTP, and this
one, which starts them, starts those again that end, and drains.

    supervisor --+-- engine    Unix socket in a private folder
                 +-- api 0     SO_REUSEPORT on the port, a client of the engine
                 +-- api 1     ...

With `data_parallel_size` there are engine 0, engine 1, ...; each API process is a client of all.
Those of other machines (`headless.py`) join at a gate, which has a socket in the folder for each.

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
import socket
import tempfile
from asyncio.subprocess import Process
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from pagemill.config import ConfigError, ServeConfig, ServerConfig
from pagemill.config.fields import flatten
from pagemill.observe.restarts import RestartCounts
from pagemill.server.access.key_ring import KeyFile
from pagemill.server.access.keys import ApiKey
from pagemill.server.limits.ledger import Ledger
from pagemill.server.processes.child_process import start_child, tell
from pagemill.server.processes.engine_processes import EngineProcesses
from pagemill.server.processes.kept_processes import STOP_GRACE_S, EndedError, KeptProcesses
from pagemill.server.stop_signals import stop_on_signals
from pagemill.server.transport.http_server import bind
from pagemill.server.transport.unix_listener import unix_listener

if TYPE_CHECKING:
    from pagemill.engine.remote.gate import Gate

_API_MODULE = "pagemill.server.processes.api_process"
_LOGGER = logging.getLogger("pagemill.server")


def supervise(config: ServeConfig, key_file: KeyFile) -> int:
    """Serves until a signal stops it; returns the exit status.

    Raises:
        ConfigError: engines of other machines cannot join at their address.
        FetchError: all engines are on other machines, and this one has no files of the model.
        OSError: the address cannot be listened on.
    """
    server = config.server
    if not server.data_parallel.local_engines:
        from pagemill.engine.model_source import find_model

        find_model(config.engine.model)  # API processes read its tokenizer
    with (
        _hold_address(server) as holder,
        _hold_grpc_port(config) as config,
        tempfile.TemporaryDirectory(prefix="pagemill-") as folder,  # mode 0700
    ):
        return asyncio.run(_Supervisor(config, key_file, holder, folder).run())


def _hold_address(config: ServerConfig) -> contextlib.AbstractContextManager[socket.socket]:
    """The clients' port, which API processes listen on; or the socket on a path, which they have
    together."""
    if config.uds is not None:
        return unix_listener(config.uds, 0o666)
    return contextlib.closing(bind(config.host, config.port, shared=True))


@contextlib.contextmanager
def _hold_grpc_port(config: ServeConfig) -> Generator[ServeConfig]:
    """Holds the port of gRPC as well, if there is one; `config` with its number."""
    server = config.server
    if server.grpc_port is None:
        yield config
        return
    grpc = bind(server.host, server.grpc_port, "--grpc-port", shared=True)
    with contextlib.closing(grpc) as holder:
        port = holder.getsockname()[1]
        yield replace(config, server=replace(server, grpc_port=port))


class _Supervisor:
    def __init__(
        self, config: ServeConfig, key_file: KeyFile, holder: socket.socket, folder: str
    ) -> None:
        self._config = config
        self._shared = holder if holder.family == socket.AF_UNIX else None
        self._port = 0 if self._shared else holder.getsockname()[1]
        self._metrics = f"{folder}/metrics"
        os.mkdir(self._metrics)
        self._limits = f"{folder}/limits"
        Ledger.create(self._limits)
        self._restarts = RestartCounts(self._metrics)
        self._values = flatten(config)
        self._key_file = key_file
        self._keys = msgspec.to_builtins(key_file.keys)
        self._kept = KeptProcesses(self._restarts.add)
        self._variables = {"PROMETHEUS_MULTIPROC_DIR": self._metrics}
        self._gate: Gate | None = None
        self._engines = EngineProcesses(config, self._kept, folder, self._variables, self._on_model)
        count = config.server.data_parallel.data_parallel_size
        self._sockets = [self._engines.socket(engine) for engine in range(count)]

    async def run(self) -> int:
        stop_on_signals(self._on_signal)
        self._open_gate()
        engines = self._config.server.data_parallel.local_engines
        keepers = [asyncio.create_task(self._engines.keep(engine)) for engine in engines]
        for index in range(self._config.server.api_server_count):
            keepers.append(asyncio.create_task(self._keep_api(index)))
        following = asyncio.create_task(self._key_file.follow(self._replace_keys))
        stopping = asyncio.create_task(self._kept.stop.wait())
        status = 0
        try:
            await asyncio.wait({stopping, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            for keeper in keepers:
                if keeper.done():
                    keeper.result()
            await self._drain()
        except EndedError as ended:
            status = ended.status
        finally:
            for task in (stopping, following, *keepers):
                task.cancel()
            if self._gate is not None:
                self._gate.close()
            await self._kept.kill()
        return status

    def _open_gate(self) -> None:
        """Lets engines of other machines join, if there are any."""
        engines = self._config.server.data_parallel
        if not engines.spans_machines:
            return
        from pagemill.engine.remote.gate import Gate
        from pagemill.engine.remote.identity import meeting_place, options_digest, wire_version

        own = engines.local_engines
        paths = {i: path for i, path in enumerate(self._sockets) if i not in own}
        place = meeting_place(self._config)
        self._gate = Gate(
            place,
            paths,
            wire_version(),
            options_digest(self._config.engine),
            has_own=bool(own),
            on_return=lambda: self._restarts.add("engine"),
        )
        try:
            self._gate.open()
        except OSError as error:
            raise ConfigError(
                "--data-parallel-address, --data-parallel-rpc-port: engines cannot join at"
                f" {place.address}: {error.strerror}"
            ) from error

    def _on_model(self, model: str) -> None:
        if self._gate is not None:
            self._gate.expect(model)

    def _on_signal(self) -> None:
        if self._kept.stop.is_set():  # a second time: they wait for no request any longer
            self._kept.ask("api")
        self._kept.stop.set()

    async def _keep_api(self, index: int) -> None:
        name = f"api {index}"
        await self._kept.keep(name, lambda: self._start_api(name, index))

    async def _start_api(self, name: str, index: int) -> Process:
        keys = self._keys
        job = {
            "name": name,
            "index": index,
            "limits": self._limits,
            "config": self._values,
            "keys": keys,
            "sockets": self._sockets,
            "metrics": self._metrics,
            "is_first": index == 0,  # it has the operator's routes
            "host": self._config.server.host,
            "port": self._port,
            "descriptor": None if self._shared is None else self._shared.fileno(),
        }
        passed = () if self._shared is None else (self._shared.fileno(),)
        process = await start_child(_API_MODULE, job, self._variables, passed)
        if self._keys is not keys:  # replaced meanwhile
            tell(process, self._keys)
        return process

    def _replace_keys(self, keys: Sequence[ApiKey]) -> None:
        self._keys = msgspec.to_builtins(keys)
        for name in self._kept.names("api"):
            tell(self._kept.by_name[name], self._keys)

    async def _drain(self) -> None:
        """API processes finish their requests, then the engines end."""
        _LOGGER.info("stopping: running requests may finish")
        if self._shared is not None:  # or clients would connect when no process accepts any more
            self._shared.close()
        timeout_s = self._config.server.shutdown_timeout + STOP_GRACE_S
        await self._kept.ask_to_end("api", timeout_s)
        await self._kept.ask_to_end("engine", STOP_GRACE_S)
        _LOGGER.info("stopped")
