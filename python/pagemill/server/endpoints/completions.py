"""`POST /v1/completions`, and its rendering alone."""

from __future__ import annotations

import msgspec

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer, Text
from pagemill.server.completion import as_rendered, fitted_prompts, start_completion
from pagemill.server.completion_wording import CompletionWording
from pagemill.server.derender.request import rendered_completion
from pagemill.server.derender.stream import derendered_chunk
from pagemill.server.derender.whole import DerenderedAnswer, derendered
from pagemill.server.protocol.completion import RULES, CompletionRequest
from pagemill.server.protocol.decode import decode_fields
from pagemill.server.protocol.derender import CompletionDerenderRequest, DerenderedChunk
from pagemill.server.protocol.generate import as_generate_request
from pagemill.server.respond import respond
from pagemill.server.state import ServerState


async def create(server: ServerState, body: CompletionRequest, caller: Caller) -> Answer:
    """Continues one or several prompts."""
    pipeline, _ = server.models.resolve(body.model, caller)
    generation, echoes = await start_completion(pipeline, body, caller)
    name, has_metrics = f"cmpl-{body.request_id}", server.config.enable_per_request_metrics
    wording = CompletionWording(pipeline, body, name, generation, echoes, has_metrics)
    interval = max(server.config.stream_interval, body.stream_interval)
    return await respond(generation, wording, interval if body.stream else None)


async def render(server: ServerState, body: CompletionRequest, caller: Caller) -> Text:
    """The requests of `/inference/v1/generate`, one a prompt, that continue the same."""
    pipeline, _ = server.models.resolve(body.model, caller)
    body = as_rendered(pipeline, body)
    prompts, _ = await fitted_prompts(pipeline, body)
    requests = [as_generate_request(body, prompt, body.logprobs) for prompt in prompts]
    return Text(msgspec.json.encode(requests), "application/json")


async def derender(
    server: ServerState, body: CompletionDerenderRequest, caller: Caller
) -> DerenderedAnswer | DerenderedChunk:
    """The answer of a completion whose renderings `/inference/v1/generate` has answered, here or on
    another server; with `stream` an event of it."""
    request = decode_fields(body.completion_request, CompletionRequest, RULES)
    pipeline, _ = server.models.resolve(body.model or request.model, caller)
    rendered = await rendered_completion(pipeline, request)
    answered = derendered_chunk if body.stream else derendered
    return await answered(rendered, body)
