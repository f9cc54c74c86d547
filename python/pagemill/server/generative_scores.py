"""How likely a generating model is to continue a query and an item with a label.

A label is scored by a request of one token that may be no other: its log probability is that of the
model's unmodified distribution. The first label computes the prompts; the prefix cache has them for
the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagemill.config.sampling import LOGPROBS_MODES
from pagemill.engine.outputs import TokenLogprobs
from pagemill.engine.sampling import SamplingParams
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.access.caller import Caller
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.generation import Generation
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.output_limits import OutputLimits
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.generative_score import GenerativeScoreRequest
from pagemill.server.protocol.usage import PromptTokensDetails, Usage
from pagemill.server.rendering import MAX_PAIR_CHARS
from pagemill.server.respond import FoldedChoice, read_all

_ONE_TOKEN = SamplingParams(
    temperature=0.0, logprobs=0, ignore_eos=True, logprobs_mode=LOGPROBS_MODES[0]
)


async def label_logprobs(
    pipeline: Pipeline, body: GenerativeScoreRequest, caller: Caller
) -> tuple[np.ndarray, Usage]:
    """The log probability of each label that a score needs, float64 [labels, items], and the tokens
    of all requests: without softmax only of the first label.

    Raises:
        ApiError: the request cannot be served.
    """
    labels = _labels(body, pipeline.model.vocab_size)
    pipeline.check_choices(len(body.items), 1, "items")
    _check_size(body, pipeline.model.max_model_len)
    deadline = pipeline.deadline(body.timeout, caller)
    prompts = await _prompts(pipeline, body)
    charge = caller.charge(len(labels) * sum(len(prompt) + 1 for prompt in prompts))
    options = GenerationOptions(
        max_tokens=1,
        default_max_tokens=None,
        cache_salt=body.cache_salt or "",
        priority=body.priority,
        deadline=deadline,
        caller=replace(caller, admitted=None),  # charged above, for all labels at once
        param="items",
    )
    rows: list[list[float]] = []
    usage = Usage(0, 0, 0, PromptTokensDetails(0))
    try:
        for label in labels:
            limited = replace(options, limits=OutputLimits(allowed_token_ids=(label,)))
            generation = await pipeline.generate(prompts, _ONE_TOKEN, limited)
            try:
                rows.append([entry.logprob for entry in await next_tokens(generation)])
            finally:
                generation.close()
                usage = _sum(usage, generation.usage)
    finally:
        charge.settle(usage.total_tokens)
    return np.array(rows), usage


def scores(logprobs: np.ndarray, *, apply_softmax: bool) -> list[float]:
    """The probability of the first label, for each item: among the labels with `apply_softmax`,
    otherwise among all tokens. `logprobs`: [labels, items]."""
    if not apply_softmax:
        return np.exp(logprobs[0]).tolist()
    weights = np.exp(logprobs - logprobs.max(axis=0))
    return (weights[0] / weights.sum(axis=0)).tolist()


def _labels(body: GenerativeScoreRequest, vocab_size: int) -> list[int]:
    labels = body.label_token_ids
    unknown = [label for label in labels if label >= vocab_size]
    if unknown:
        raise bad_request(
            f"`label_token_ids` has {unknown[0]}; the vocabulary has {vocab_size} tokens.",
            "label_token_ids",
        )
    if len(set(labels)) < len(labels):
        raise bad_request("`label_token_ids` has a label twice.", "label_token_ids")
    return labels if body.apply_softmax else labels[:1]


def _check_size(body: GenerativeScoreRequest, max_model_len: int) -> None:
    """Refuses what is too much with the query joined to each item."""
    if isinstance(body.query, list) and len(body.query) > max_model_len:
        raise bad_request(
            f"`query` has {len(body.query)} tokens; the model's maximum context length is"
            f" {max_model_len}.",
            "query",
        )
    size = len(body.items) * len(body.query) + sum(map(len, body.items))
    if size > MAX_PAIR_CHARS:
        unit = "characters" if isinstance(body.query, str) else "tokens"
        raise bad_request(
            f"`items`, each with the query, have {size} {unit}; at most {MAX_PAIR_CHARS} are read"
            " at a time: send fewer items.",
            "items",
        )


async def _prompts(pipeline: Pipeline, body: GenerativeScoreRequest) -> list[RenderedPrompt]:
    """Each item behind the query, or in front of it."""
    prompts: list[str | list[int]] = []
    for index, item in enumerate(body.items):
        first, second = (item, body.query) if body.item_first else (body.query, item)
        match first, second:
            case str(), str():
                prompts.append(first + second)
            case list(), list():
                prompts.append(first + second)
            case _:
                raise bad_request(
                    f"`items[{index}]` and `query` must both be texts, or both token ids.", "items"
                )
    return await pipeline.rendering.prompts(prompts, body.add_special_tokens, False, "items")


async def next_tokens(generation: Generation) -> list[TokenLogprobs]:
    """The log probabilities of the only token of each choice.

    Raises:
        ApiError: the generation failed, or 503: the server ended it.
    """
    choices = [FoldedChoice(index) for index in range(generation.num_choices)]
    await read_all(generation, lambda delta: choices[delta.index].add(delta))
    if generation.failure is not None:
        raise generation.failure
    if not all(choice.logprobs for choice in choices):
        raise ApiError(503, "The server ended the request before all of it was read; try again.")
    return [choice.logprobs[0] for choice in choices]


def _sum(one: Usage, other: Usage) -> Usage:
    cached = one.prompt_tokens_details.cached_tokens + other.prompt_tokens_details.cached_tokens
    return Usage(
        one.prompt_tokens + other.prompt_tokens,
        one.completion_tokens + other.completion_tokens,
        one.total_tokens + other.total_tokens,
        PromptTokensDetails(cached),
    )
