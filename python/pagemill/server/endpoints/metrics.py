"""`GET /metrics`: Prometheus text."""

from __future__ import annotations

from typing import Any

from pagemill.observe.metrics import CONTENT_TYPE
from pagemill.server.answer import Text
from pagemill.server.caller import Caller
from pagemill.server.state import ServerState


async def get(server: ServerState, body: dict[str, Any], caller: Caller) -> Text:
    """All families; nothing while the model is being loaded."""
    del body, caller
    pipeline = server.loaded
    return Text(b"" if pipeline is None else pipeline.metrics.render(), CONTENT_TYPE)
