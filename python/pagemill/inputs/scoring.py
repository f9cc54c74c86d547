"""Numbers that a model gives for queries and documents, made scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pagemill.inputs.task import Activation, Pooled

_LEAST_NORM = 1e-12
Content = str | Sequence[Any]
"""A text, or the parts of a message."""


def activated(logits: np.ndarray, activation: Activation) -> np.ndarray:
    """Scores of a classifier from its logits [..., classes]."""
    if activation == "softmax":
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)
    if activation == "sigmoid":
        return np.exp(-np.logaddexp(0, -logits))  # large logits do not overflow
    if activation == "relu":
        return np.maximum(logits, 0)
    return logits


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Vectors [..., width] of the length 1."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, _LEAST_NORM)


def likeness(query: np.ndarray, document: np.ndarray, pooled: Pooled) -> float:
    """How well a document fits a query, by rows of a model that gives what `pooled` says.

    Of vectors [width] the cosine of their angle, or if they are sparse their product. Of vectors of
    tokens [tokens, width] the largest product of each of the query with one of the document, in
    sum: late interaction (arXiv 2004.12832).
    """
    if pooled.sparse:
        return float(query @ document)
    if query.ndim == 1:
        return float(normalized(query) @ normalized(document))
    return float((query @ document.T).max(axis=1).sum())


ROLES = ("query", "document")
"""Those of a chat template for pairs. One that embeds gets each in a chat of its own."""


def reads_pairs(template: str | None) -> bool:
    """Whether a chat template is one for pairs of texts: it has messages of the roles `query` and
    `document`."""
    return template is not None and all(
        f'"{role}"' in template or f"'{role}'" in template for role in ROLES
    )


def ends_texts(encode: Callable[[str, bool], Sequence[int]]) -> bool:
    """Whether a tokenizer adds tokens behind texts and none in front of them: the last one is what
    a model embeds, of chats, too. `encode` has the token ids of a text, with special tokens or
    without."""
    bare, whole = list(encode("a", False)), list(encode("a", True))
    return len(whole) > len(bare) and whole[: len(bare)] == bare


def pair_messages(query: Content, document: Content, instruction: str = "") -> list[dict[str, Any]]:
    """What such a template takes; an instruction is the system's message."""
    pair = zip(ROLES, (query, document), strict=True)
    messages: list[dict[str, Any]] = [{"role": role, "content": each} for role, each in pair]
    return [{"role": "system", "content": instruction}, *messages] if instruction else messages
