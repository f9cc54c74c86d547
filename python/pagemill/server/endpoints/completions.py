"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.answer import Answer
from pagemill.server.caller import Caller
from pagemill.server.choice_search import wanted_search
from pagemill.server.completion_wording import CompletionWording
from pagemill.server.echo import echoed_texts
from pagemill.server.errors import bad_request
from pagemill.server.generation import Generation
from pagemill.server.output_limits import wanted_limits
from pagemill.server.pipeline import GenerationOptions, Pipeline
from pagemill.server.protocol.completion import DEFAULT_MAX_TOKENS, CompletionRequest, prompts
from pagemill.server.protocol.sampling import to_sampling, transfer_params
from pagemill.server.protocol.structured import wanted_output
from pagemill.server.respond import respond
from pagemill.server.state import ServerState


async def create(server: ServerState, body: CompletionRequest, caller: Caller) -> Answer:
    """Continues one or several prompts."""
    pipeline, _ = server.models.resolve(body.model, caller)
    generation, echoes = await _start(pipeline, body, caller)
    name, has_metrics = f"cmpl-{body.request_id}", server.config.enable_per_request_metrics
    wording = CompletionWording(pipeline, body, name, generation, echoes, has_metrics)
    interval = max(server.config.stream_interval, body.stream_interval)
    return await respond(generation, wording, interval if body.stream else None)


async def _start(
    pipeline: Pipeline, request: CompletionRequest, caller: Caller
) -> tuple[Generation, Sequence[str]]:
    """Renders and submits; returns the texts that `echo` repeats, too.

    Raises:
        ApiError: the request cannot be served.
    """
    if request.prompt_logprobs is not None and request.stream:
        raise bad_request("`prompt_logprobs` cannot be streamed.", "prompt_logprobs")
    if request.max_tokens == 0 and not request.echo:
        raise bad_request("`max_tokens` must be at least 1 unless `echo` is set.", "max_tokens")
    prompt_logprobs = request.prompt_logprobs
    if request.echo and prompt_logprobs is None:
        # The engine scores a prompt without generating only to return its logprobs.
        prompt_logprobs = 0 if request.max_tokens == 0 else None
        prompt_logprobs = request.logprobs if request.logprobs is not None else prompt_logprobs
    sampling = to_sampling(
        request,
        logprobs=request.logprobs,
        prompt_logprobs=prompt_logprobs,
        max_logprobs=pipeline.model.max_logprobs,
    )
    rendered, texts = await _render(pipeline, request)
    options = GenerationOptions(
        max_tokens=request.max_tokens,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        truncate_prompt_tokens=request.truncate_prompt_tokens,
        truncation_side=request.truncation_side,
        cache_salt=request.cache_salt or "",
        priority=request.priority,
        timeout_s=request.timeout,
        caller=caller,
        kv_transfer_params=transfer_params(request),
        constraint=wanted_output(request, pipeline.renderer.markers),
        limits=wanted_limits(request),
        search=wanted_search(request, request.best_of),
    )
    generation = await pipeline.generate(rendered, sampling, options)
    if not request.echo:
        return generation, ()
    try:
        rendering, prompts = pipeline.rendering, generation.prompts
        return generation, await echoed_texts(rendering, texts, rendered, prompts)
    except BaseException:
        generation.close()
        raise


async def _render(
    pipeline: Pipeline, request: CompletionRequest
) -> tuple[list[RenderedPrompt], list[str | None]]:
    """The prompts, and their texts if they came as text."""
    sent = prompts(request.prompt)
    pipeline.check_choices(len(sent), max(request.n, request.best_of or 1))
    rendered = await pipeline.rendering.prompts(
        sent, request.add_special_tokens, request.parse_special, "prompt"
    )
    return rendered, [prompt if isinstance(prompt, str) else None for prompt in sent]
