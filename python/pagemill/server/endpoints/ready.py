"""`GET /ready`, and `/ping`, its name on SageMaker: would a new request be served?"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pagemill.server.errors import ApiError, error_response
from pagemill.server.lifecycle import Phase
from pagemill.server.state import state_of


async def get(request: Request) -> Response:
    """200 only while the server takes requests; the 503 says what it does instead."""
    state = state_of(request)
    if state.lifecycle.phase is not Phase.READY:
        return error_response(ApiError(503, f"The server is {state.lifecycle.phase.value}."))
    if not state.has_engine:
        return error_response(ApiError(503, "The engine has ended and is started again."))
    stuck = state.stuck_for_s()
    if stuck:
        return error_response(ApiError(503, f"The engine has made no progress for {stuck:.0f} s."))
    return Response(b'{"status":"ready"}', media_type="application/json")
