"""`GET /version`."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagemill import __version__


async def get(request: Request) -> Response:
    """The version of the program."""
    del request
    return Response(msgspec.json.encode({"version": __version__}), media_type="application/json")
