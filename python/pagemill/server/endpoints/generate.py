"""`POST /inference/v1/generate`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.completion import start_completion
from pagemill.server.errors import bad_request
from pagemill.server.generate_wording import GenerateWording
from pagemill.server.protocol.generate import GenerateRequest, as_completion, free_reasoning
from pagemill.server.respond import respond
from pagemill.server.state import ServerState


async def create(server: ServerState, body: GenerateRequest, caller: Caller) -> Answer:
    """Continues tokens with tokens."""
    pipeline, _ = server.models.resolve(body.model, caller)
    if body.sampling_params.max_tokens == 0:
        raise bad_request("`max_tokens` must be at least 1.", "sampling_params.max_tokens")
    if body.output_mode == "text" and not pipeline.renderer.has_text:
        raise bad_request(
            "`output_mode` is `text`, and no tokenizer is loaded (--skip-tokenizer-init).",
            "output_mode",
        )
    request = as_completion(body)
    generation, _ = await start_completion(
        pipeline, request, caller, param="token_ids", reasoning=free_reasoning(body)
    )
    has_metrics = server.config.enable_per_request_metrics
    wording = GenerateWording(pipeline, body, generation, has_metrics)
    return await respond(
        generation, wording, server.config.stream_interval if body.stream else None
    )
