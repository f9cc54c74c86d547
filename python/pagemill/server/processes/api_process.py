"""A process of `pagemill serve` that serves HTTP and has its engine in another one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import uvloop

from pagemill.config import ServeConfig, for_media
from pagemill.config.fields import build
from pagemill.observe.logging import configure
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.keys import ApiKey
from pagemill.server.http_process import Server
from pagemill.server.limits.ledger import Ledger
from pagemill.server.limits.limiter import KeyLimiter
from pagemill.server.processes.admin_listener import operator_listener
from pagemill.server.processes.child_process import follow_parent
from pagemill.server.processes.engine_source import OtherEngine
from pagemill.server.transport.http_server import bind


def run(job: Mapping[str, Any]) -> int:
    """Serves until the parent stops it; see `supervisor`."""
    config = build(ServeConfig, job["config"])
    config = replace(config, engine=for_media(config.engine, config.server.media))
    ring = KeyRing(_keys(job["keys"]))
    configure(config.observe.log_level, job["name"], config.observe.log_format)
    with (
        contextlib.closing(_listener(job)) as listener,
        operator_listener(config.server.admin_address if job["is_first"] else None) as operator,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        limiter = KeyLimiter(Ledger(job["limits"], job["index"]))
        engine = OtherEngine(
            job["sockets"], config.engine, config.server.data_parallel.local_engines
        )
        server = Server(config, ring, listener, engine, job["metrics"], limiter, operator)

        async def serve() -> int:
            follow_parent(server.stop, lambda keys: ring.replace(_keys(keys)))
            return await server.run()

        return runner.run(serve())


def _listener(job: Mapping[str, Any]) -> socket.socket:
    """The clients' socket: one of its own on a port, and that of all processes on a path."""
    if job["descriptor"] is not None:
        return socket.socket(fileno=job["descriptor"])
    return bind(job["host"], job["port"], shared=True)


def _keys(sent: Any) -> tuple[ApiKey, ...]:
    return msgspec.convert(sent, tuple[ApiKey, ...])
