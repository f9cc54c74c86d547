"""`POST /invocations`: SageMaker's one route, for the body of any other."""

from __future__ import annotations

from typing import Any

from pagemill.server.answer import Answer
from pagemill.server.caller import Caller
from pagemill.server.dispatch import invoke
from pagemill.server.endpoints.table import endpoint_named
from pagemill.server.errors import bad_request
from pagemill.server.state import ServerState

_ENDPOINT_OF_FIELD = {
    "messages": "chat_completions",
    "prompt": "completions",
    "input": "embeddings",
}


async def create(server: ServerState, body: dict[str, Any], caller: Caller) -> Answer:
    """Serves the body as the route would whose field it has: `messages`, `prompt` or `input`."""
    for field, name in _ENDPOINT_OF_FIELD.items():
        if body.get(field) is not None:
            return await invoke(server, endpoint_named(name), body, caller)
    raise bad_request(
        "The body needs `messages` (chat), `prompt` (completions) or `input` (embeddings)."
    )
