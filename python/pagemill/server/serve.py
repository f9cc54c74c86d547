"""`pagemill serve`: listens, loads the model, serves, drains, exits.

The socket listens before the model is loaded, so that probes are answered from the start: `/health`
says that the process lives, `/ready` that it is not there yet. One of several API processes listens
once it can serve: the system distributes connections among those that listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import tempfile
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import uvloop

from pagemill import __version__
from pagemill.config import ServeConfig, ServerConfig, for_media
from pagemill.inputs.io_processor import find_io_processor
from pagemill.observe.logging import configure
from pagemill.server.access.key_ring import KeyFile, KeyRing
from pagemill.server.access.keys import warn_if_open
from pagemill.server.batches.folder import locked_folder
from pagemill.server.endpoints.plugins import plugin_endpoints
from pagemill.server.middleware import check_middleware
from pagemill.server.processes.admin_listener import check_admin_address, operator_listener
from pagemill.server.records.listeners import check_listeners
from pagemill.server.records.metrics_plugins import check_metrics_plugins
from pagemill.server.responses import store_file
from pagemill.server.rpc.extra import import_grpc
from pagemill.server.stop_signals import stop_on_signals
from pagemill.server.tools.servers import open_servers
from pagemill.server.transport.http_server import listen
from pagemill.server.transport.tls import open_tls
from pagemill.server.transport.unix_listener import unix_listener

if TYPE_CHECKING:
    from pagemill.server.processes.engine_source import Load
    from pagemill.server.state import ServerState

_LOGGER = logging.getLogger("pagemill.server")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """How a server of one process meets what is around it.

    `name` is that of the process in each line of its log, "" if it is the only one. `attend` is
    called in the event loop with the function that ends the server, `became_ready` when it serves.
    `load` loads its model, None in a thread.
    """

    name: str = ""
    attend: Callable[[Callable[[], None]], None] = stop_on_signals
    load: Load | None = None
    became_ready: Callable[[ServerState], Awaitable[None]] | None = None


def run(config: ServeConfig, around: Surroundings = Surroundings()) -> int:
    """Serves until a signal stops it; returns the process's exit status. `around` is for a server
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
        from pagemill.server.processes.supervisor import supervise

        return supervise(config, key_file)
    return _serve_alone(config, key_file, around)


def _serve_alone(config: ServeConfig, key_file: KeyFile, around: Surroundings) -> int:
    """Serves in this process. A supervisor imports nothing of this."""
    from pagemill.server.http_process import Server
    from pagemill.server.processes.engine_source import OwnEngine, load_in_thread

    with (
        _listener(config.server) as listener,
        operator_listener(config.server.admin_address) as operator,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        ring = KeyRing(key_file.keys)
        engine = OwnEngine(config.engine, around.load or load_in_thread)
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
