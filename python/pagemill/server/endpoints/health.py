"""`GET /health`: would restarting the process help?"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pagemill.server.errors import ApiError, error_response
from pagemill.server.state import state_of


async def get(request: Request) -> Response:
    """200 while the process lives and the engine makes progress, also while loading or draining."""
    stuck = state_of(request).stuck_for_s()
    if stuck:
        return error_response(ApiError(503, f"The engine has made no progress for {stuck:.0f} s."))
    return Response(b'{"status":"ok"}', media_type="application/json")
