"""From the fields of a request to an endpoint's answer: what every transport calls.

    answer = await invoke(server, endpoint_named("completions"), {"prompt": "a"}, caller)

HTTP, gRPC, batch files and `/invocations` differ in where fields come from and where answers go;
all checks of a request are here or in the handler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagemill.inputs.task import Task
from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.endpoints.table import ENDPOINTS
from pagemill.server.errors import ApiError
from pagemill.server.protocol.decode import decode_fields
from pagemill.server.registry import ModelRegistry
from pagemill.server.state import ServerState


async def invoke(
    server: ServerState, endpoint: Endpoint, fields: dict[str, Any], caller: Caller
) -> Answer:
    """The answer of `endpoint` to `fields`. Cancelling it ends the work done for the request.

    Raises:
        ApiError: the request cannot be served, or `caller` may not send it.
    """
    caller.require(endpoint.scope)
    if not server.has_task(endpoint.tasks):
        raise no_such_route(server.models, endpoint.path)
    body = endpoint.request_type()
    decoded = fields if body is None else decode_fields(fields, body.kind, body.rules)
    return await endpoint.load()(server, decoded, caller)


def no_such_route(models: ModelRegistry, path: str) -> ApiError:
    """The 404 of a route that other models have."""
    served = served_paths(ENDPOINTS, models)
    embeds = any(path == e.path and Task.EMBED in e.tasks for e in ENDPOINTS)
    could = embeds and Task.GENERATE in models.tasks
    hint = f" With --task embed it would serve {path}." if could else ""
    message = f"{models.summary}, so {path} is not served here: use {served}.{hint}"
    return ApiError(404, message, "model")


def served_paths(endpoints: Sequence[Endpoint], models: ModelRegistry) -> str:
    """The routes of the loaded model's task, without those below another one of them."""
    work = [e for e in endpoints if e.transport in (Transport.JSON, Transport.AUDIO_FORM)]
    paths = [e.path for e in work if not models.tasks.isdisjoint(e.tasks)]
    shown = [p for p in paths if not any(p.startswith(f"{other}/") for other in paths)]
    return ", ".join(shown[:-1]) + f" or {shown[-1]}" if shown[1:] else "".join(shown)
