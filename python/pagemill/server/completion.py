"""A completion as a generation: what every endpoint that continues prompts begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from pagemill.engine.async_engine import Prompt
from pagemill.engine.limits import check_prompt
from pagemill.engine.outputs import EngineError
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.access.caller import Caller
from pagemill.server.choice_search import wanted_search
from pagemill.server.echo import echoed_texts
from pagemill.server.errors import bad_request, from_engine
from pagemill.server.generation import Generation
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.grammar.constraint import Constraint
from pagemill.server.infill import infill_prompts, with_ends_of_middles
from pagemill.server.output_limits import wanted_limits
from pagemill.server.pipeline import Pipeline
from pagemill.server.prompt_embeds import PARAM
from pagemill.server.protocol.completion import DEFAULT_MAX_TOKENS, CompletionRequest, prompts
from pagemill.server.protocol.sampling import to_sampling, transfer_params
from pagemill.server.protocol.structured import wanted_output
from pagemill.structured.grammar import Reasoning


async def start_completion(
    pipeline: Pipeline,
    request: CompletionRequest,
    caller: Caller,
    *,
    param: str = "prompt",
    reasoning: Reasoning | None = None,
) -> tuple[Generation, Sequence[str]]:
    """Renders and submits; returns the texts that `echo` repeats, too. `param` is the field that
    the prompts came from. `reasoning` is what a structured output may have in front.

    Raises:
        ApiError: the request cannot be served.
    """
    if request.prompt_logprobs is not None and request.stream:
        raise bad_request("`prompt_logprobs` cannot be streamed.", "prompt_logprobs")
    if request.suffix:
        request = with_ends_of_middles(pipeline, request)
    if request.max_tokens == 0 and not request.echo:
        raise bad_request("`max_tokens` must be at least 1 unless `echo` is set.", "max_tokens")
    _check_echo(pipeline, request)
    prompt_logprobs = request.prompt_logprobs
    if request.echo and prompt_logprobs is None:
        # The engine scores a prompt without generating only to return its logprobs; in the lists
        # of `logprobs` the prompt's tokens come first.
        is_scored = request.max_tokens == 0 or bool(request.logprob_token_ids)
        prompt_logprobs = 0 if is_scored else None
        prompt_logprobs = request.logprobs if request.logprobs is not None else prompt_logprobs
    if request.embeds:
        _check_embeds(request, prompt_logprobs)
        param = param if request.prompt is not None else PARAM
    sampling = to_sampling(
        request,
        logprobs=request.logprobs,
        prompt_logprobs=prompt_logprobs,
        max_logprobs=pipeline.model.max_logprobs,
    )
    rendered, texts = await rendered_prompts(pipeline, request, param)
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
        constraint=_constraint(pipeline, request, reasoning),
        limits=wanted_limits(request),
        search=wanted_search(request, request.best_of),
        param=param,
        decoder=await _decoder_tokens(pipeline, request),
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


def _check_echo(pipeline: Pipeline, request: CompletionRequest) -> None:
    is_cut = request.truncate_prompt_tokens is not None
    if request.echo and is_cut and pipeline.model.encoder_text is not None:
        raise bad_request(
            "`echo`: what an encoder-decoder reads is not repeated if it is cut; leave out"
            " `truncate_prompt_tokens`.",
            "echo",
        )


def _constraint(
    pipeline: Pipeline, request: CompletionRequest, reasoning: Reasoning | None
) -> Constraint | None:
    found = wanted_output(request, pipeline.renderer.markers, pipeline.engine.eos_token_ids)
    if found is None or reasoning is None:
        return found
    return replace(found, grammar=msgspec.structs.replace(found.grammar, reasoning=reasoning))


def as_rendered(pipeline: Pipeline, request: CompletionRequest) -> CompletionRequest:
    """`request` as it is rendered alone.

    Raises:
        ApiError: 400: it cannot be.
    """
    if request.suffix:
        request = with_ends_of_middles(pipeline, request)
    if request.max_tokens == 0:
        raise bad_request("`max_tokens` must be at least 1.", "max_tokens")
    if request.embeds:
        raise bad_request("`prompt_embeds` has no tokens.", "prompt_embeds")
    return request


async def fitted_prompts(
    pipeline: Pipeline, request: CompletionRequest
) -> tuple[list[Prompt], GenerationOptions]:
    """The prompts of what `as_rendered` returned, and the options by which they were cut.

    Raises:
        ApiError: 400: one does not fit, or an encoder reads it.
    """
    rendered, _ = await rendered_prompts(pipeline, request)
    options = GenerationOptions(
        max_tokens=request.max_tokens,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        truncate_prompt_tokens=request.truncate_prompt_tokens,
        truncation_side=request.truncation_side,
        decoder=await _decoder_tokens(pipeline, request),
    )
    fitted = pipeline.fit(rendered, options)
    if any(prompt.rendered.media for prompt in fitted):
        raise bad_request(
            "prompts of an encoder-decoder cannot be rendered: token ids do not say what its"
            " encoder reads.",
            "prompt",
        )
    return fitted, options


async def _decoder_tokens(pipeline: Pipeline, request: CompletionRequest) -> list[int]:
    """Those of `decoder_prompt`; none if it is not sent.

    Raises:
        ApiError: 400: the model has no encoder, or its decoder cannot begin with that.
    """
    sent, param = request.decoder_prompt, "decoder_prompt"
    if not sent:
        return []
    text = pipeline.model.encoder_text
    if text is None:
        raise bad_request(
            f"`{param}`: this model is no encoder-decoder; send all of it as `prompt`.", param
        )
    (prompt,) = await pipeline.rendering.prompts(
        [sent], add_special_tokens=False, parse_special=True, param=param
    )
    if len(prompt) >= text.decoder_tokens:
        raise bad_request(
            f"`{param}` has {len(prompt)} tokens; the decoder of this model has"
            f" {text.decoder_tokens}, with those that it generates.",
            param,
        )
    try:
        check_prompt(prompt, pipeline.model.vocab_size, param)
    except EngineError as error:
        raise from_engine(error) from error
    return prompt.token_ids.tolist()


async def rendered_prompts(
    pipeline: Pipeline, request: CompletionRequest, param: str = "prompt"
) -> tuple[list[RenderedPrompt], list[str | None]]:
    """The prompts, those that are embeddings first, and their texts if they came as text.

    Raises:
        ApiError: 400 that names `param`, or `prompt_embeds`, or `suffix`.
    """
    embeds = request.embeds
    sent = prompts(request.prompt, param) if request.prompt is not None or not embeds else []
    pipeline.check_choices(len(embeds) + len(sent), max(request.n, request.best_of or 1))
    if request.suffix:
        return await infill_prompts(pipeline, request, sent), [None for _ in sent]
    rendered = await pipeline.embeds(embeds) if embeds else []
    rendered += await pipeline.rendering.prompts(
        sent, request.add_special_tokens, request.parse_special, param
    )
    texts = [prompt if isinstance(prompt, str) else None for prompt in sent]
    return rendered, [*(None for _ in embeds), *texts]


def _check_embeds(request: CompletionRequest, prompt_logprobs: int | None) -> None:
    """Raises a 400 ApiError for what needs the tokens of prompts that are embeddings."""
    for name, wanted in (("echo", request.echo), ("prompt_logprobs", prompt_logprobs is not None)):
        if wanted:
            raise bad_request(
                f"`{name}` needs the tokens of prompts, and `{PARAM}` has none.", name
            )
