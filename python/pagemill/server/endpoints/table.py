"""The endpoints there are. A new one is a module here and a row in one of the tables."""

from __future__ import annotations

from pagemill.server.access.caller import Scope
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.endpoints.generating_table import GENERATING_ENDPOINTS
from pagemill.server.endpoints.pooling_table import POOLING_ENDPOINTS
from pagemill.server.endpoints.server_table import SERVER_ENDPOINTS
from pagemill.server.endpoints.stored_table import STORED_ENDPOINTS
from pagemill.server.error_shapes import ANTHROPIC, OPENAI, ErrorShape

ENDPOINTS: tuple[Endpoint, ...] = (
    *GENERATING_ENDPOINTS,
    *POOLING_ENDPOINTS,
    *STORED_ENDPOINTS,
    *SERVER_ENDPOINTS,
)
PASSED_ENDPOINTS = tuple(
    endpoint
    for endpoint in (*GENERATING_ENDPOINTS, *POOLING_ENDPOINTS, *SERVER_ENDPOINTS)
    if endpoint.scope is Scope.INFERENCE
    and endpoint.transport in (Transport.JSON, Transport.AUDIO_FORM)
)
"""What is passed on by what is in front of servers: work with a body. What is for operators, and
what is stored, is of one server."""
OPEN_PATHS = frozenset(e.path for e in ENDPOINTS if e.scope is Scope.OPEN)
"""What is answered without a key."""
_ERRORS = {endpoint.path: endpoint.errors for endpoint in ENDPOINTS}


def error_shape(path: str) -> ErrorShape:
    """How errors of requests to `path` are written, also if they never reach their route."""
    default = ANTHROPIC if path.startswith("/v1/messages/") else OPENAI
    return _ERRORS.get(path, default)


def endpoint_named(name: str) -> Endpoint:
    """The row `name`."""
    return next(endpoint for endpoint in ENDPOINTS if endpoint.name == name)
