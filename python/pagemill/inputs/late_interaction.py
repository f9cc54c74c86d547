"""How a model with vectors of tokens reads queries and documents (ColBERT, arXiv 2004.12832).

query = rules.query(token_ids)
rows = rules.kept(document_ids, rows)  # those that are compared
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class LateInteraction:
    """What a checkpoint says of its texts; by default they are read as they are."""

    query_prefix: int | None = None
    """Token behind the first one of a query."""
    document_prefix: int | None = None
    """The same of a document."""
    mask: int | None = None
    """Token that fills queries up to `query_length`; None: they keep their length."""
    query_length: int = 0
    skipped: frozenset[int] = frozenset()
    """Tokens of documents that are read, but not compared: punctuation."""

    @property
    def added_tokens(self) -> int:
        """The most tokens that are added to a text that fits the context."""
        return int(self.query_prefix is not None or self.document_prefix is not None)

    def query(self, token_ids: np.ndarray) -> np.ndarray:
        """The tokens [tokens] of a query, as the model reads them."""
        found = _prefixed(token_ids, self.query_prefix)
        missing = self.query_length - len(found)
        if self.mask is None or missing <= 0:
            return found
        return np.concatenate([found, np.full(missing, self.mask, found.dtype)])

    def document(self, token_ids: np.ndarray) -> np.ndarray:
        """The tokens [tokens] of a document, as the model reads them."""
        return _prefixed(token_ids, self.document_prefix)

    def kept(self, token_ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The rows of a document, [tokens, width] of its last tokens, that are compared. All, if
        nothing would be left."""
        if not self.skipped:
            return rows
        compared = ~np.isin(token_ids[-len(rows) :], list(self.skipped))
        return rows[compared] if compared.any() else rows


def _prefixed(token_ids: np.ndarray, prefix: int | None) -> np.ndarray:
    return token_ids if prefix is None else np.insert(token_ids, min(1, len(token_ids)), prefix)
