"""Scores of documents for a query, offline: pairs that a classifier reads, and vectors that are
compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pagemill.engine.limits import text_prompt
from pagemill.engine.outputs import EngineError
from pagemill.inputs.late_interaction import LateInteraction
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.scoring import likeness, pair_messages, reads_pairs
from pagemill.inputs.task import Pooled
from pagemill.render.token_id_renderer import AnyRenderer


def rendered_pair(
    renderer: AnyRenderer, query: str, document: str, instruction: str
) -> RenderedPrompt:
    """The prompt by which a classifier reads a query and a document together.

    Raises:
        EngineError: there is an instruction, and no template that takes one.
    """
    if reads_pairs(renderer.chat_template):
        messages = pair_messages(query, document, instruction)
        return text_prompt(renderer.encode_chat(messages), "documents")
    if instruction:
        raise EngineError(
            "INVALID_ARGUMENT",
            "instruction is for models with a chat template for pairs of texts",
        )
    ids, start = renderer.encode_pair(query, document)
    return RenderedPrompt(text_prompt(ids, "documents").token_ids, second_text_start=start)


def compared(
    texts: Sequence[RenderedPrompt],
    rules: LateInteraction,
    pooled: Pooled,
    pool: Callable[[Sequence[RenderedPrompt]], list[np.ndarray]],
) -> np.ndarray:
    """How like each document is to the query, by their vectors: float32 [documents].

    Args:
        texts: the query, and the documents.
        rules: how texts are read whose vectors of tokens are compared.
        pooled: what the model gives.
        pool: gives the rows of prompts.
    """
    query, *documents = (text.token_ids for text in texts)
    read = [rules.query(query), *map(rules.document, documents)]
    first, *others = pool([RenderedPrompt(ids) for ids in read])
    kept = map(rules.kept, read[1:], others)
    return np.array([likeness(first, rows, pooled) for rows in kept], np.float32)
