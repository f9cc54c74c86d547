"""`POST /invocations`: SageMaker's one route, for the body of any other."""

from __future__ import annotations

from typing import Any, cast

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.dispatch import invoke
from pagemill.server.endpoints.table import endpoint_named
from pagemill.server.errors import bad_request
from pagemill.server.state import ServerState

# Routes that take a body with this field; the first one of the loaded model serves it.
_ENDPOINTS_OF_FIELD = {
    "messages": ("chat_completions", "embeddings", "classify", "pooling"),
    "prompt": ("completions",),
    "prompt_embeds": ("completions",),
    "input": ("embeddings", "classify", "pooling"),
    "items": ("generative_scoring",),  # with a `query`
    "query": ("rerank",),
    "queries": ("score",),
    "text_1": ("score",),
    "data_1": ("score",),
    "data": ("pooling",),
}


async def create(server: ServerState, body: dict[str, Any], caller: Caller) -> Answer:
    """Serves the body as the route would whose field it has."""
    for field, names in _ENDPOINTS_OF_FIELD.items():
        if body.get(field) is None:
            continue
        if field == "messages" and _is_batch(body[field]):
            names = ("chat_completions_batch",)
        rows = [endpoint_named(name) for name in names]
        row = next((row for row in rows if server.has_task(row.tasks)), rows[0])
        return await invoke(server, row, body, caller)
    raise bad_request(
        "The body needs `messages` (chat), `prompt` or `prompt_embeds` (completions), `input`"
        " (embeddings, classes), `items` (generative scoring), `query` (rerank), `queries` (score)"
        " or `data` (a plugin)."
    )


def _is_batch(messages: Any) -> bool:
    """Whether they are conversations, each of them a list."""
    return isinstance(messages, list) and isinstance(
        next(iter(cast(list[Any], messages)), None), list
    )
