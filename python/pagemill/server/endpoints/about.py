"""What the server says of itself: `GET /metrics`, `/openapi.json` and `/version`."""

from __future__ import annotations

from typing import Any

from pagemill import __version__
from pagemill.observe.metrics import CONTENT_TYPE
from pagemill.server.access.caller import Caller
from pagemill.server.answer import Text
from pagemill.server.endpoints.admin_table import ADMIN_ENDPOINTS
from pagemill.server.openapi import document
from pagemill.server.protocol.status import Load, Version
from pagemill.server.state import ServerState


async def metrics(server: ServerState, body: dict[str, Any], caller: Caller) -> Text:
    """All families as Prometheus text; nothing while the model is being loaded."""
    del body, caller
    pipeline = server.loaded
    return Text(b"" if pipeline is None else pipeline.metrics.render(), CONTENT_TYPE)


async def openapi(server: ServerState, body: dict[str, Any], caller: Caller) -> Text:
    """This document: the routes that the loaded model has."""
    del body, caller
    rows = tuple(row for row in server.endpoints if server.has_task(row.tasks))
    return Text(document(rows, server.config.root_path), "application/json")


async def admin_openapi(server: ServerState, body: dict[str, Any], caller: Caller) -> Text:
    """The operator's routes."""
    del server, body, caller
    return Text(document(ADMIN_ENDPOINTS), "application/json")


async def load(server: ServerState, body: dict[str, Any], caller: Caller) -> Load:
    """How many requests are being answered."""
    del body, caller
    return Load(server.lifecycle.active)


async def version(server: ServerState, body: dict[str, Any], caller: Caller) -> Version:
    """The version of the program."""
    del server, body, caller
    return Version(__version__)
