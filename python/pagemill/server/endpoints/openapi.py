"""`GET /openapi.json`."""

from __future__ import annotations

from typing import Any

from pagemill.server.answer import Text
from pagemill.server.caller import Caller
from pagemill.server.endpoints.table import ENDPOINTS
from pagemill.server.openapi import document
from pagemill.server.state import ServerState


async def get(server: ServerState, body: dict[str, Any], caller: Caller) -> Text:
    """This document: the routes that the loaded model has."""
    del body, caller
    rows = tuple(row for row in ENDPOINTS if server.has_task(row.task))
    return Text(document(rows), "application/json")
