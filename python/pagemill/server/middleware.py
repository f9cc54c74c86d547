"""Operators' own ASGI middleware (`--middleware`), around keys, limits and routes.

    app = add_middleware(app, ["my_package.Layer", "my_package.on_request"])

It stands within the bounds of connections, the records of requests, their ids and the rules of
origins; so it sees requests before their keys are checked, and what it answers itself is logged and
counted.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import logging
from collections.abc import Sequence
from typing import Any

from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagemill.config import ConfigError
from pagemill.server.endpoints.table import error_shape
from pagemill.server.errors import ApiError
from pagemill.server.event_stream import BODY_WRITER
from pagemill.server.http_answer import error_response

_LOGGER = logging.getLogger("pagemill.server")


def check_middleware(paths: Sequence[str]) -> None:
    """Imports what `--middleware` names.

    Raises:
        ConfigError: a path cannot be imported, or is no middleware.
    """
    for path in paths:
        _load(path)


def add_middleware(app: ASGIApp, paths: Sequence[str]) -> ASGIApp:
    """`app` behind the middleware of `paths`, the first of which sees a request first.

    Raises:
        ConfigError: see `check_middleware`; or a class cannot be made.
    """
    if not paths:
        return app
    app = _Inside(app)
    for path in reversed(paths):
        app = _around(app, path)
    return _Outside(app)


class _Inside:
    """Below the middleware: everything that is sent passes it, from a task of the event loop."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state.pop(BODY_WRITER, None)  # it would write past the middleware
        context = contextvars.copy_context()

        async def pass_on(message: Message) -> None:
            await send(message)

        async def send_in_task(message: Message) -> None:
            # An `EventStream` sends from callbacks as well, in which much of asyncio does not work.
            await asyncio.create_task(pass_on(message), context=context)

        await self._app(scope, receive, send_in_task)
        if state.get("status") == 101:
            # A WebSocket took the connection over, and has ended. Middleware may wait for the
            # response, which was written past it: this one is not sent.
            await send({"type": "http.response.start", "status": 101, "headers": []})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Outside:
    """Above the middleware: its failures are responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def noting_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        except ClientDisconnect:  # it was reading the body
            return
        except Exception:
            if has_begun:
                raise  # the HTTP server logs it, and closes the connection
            _LOGGER.exception("%s %r failed in --middleware", scope["method"], scope["path"])
            failure = ApiError(500, "The server failed in an unexpected way; its log says more.")
            await error_response(failure, error_shape(scope["path"]))(scope, receive, send)


def _around(app: ASGIApp, path: str) -> ASGIApp:
    found = _load(path)
    if inspect.iscoroutinefunction(found):
        return BaseHTTPMiddleware(app, dispatch=found)
    try:
        return found(app)
    except Exception as error:
        raise ConfigError(f"--middleware {path}: it cannot be made: {error!r}") from error


def _load(path: str) -> Any:
    """The class or function that `path` names."""
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ConfigError(f"--middleware {path}: write it as module.Class or module.function")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"--middleware {path}: {module_name} cannot be imported: {error!r}; modules are looked"
            " up among installed packages and in the folders of PYTHONPATH"
        ) from error
    if not hasattr(module, name):
        raise ConfigError(f"--middleware {path}: {module_name} has no {name!r}")
    found = getattr(module, name)
    if inspect.iscoroutinefunction(found):
        arguments = ("request", "call_next")
    elif inspect.isclass(found) and any("__call__" in vars(base) for base in found.__mro__):
        arguments = ("app",)
    else:
        raise ConfigError(
            f"--middleware {path}: it is neither a class of ASGI middleware nor an async function"
            " (request, call_next)"
        )
    try:
        inspect.signature(found).bind(*arguments)
    except (TypeError, ValueError) as error:  # ValueError: it has no signature
        raise ConfigError(
            f"--middleware {path}: it cannot be called with ({', '.join(arguments)}): {error}"
        ) from error
    return found
