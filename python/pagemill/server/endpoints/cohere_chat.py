"""`POST /v2/chat`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.chat import start_chat
from pagemill.server.cohere.chat import FIELD_NAMES, chat_request
from pagemill.server.cohere.wording import CohereWording
from pagemill.server.errors import ApiError, renamed
from pagemill.server.output_limits import can_bound_reasoning
from pagemill.server.protocol.cohere_chat import CohereChatRequest
from pagemill.server.respond import respond
from pagemill.server.state import ServerState


async def create(server: ServerState, body: CohereChatRequest, caller: Caller) -> Answer:
    """Answers the last of a list of messages, as Cohere's API does."""
    pipeline, _ = server.models.resolve(body.model, caller)
    bounds_thinking = can_bound_reasoning(pipeline.renderer)
    try:
        request = chat_request(body, bounds_thinking=bounds_thinking)
        generation = await start_chat(pipeline, request, caller)
    except ApiError as error:
        raise renamed(error, FIELD_NAMES) from error
    wording = CohereWording(pipeline, body, generation)
    return await respond(
        generation, wording, server.config.stream_interval if body.stream else None
    )
