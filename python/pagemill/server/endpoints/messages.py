"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.chat import (
    check_chat,
    checked_fields,
    render_chat,
    rendered_prompt,
    start_chat,
)
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
from pagemill.server.time_limit import in_time


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
    files = TextFiles(server, caller, "messages")
    check_chat(chat_request(await files.unread().in_documents(body)))
    async with in_time(pipeline.deadline(None, caller)):
        request = chat_request(await files.in_documents(body))
        prompt = await rendered_prompt(pipeline.rendering, request, caller)
    return TokenCount(len(prompt))


async def _chat_request(
    server: ServerState, pipeline: Pipeline, body: MessagesRequest, caller: Caller
) -> ChatRequest:
    """The chat request, before whose files are read all else of it is checked."""
    bounds_thinking = can_bound_reasoning(pipeline.renderer)
    files = TextFiles(server, caller, "messages")
    unread = files.unread()
    request = chat_request(await unread.in_documents(body), bounds_thinking=bounds_thinking)
    if not unread.num_files:
        return request
    checked_fields(pipeline, request, caller, clamps_max_tokens=True)
    async with in_time(pipeline.deadline(body.timeout, caller)):
        read = await files.in_documents(body)
    return chat_request(read, bounds_thinking=bounds_thinking)
