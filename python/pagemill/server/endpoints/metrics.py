"""`GET /metrics`: Prometheus text."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pagemill.observe.metrics import CONTENT_TYPE
from pagemill.server.state import state_of


async def get(request: Request) -> Response:
    """All families; nothing while the model is being loaded."""
    pipeline = state_of(request).loaded
    body = b"" if pipeline is None else pipeline.metrics.render()
    return Response(body, headers={"content-type": CONTENT_TYPE})
