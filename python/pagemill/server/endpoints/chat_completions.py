"""`POST /v1/chat/completions`, and its rendering alone."""

from __future__ import annotations

from pagemill.server.answer import Answer
from pagemill.server.caller import Caller
from pagemill.server.chat import check_chat, rendered_prompt, requested_tokens, start_chat
from pagemill.server.chat_wording import ChatWording
from pagemill.server.pipeline import GenerationOptions
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.generate import GenerateRequest, as_generate_request
from pagemill.server.respond import respond
from pagemill.server.state import ServerState


async def create(server: ServerState, body: ChatRequest, caller: Caller) -> Answer:
    """Answers the last of a list of messages."""
    pipeline, _ = server.models.resolve(body.model, caller)
    generation = await start_chat(pipeline, body, caller)
    name, has_metrics = f"chatcmpl-{body.request_id}", server.config.enable_per_request_metrics
    wording = ChatWording(pipeline, body, name, generation, has_metrics)
    interval = max(server.config.stream_interval, body.stream_interval)
    return await respond(generation, wording, interval if body.stream else None)


async def render(server: ServerState, body: ChatRequest, caller: Caller) -> GenerateRequest:
    """The request of `/inference/v1/generate` that answers the same. What `tool_choice` demands of
    the output is not in it."""
    pipeline, _ = server.models.resolve(body.model, caller)
    check_chat(body)
    prompt = await rendered_prompt(pipeline.rendering, body)
    requested, requested_param = requested_tokens(body)
    options = GenerationOptions(
        max_tokens=requested,
        max_tokens_param=requested_param,
        default_max_tokens=pipeline.model.defaults.max_tokens,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncation_side=body.truncation_side,
        param="messages",
    )
    (fitted,) = pipeline.fit([prompt], options)
    return as_generate_request(body, fitted, body.top_logprobs if body.logprobs else None)
