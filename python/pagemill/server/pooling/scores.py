"""How well documents fit queries, by the task of the model.

- A classifier with one class reads a query and a document together (cross-encoder), as a pair, or
  as its template for pairs writes them.
- Vectors of both, or of their tokens, are compared (bi-encoder, late interaction). They are of
  texts as they are, or of what the chat template writes, if it is one for pairs or there are media.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.scoring import (
    ROLES,
    activated,
    ends_texts,
    likeness,
    pair_messages,
    reads_pairs,
)
from pagemill.inputs.task import Pooled, Task
from pagemill.render.tokenizer import TextLimits
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.pipeline import MAX_POOLED_NUMBERS, Pipeline
from pagemill.server.pooling.contents import (
    Chat,
    Content,
    Contents,
    pool_chats,
    text_of,
    with_media,
)

Take = Callable[[int, np.ndarray], None]
"""Gets the index and the rows of a prompt."""


class Reading(NamedTuple):
    """How a cross-encoder is asked: without `use_activation` it gives logits; `instruction` is for
    its template, and `variables` are those of any chat template."""

    use_activation: bool = True
    instruction: str = ""
    variables: Mapping[str, Any] = {}


class Scores(NamedTuple):
    """A score for each document, and the number of tokens that the model read."""

    values: list[float]
    num_tokens: int


async def score(
    pipeline: Pipeline,
    queries: Contents,
    documents: Contents,
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
    for_pairs = reads_pairs(pipeline.renderer.chat_template)
    classifies = pooled.task is Task.CLASSIFY
    if reading.instruction and not (classifies and for_pairs):
        raise bad_request(
            "`instruction` is for classifiers with a chat template for pairs of texts: write it in"
            " the query, or start the server with --chat-template.",
            "instruction",
        )
    by_template = for_pairs or (not classifies and (queries.has_parts or documents.has_parts))
    if reading.variables and not by_template:
        raise bad_request(
            "`chat_template_kwargs` are variables of a chat template, and none writes this request:"
            " leave them out.",
            "chat_template_kwargs",
        )
    if not classifies and by_template:
        return await _compared_chats(pipeline, pooled, queries, documents, options, reading)
    if not classifies:
        return await _compared(pipeline, pooled, queries, documents, options)
    _check_classes(pooled)
    read = _by_template if for_pairs else _together
    logits = [0.0] * len(documents.contents)

    def take(index: int, rows: np.ndarray) -> None:
        logits[index] = float(rows[0])

    options = replace(options, param=documents.param)
    num_tokens = await read(pipeline, queries, documents, options, reading, take)
    if not reading.use_activation:
        return Scores(logits, num_tokens)
    return Scores(activated(np.array(logits), pooled.activation).tolist(), num_tokens)


def _check_classes(pooled: Pooled) -> None:
    if pooled.width != 1:
        raise ApiError(
            400,
            f"The model has {pooled.width} classes, and a score needs a model with one: use"
            " /classify.",
            "model",
        )


def _index_of_query(queries: Contents, index: int) -> int:
    """The query of a document."""
    return index if len(queries.contents) > 1 else 0


async def _together(
    pipeline: Pipeline,
    queries: Contents,
    documents: Contents,
    options: GenerationOptions,
    reading: Reading,
    take: Take,
) -> int:
    """Pools each pair of texts with the tokens that the tokenizer puts around them."""
    del reading
    for contents in (queries, documents):
        if contents.has_parts:
            raise bad_request(
                f"`{contents.param}` has parts, which need a chat template for pairs: send texts,"
                " or start the server with --chat-template.",
                contents.param,
            )
    if options.truncation_side == "left" and options.truncate_prompt_tokens is not None:
        raise bad_request(
            "`truncation_side` must be right: a pair of texts is cut at the end of the second.",
            "truncation_side",
        )
    longest = pipeline.longest_prompt(options)
    limits = TextLimits(longest, queries.most_tokens, documents.most_tokens)
    pairs = [
        (queries.texts[_index_of_query(queries, index)], document)
        for index, document in enumerate(documents.texts)
    ]
    prompts = await pipeline.rendering.pairs(pairs, documents.param, limits)
    return await pipeline.pool_each(prompts, options, take)


async def _by_template(
    pipeline: Pipeline,
    queries: Contents,
    documents: Contents,
    options: GenerationOptions,
    reading: Reading,
    take: Take,
) -> int:
    """Pools each pair as the model's template writes it."""
    queries = await _shortened(pipeline, queries)
    documents = await _shortened(pipeline, documents)
    at = [_index_of_query(queries, index) for index in range(len(documents.contents))]
    asked, texts = ([text_of(each) for each in side.contents] for side in (queries, documents))
    pairs = [(asked[query], text) for query, text in zip(at, texts, strict=True)]
    pipeline.rendering.check_pairs(pairs, documents.param)
    firsts = [
        Chat(pair_messages(query, "")[:1], [queries.field(index)])
        for index, query in enumerate(queries.contents)
    ]
    if len(firsts) == 1:  # its media are read once
        firsts[0] = await with_media(pipeline, firsts[0], options)
    instructed = ["instruction"] if reading.instruction else []
    chats: list[Chat] = []
    for index, document in enumerate(documents.contents):
        query, first = queries.contents[at[index]], firsts[at[index]]
        fields = [*instructed, *first.fields, documents.field(index)]
        messages = pair_messages(query, document, reading.instruction)
        chats.append(Chat(messages, fields, first.read))
    return await pool_chats(pipeline, chats, options, take, variables=reading.variables)


async def _shortened(pipeline: Pipeline, contents: Contents) -> Contents:
    """The first tokens of each text if there is a limit."""
    most = contents.most_tokens
    if most is None:
        return contents
    prompts = await pipeline.rendering.prompts(
        contents.texts, False, False, contents.param, keeps_head=True
    )
    texts: list[Content] = []
    for text, prompt in zip(contents.texts, prompts, strict=True):
        ids = prompt.token_ids[:most].tolist()
        is_whole = len(ids) == len(prompt)
        texts.append(text if is_whole else await pipeline.rendering.decode(ids, False))
    return contents._replace(contents=texts)


class _Comparison:
    """Compares documents with queries as soon as there are vectors of them: those of all queries
    are kept."""

    def __init__(self, pooled: Pooled, queries: Contents, documents: Contents) -> None:
        self.values = [0.0] * len(documents.contents)
        self._pooled, self._queries = pooled, queries
        self._found: dict[int, np.ndarray] = {}
        self._numbers = 0

    def keep(self, index: int, rows: np.ndarray) -> None:
        """Takes the rows of a query.

        Raises:
            ApiError: 400: there are too many of all.
        """
        self._found[index] = rows
        self._numbers += rows.size
        if self._numbers > MAX_POOLED_NUMBERS:
            param, most = self._queries.param, MAX_POOLED_NUMBERS // self._pooled.width
            raise bad_request(
                f"`{param}` has more than the {most} tokens that are compared at a time: send"
                " fewer.",
                param,
            )

    def compare(self, index: int, rows: np.ndarray) -> None:
        """Takes the rows of a document; the queries' have been taken."""
        query = self._found[_index_of_query(self._queries, index)]
        self.values[index] = likeness(query, rows, self._pooled)


async def _compared(
    pipeline: Pipeline,
    pooled: Pooled,
    queries: Contents,
    documents: Contents,
    options: GenerationOptions,
) -> Scores:
    """By vectors of texts as they are."""
    rules, comparison = pipeline.late_interaction, _Comparison(pooled, queries, documents)
    query_prompts = await _rendered(pipeline, queries, options, rules.query)
    document_prompts = await _rendered(pipeline, documents, options, rules.document)

    def compare_kept(index: int, rows: np.ndarray) -> None:
        comparison.compare(index, rules.kept(document_prompts[index].token_ids, rows))

    num_tokens = await pipeline.pool_each(
        query_prompts, replace(options, param=queries.param), comparison.keep
    )
    num_tokens += await pipeline.pool_each(
        document_prompts, replace(options, param=documents.param), compare_kept
    )
    return Scores(comparison.values, num_tokens)


async def _compared_chats(
    pipeline: Pipeline,
    pooled: Pooled,
    queries: Contents,
    documents: Contents,
    options: GenerationOptions,
    reading: Reading,
) -> Scores:
    """By vectors of chats, one of each query and each document."""
    comparison = _Comparison(pooled, queries, documents)
    adds_special_tokens = ends_texts(pipeline.renderer.encode)
    for_pairs, num_tokens = reads_pairs(pipeline.renderer.chat_template), 0
    for role, contents, take in zip(
        ROLES if for_pairs else ("user", "user"),
        (queries, documents),
        (comparison.keep, comparison.compare),
        strict=True,
    ):
        contents = await _shortened(pipeline, contents)
        chats = [
            Chat([{"role": role, "content": content}], [contents.field(index)])
            for index, content in enumerate(contents.contents)
        ]
        num_tokens += await pool_chats(
            pipeline,
            chats,
            replace(options, param=contents.param),
            take,
            add_special_tokens=adds_special_tokens,
            variables=reading.variables,
        )
    return Scores(comparison.values, num_tokens)


async def _rendered(
    pipeline: Pipeline,
    contents: Contents,
    options: GenerationOptions,
    as_read: Callable[[np.ndarray], np.ndarray],
) -> list[RenderedPrompt]:
    longest = pipeline.longest_prompt(options) if options.truncation_side == "right" else None
    if longest is not None:
        longest = max(1, longest - pipeline.late_interaction.added_tokens)
    prompts = await pipeline.rendering.pairs(
        [(text, None) for text in contents.texts],
        contents.param,
        TextLimits(longest, contents.most_tokens),
    )
    return [RenderedPrompt(as_read(prompt.token_ids)) for prompt in prompts]
