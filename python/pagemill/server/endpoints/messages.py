"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.chat import check_chat, render_chat, rendered_prompt, start_chat
from pagemill.server.errors import ApiError
from pagemill.server.messages.chat import chat_request, renamed
from pagemill.server.messages.wording import MessagesWording
from pagemill.server.output_limits import can_bound_reasoning
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.generate import GenerateRequest
from pagemill.server.protocol.messages import CountTokensRequest, MessagesRequest, TokenCount
from pagemill.server.respond import respond
from pagemill.server.state import ServerState
from pagemill.server.text_files import TextFiles


async def create(server: ServerState, body: MessagesRequest, caller: Caller) -> Answer:
    """Answers the last of a list of messages, as Anthropic's API does."""
    pipeline, _ = server.models.resolve(body.model, caller)
    try:
        request = await _chat_request(server, pipeline, body, caller)
        generation = await start_chat(pipeline, request, caller, clamps_max_tokens=True)
    except ApiError as error:
        raise renamed(error) from error
    wording = MessagesWording(pipeline, body, generation)
    return await respond(
        generation, wording, server.config.stream_interval if body.stream else None
    )


async def render(server: ServerState, body: MessagesRequest, caller: Caller) -> GenerateRequest:
    """The request of `/inference/v1/generate` that answers the same."""
    pipeline, _ = server.models.resolve(body.model, caller)
    try:
        request = await _chat_request(server, pipeline, body, caller)
        return await render_chat(pipeline, request, caller, clamps_max_tokens=True)
    except ApiError as error:
        raise renamed(error) from error


async def count_tokens(server: ServerState, body: CountTokensRequest, caller: Caller) -> TokenCount:
    """Counts the tokens of a prompt, as `/v1/messages` would give it to the model."""
    pipeline, _ = server.models.resolve(body.model, caller)
    request = chat_request(await TextFiles(server, caller, "messages").in_documents(body))
    check_chat(request)
    return TokenCount(len(await rendered_prompt(pipeline.rendering, request, caller)))


async def _chat_request(
    server: ServerState, pipeline: Pipeline, body: MessagesRequest, caller: Caller
) -> ChatRequest:
    body = await TextFiles(server, caller, "messages").in_documents(body)
    return chat_request(body, bounds_thinking=can_bound_reasoning(pipeline.renderer))
