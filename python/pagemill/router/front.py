"""What is in front of servers or models: the layers of its application, its listener, its drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from pagemill.config import (
    ConnectionConfig,
    ObserveConfig,
    OriginConfig,
    ServerConfig,
    TlsConfig,
)
from pagemill.config.route import ListenConfig
from pagemill.observe.logging import configure
from pagemill.server.access.auth import ApiKeyAuth
from pagemill.server.access.key_ring import KeyFile, KeyRing
from pagemill.server.access.keys import warn_if_open
from pagemill.server.access.origins import guard_origins
from pagemill.server.admission import Admission
from pagemill.server.endpoints.table import error_shape
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response
from pagemill.server.lifecycle import Lifecycle
from pagemill.server.playground.layer import Playground
from pagemill.server.records.access_log import log_request
from pagemill.server.records.layer import RequestRecords
from pagemill.server.request_ids import RequestIds
from pagemill.server.stop_signals import stop_on_signals
from pagemill.server.transport.http_server import HttpServer
from pagemill.server.transport.tls import open_tls

_LOGGER = logging.getLogger("pagemill.server")
_ABORT_GRACE_S = 5.0  # for responses to end after their time is up


class FrontConfig(Protocol):
    """The options that every front has."""

    @property
    def listen(self) -> ListenConfig: ...

    @property
    def connections(self) -> ConnectionConfig: ...

    @property
    def tls(self) -> TlsConfig: ...

    @property
    def origins(self) -> OriginConfig: ...

    @property
    def observe(self) -> ObserveConfig: ...


def begin(config: FrontConfig, *, allows_priority: bool = True) -> KeyFile:
    """Sets up the log, and reads the keys; `allows_priority` is `api_keys`'.

    Raises:
        ConfigError: the keys cannot be used.
    """
    configure(config.observe.log_level, log_format=config.observe.log_format)
    keys = ServerConfig(api_key_file=config.listen.api_key_file)
    key_file = KeyFile(keys, allows_priority=allows_priority)
    warn_if_open(config.listen.host, key_file.keys)
    return key_file


def layered(app: ASGIApp, config: FrontConfig, lifecycle: Lifecycle, ring: KeyRing) -> ASGIApp:
    """`app` behind the layers that servers have, too."""
    guarded: ASGIApp = ApiKeyAuth(Admission(app, lifecycle), ring)
    if config.listen.playground:
        guarded = Playground(guarded)
    named = RequestIds(guard_origins(guarded, config.origins))
    return RequestRecords(named, (log_request,)) if config.observe.access_log else named


async def http_error(request: Request, error: Exception) -> Response:
    """The response to an unknown path or method; for a Starlette application."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 404:
        return error_response(
            ApiError(404, f"There is no route {path} here; a server may have it.")
        )
    if error.status_code == 405:
        refusal = ApiError(405, f"{path} does not take {request.method[:20]}.")
        response = error_response(refusal, error_shape(request.url.path))
        response.headers.update(error.headers or {})  # the methods that it takes
        return response
    return error_response(ApiError(error.status_code, str(error.detail)))


@contextlib.asynccontextmanager
async def listening(
    app: ASGIApp, config: FrontConfig, listener: socket.socket, lifecycle: Lifecycle, what: str
) -> AsyncGenerator[None]:
    """Serves `app` on `listener` while the context lasts; the log says `what` it does."""
    http = HttpServer(app, config.connections, open_tls(config.tls))
    serving = asyncio.create_task(http.serve([listener]))
    lifecycle.became_ready()
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"{'https' if config.tls.ssl_certfile else 'http'}://{shown}:{port}"
    page = f", playground: {url}/" if config.listen.playground else ""
    _LOGGER.info("%s: %s/v1%s", what, url, page)
    try:
        yield
    finally:
        http.should_exit = True
        _, late = await asyncio.wait({serving}, timeout=_ABORT_GRACE_S)
        for task in late:
            task.cancel()


async def until_drained(
    config: FrontConfig, lifecycle: Lifecycle, key_file: KeyFile, ring: KeyRing
) -> None:
    """Waits for a signal that stops it, and then for the requests that run. Follows the file of
    keys until then."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            _LOGGER.warning("stopped a second time: not waiting any longer")
            lifecycle.give_up()
        stop.set()

    stop_on_signals(on_signal)
    following = asyncio.create_task(key_file.follow(ring.replace))
    await stop.wait()
    following.cancel()
    lifecycle.begin_drain()
    timeout = config.listen.shutdown_timeout
    _LOGGER.info("draining: %d request(s) may run for %g s more", lifecycle.active, timeout)
    if not await lifecycle.wait_idle(timeout):
        _LOGGER.warning("aborting %d request(s)", lifecycle.active)
