"""How well documents fit queries, by the task of the model.

- A classifier with one class reads a query and a document together (cross-encoder).
- Vectors of both, or of their tokens, are compared (bi-encoder, late interaction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.scoring import activated, likeness
from pagemill.inputs.task import Pooled, Task
from pagemill.render.tokenizer import TextLimits
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.pipeline import GenerationOptions, Pipeline


class Texts(NamedTuple):
    """Texts of a request, the field that they came from, and the most tokens of each; None = all
    that fit."""

    texts: Sequence[str]
    param: str
    most_tokens: int | None = None


class Scores(NamedTuple):
    """A score for each document, and the number of tokens that the model read."""

    values: list[float]
    num_tokens: int


async def score(
    pipeline: Pipeline,
    queries: Texts,
    documents: Texts,
    options: GenerationOptions,
    *,
    use_activation: bool,
) -> Scores:
    """Scores each document by the query of its index, or by the only one.

    Args:
        pipeline: of a model for one of the three.
        queries: one, or as many as documents.
        documents: what is scored.
        options: of the request; `param` is not read.
        use_activation: False leaves a cross-encoder's logits as they are.

    Raises:
        ApiError: the request cannot be served.
    """
    pooled = pipeline.model.pooled
    assert pooled is not None, "the routes are of models that pool"
    if pooled.task is Task.CLASSIFY:
        scores = await _read_together(pipeline, pooled, queries, documents, options)
        if not use_activation:
            return scores
        values = activated(np.array(scores.values), pooled.activation)
        return Scores(values.tolist(), scores.num_tokens)
    return await _compared(pipeline, pooled, queries, documents, options)


async def _read_together(
    pipeline: Pipeline,
    pooled: Pooled,
    queries: Texts,
    documents: Texts,
    options: GenerationOptions,
) -> Scores:
    if pooled.width != 1:
        raise ApiError(
            400,
            f"The model has {pooled.width} classes, and a score needs a model with one: use"
            " /classify.",
            "model",
        )
    if options.truncation_side == "left" and options.truncate_prompt_tokens is not None:
        raise bad_request(
            "`truncation_side` must be right: a pair of texts is cut at the end of the second.",
            "truncation_side",
        )
    several = len(queries.texts) > 1
    pairs = await pipeline.rendering.pairs(
        [
            (queries.texts[index if several else 0], document)
            for index, document in enumerate(documents.texts)
        ],
        documents.param,
        TextLimits(pipeline.longest_prompt(options), queries.most_tokens, documents.most_tokens),
    )
    rows, num_tokens = await pipeline.pool(pairs, replace(options, param=documents.param))
    return Scores([float(row[0]) for row in rows], num_tokens)


async def _compared(
    pipeline: Pipeline,
    pooled: Pooled,
    queries: Texts,
    documents: Texts,
    options: GenerationOptions,
) -> Scores:
    query_prompts = await _rendered(pipeline, queries, options)
    document_prompts = await _rendered(pipeline, documents, options)
    found, num_tokens = await pipeline.pool(query_prompts, replace(options, param=queries.param))
    values = [0.0] * len(documents.texts)

    def take(index: int, rows: np.ndarray) -> None:
        values[index] = likeness(found[index if len(found) > 1 else 0], rows, pooled)

    num_tokens += await pipeline.pool_each(
        document_prompts, replace(options, param=documents.param), take
    )
    return Scores(values, num_tokens)


async def _rendered(
    pipeline: Pipeline, texts: Texts, options: GenerationOptions
) -> list[RenderedPrompt]:
    cut_at_end = options.truncation_side == "right"
    longest = pipeline.longest_prompt(options) if cut_at_end else None
    return await pipeline.rendering.pairs(
        [(text, None) for text in texts.texts], texts.param, TextLimits(longest, texts.most_tokens)
    )
