"""Numbers that a model gives for texts, made scores."""

from __future__ import annotations

import numpy as np

from pagemill.inputs.task import Activation, Pooled

_LEAST_NORM = 1e-12


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


_ROLES = ("query", "document")


def reads_pairs(template: str | None) -> bool:
    """Whether a chat template is one for pairs of texts: it has messages of the roles `query` and
    `document`."""
    return template is not None and all(
        f'"{role}"' in template or f"'{role}'" in template for role in _ROLES
    )


def pair_messages(query: str, document: str, instruction: str = "") -> list[dict[str, str]]:
    """What such a template takes; an instruction is the system's message."""
    pair = zip(_ROLES, (query, document), strict=True)
    messages = [{"role": role, "content": text} for role, text in pair]
    return [{"role": "system", "content": instruction}, *messages] if instruction else messages
