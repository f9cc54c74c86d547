"""`POST /v1/completions`, and its rendering alone."""

from __future__ import annotations

import msgspec

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer, Text
from pagemill.server.completion import rendered_prompts, start_completion
from pagemill.server.completion_wording import CompletionWording
from pagemill.server.errors import bad_request
from pagemill.server.infill import with_ends_of_middles
from pagemill.server.pipeline import GenerationOptions
from pagemill.server.protocol.completion import DEFAULT_MAX_TOKENS, CompletionRequest
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
    if body.suffix:
        body = with_ends_of_middles(pipeline, body)
    if body.max_tokens == 0:
        raise bad_request("`max_tokens` must be at least 1.", "max_tokens")
    if body.embeds:
        raise bad_request("`prompt_embeds` has no tokens.", "prompt_embeds")
    rendered, _ = await rendered_prompts(pipeline, body)
    options = GenerationOptions(
        max_tokens=body.max_tokens,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncation_side=body.truncation_side,
    )
    prompts = pipeline.fit(rendered, options)
    requests = [as_generate_request(body, prompt, body.logprobs) for prompt in prompts]
    return Text(msgspec.json.encode(requests), "application/json")
