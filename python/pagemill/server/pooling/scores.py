"""How well documents fit queries, by the task of the model.

- A classifier with one class reads a query and a document together (cross-encoder), as a pair, or
  as its template for pairs writes them.
- Vectors of both, or of their tokens, are compared (bi-encoder, late interaction).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.scoring import activated, likeness, pair_messages, reads_pairs
from pagemill.inputs.task import Pooled, Task
from pagemill.render.tokenizer import TextLimits
from pagemill.server.chat import rendered_prompt
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.pipeline import GenerationOptions, Pipeline
from pagemill.server.protocol.chat import ChatRequest


class Texts(NamedTuple):
    """Texts of a request, the field that they came from, and the most tokens of each; None = all
    that fit."""

    texts: Sequence[str]
    param: str
    most_tokens: int | None = None


class Reading(NamedTuple):
    """How a cross-encoder is asked: without `use_activation` it gives logits; `instruction` is for
    its template."""

    use_activation: bool = True
    instruction: str = ""


class Scores(NamedTuple):
    """A score for each document, and the number of tokens that the model read."""

    values: list[float]
    num_tokens: int


async def score(
    pipeline: Pipeline,
    queries: Texts,
    documents: Texts,
    options: GenerationOptions,
    reading: Reading,
) -> Scores:
    """Scores each document by the query of its index, or by the only one.

    Args:
        pipeline: of a model for one of the three.
        queries: one, or as many as documents.
        documents: what is scored.
        options: of the request; `param` is not read.
        reading: of a cross-encoder.

    Raises:
        ApiError: the request cannot be served.
    """
    pooled = pipeline.model.pooled
    assert pooled is not None, "the routes are of models that pool"
    by_template = pooled.task is Task.CLASSIFY and reads_pairs(pipeline.renderer.chat_template)
    if reading.instruction and not by_template:
        raise bad_request(
            "`instruction` is for models with a chat template for pairs of texts: write it in the"
            " query, or start the server with --chat-template.",
            "instruction",
        )
    if pooled.task is Task.CLASSIFY:
        pairs = _pairs(pooled, queries, documents)
        if by_template:
            prompts = await _by_template(pipeline, pairs, queries, documents, options, reading)
        else:
            prompts = await _together(pipeline, pairs, queries, documents, options)
        rows, num_tokens = await pipeline.pool(prompts, replace(options, param=documents.param))
        scores = Scores([float(row[0]) for row in rows], num_tokens)
        if not reading.use_activation:
            return scores
        values = activated(np.array(scores.values), pooled.activation)
        return Scores(values.tolist(), scores.num_tokens)
    return await _compared(pipeline, pooled, queries, documents, options)


def _pairs(pooled: Pooled, queries: Texts, documents: Texts) -> list[tuple[str, str]]:
    if pooled.width != 1:
        raise ApiError(
            400,
            f"The model has {pooled.width} classes, and a score needs a model with one: use"
            " /classify.",
            "model",
        )
    several = len(queries.texts) > 1
    return [
        (queries.texts[index if several else 0], document)
        for index, document in enumerate(documents.texts)
    ]


async def _together(
    pipeline: Pipeline,
    pairs: Sequence[tuple[str, str]],
    queries: Texts,
    documents: Texts,
    options: GenerationOptions,
) -> list[RenderedPrompt]:
    """Each pair with the tokens that the tokenizer puts around two texts."""
    if options.truncation_side == "left" and options.truncate_prompt_tokens is not None:
        raise bad_request(
            "`truncation_side` must be right: a pair of texts is cut at the end of the second.",
            "truncation_side",
        )
    longest = pipeline.longest_prompt(options)
    limits = TextLimits(longest, queries.most_tokens, documents.most_tokens)
    return await pipeline.rendering.pairs(pairs, documents.param, limits)


async def _by_template(
    pipeline: Pipeline,
    pairs: Sequence[tuple[str, str]],
    queries: Texts,
    documents: Texts,
    options: GenerationOptions,
    reading: Reading,
) -> list[RenderedPrompt]:
    """Each pair as the model's template writes it."""
    if options.truncate_prompt_tokens is not None:
        raise bad_request(
            "`truncate_prompt_tokens` would cut the end of the template: use `max_tokens_per_doc`.",
            "truncate_prompt_tokens",
        )
    pipeline.rendering.check_pairs(pairs, documents.param)
    prompts: list[RenderedPrompt] = []
    for query, document in pairs:
        messages = pair_messages(
            await _shortened(pipeline, query, queries),
            await _shortened(pipeline, document, documents),
            reading.instruction,
        )
        request = ChatRequest(messages=messages)
        prompts.append(await rendered_prompt(pipeline.rendering, request, options.caller))
    return prompts


async def _shortened(pipeline: Pipeline, text: str, texts: Texts) -> str:
    """The first tokens of `text` if there is a limit."""
    if texts.most_tokens is None:
        return text
    (prompt,) = await pipeline.rendering.prompts([text], False, False, texts.param, keeps_head=True)
    ids = prompt.token_ids[: texts.most_tokens].tolist()
    return text if len(ids) == len(prompt) else await pipeline.rendering.decode(ids, False)


async def _compared(
    pipeline: Pipeline,
    pooled: Pooled,
    queries: Texts,
    documents: Texts,
    options: GenerationOptions,
) -> Scores:
    rules = pipeline.late_interaction
    query_prompts = await _rendered(pipeline, queries, options, rules.query)
    document_prompts = await _rendered(pipeline, documents, options, rules.document)
    found, num_tokens = await pipeline.pool(query_prompts, replace(options, param=queries.param))
    values = [0.0] * len(documents.texts)

    def take(index: int, rows: np.ndarray) -> None:
        kept = rules.kept(document_prompts[index].token_ids, rows)
        values[index] = likeness(found[index if len(found) > 1 else 0], kept, pooled)

    num_tokens += await pipeline.pool_each(
        document_prompts, replace(options, param=documents.param), take
    )
    return Scores(values, num_tokens)


async def _rendered(
    pipeline: Pipeline,
    texts: Texts,
    options: GenerationOptions,
    as_read: Callable[[np.ndarray], np.ndarray],
) -> list[RenderedPrompt]:
    longest = pipeline.longest_prompt(options) if options.truncation_side == "right" else None
    if longest is not None:
        longest = max(1, longest - pipeline.late_interaction.added_tokens)
    prompts = await pipeline.rendering.pairs(
        [(text, None) for text in texts.texts], texts.param, TextLimits(longest, texts.most_tokens)
    )
    return [RenderedPrompt(as_read(prompt.token_ids)) for prompt in prompts]
