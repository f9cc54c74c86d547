"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from pagemill.server.admission import read_body, tenant_of
from pagemill.server.completion_wording import CompletionWording
from pagemill.server.disconnect import until_disconnect
from pagemill.server.echo import echoed_texts
from pagemill.server.errors import bad_request
from pagemill.server.event_stream import EventStream
from pagemill.server.generation import Generation
from pagemill.server.pipeline import GenerationOptions, Pipeline
from pagemill.server.protocol.completion import (
    DEFAULT_MAX_TOKENS,
    RULES,
    CompletionRequest,
    prompts,
)
from pagemill.server.protocol.decode import decode_request
from pagemill.server.protocol.sampling import to_sampling
from pagemill.server.request_ids import name_request
from pagemill.server.respond import ResponseEvents, whole_response
from pagemill.server.state import state_of


async def create(request: Request) -> Response:
    """Continues one or several prompts."""
    state = state_of(request)
    body = await read_body(request, state.config.max_body_bytes)
    asked = decode_request(body, CompletionRequest, RULES)
    pipeline = state.pipeline
    pipeline.model.check_name(asked.model)
    pipeline.model.check_generates()
    name = f"cmpl-{name_request(request, asked.request_id)}"
    generation, echoes = await _start(pipeline, asked, request)
    wording = CompletionWording(pipeline, asked, name, generation, echoes)
    if asked.stream:
        interval = max(state.config.stream_interval, asked.stream_interval)
        return EventStream(ResponseEvents(generation, wording, interval))
    response = await until_disconnect(whole_response(generation, wording), request.receive)
    return Response(msgspec.json.encode(response), media_type="application/json")


async def _start(
    pipeline: Pipeline, asked: CompletionRequest, request: Request
) -> tuple[Generation, Sequence[str]]:
    """Renders and submits; returns the texts that `echo` repeats, too.

    Raises:
        ApiError: the request cannot be served.
    """
    if asked.prompt_logprobs is not None and asked.stream:
        raise bad_request("`prompt_logprobs` cannot be streamed.", "prompt_logprobs")
    if asked.max_tokens == 0 and not asked.echo:
        raise bad_request("`max_tokens` must be at least 1 unless `echo` is set.", "max_tokens")
    prompt_logprobs = asked.prompt_logprobs
    if asked.echo and prompt_logprobs is None:
        # The engine scores a prompt without generating only for the sake of its logprobs.
        prompt_logprobs = 0 if asked.max_tokens == 0 else None
        prompt_logprobs = asked.logprobs if asked.logprobs is not None else prompt_logprobs
    sampling = to_sampling(
        asked,
        logprobs=asked.logprobs,
        prompt_logprobs=prompt_logprobs,
        max_logprobs=pipeline.model.max_logprobs,
    )
    token_ids, texts = await _render(pipeline, asked, request.receive)
    options = GenerationOptions(
        max_tokens=asked.max_tokens,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        truncate_prompt_tokens=asked.truncate_prompt_tokens,
        truncation_side=asked.truncation_side,
        cache_salt=asked.cache_salt or "",
        priority=asked.priority,
        tenant=tenant_of(request),
    )
    generation = await pipeline.generate(token_ids, sampling, options)
    if not asked.echo:
        return generation, ()
    try:
        rendering, prompts = pipeline.rendering, generation.prompts
        return generation, await echoed_texts(rendering, texts, token_ids, prompts)
    except BaseException:
        generation.close()
        raise


async def _render(
    pipeline: Pipeline, asked: CompletionRequest, receive: Receive
) -> tuple[list[list[int]], list[str | None]]:
    """Token ids of the prompts, and their texts if they came as text."""
    asked_prompts = prompts(asked.prompt)
    pipeline.check_choices(len(asked_prompts), asked.n)
    token_ids = await pipeline.rendering.token_ids(
        asked_prompts, asked.add_special_tokens, asked.parse_special, "prompt", receive
    )
    texts = [prompt if isinstance(prompt, str) else None for prompt in asked_prompts]
    return token_ids, texts
