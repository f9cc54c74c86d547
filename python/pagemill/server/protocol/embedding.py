"""Bodies of `/v1/embeddings`."""

from __future__ import annotations

import msgspec

from pagemill.server.protocol.decode import FieldRules, Unsupported, only
from pagemill.server.protocol.pooling import (
    COMMON_IGNORED,
    COMMON_UNSUPPORTED,
    EncodedFields,
    PoolingUsage,
    SparseVector,
)


class EmbeddingRequest(EncodedFields, kw_only=True):
    """The request."""


RULES = FieldRules(
    unsupported={
        **COMMON_UNSUPPORTED,
        "normalize": Unsupported(only(True), "the model decides."),
        "use_activation": Unsupported(only(True), "the model decides."),
    },
    ignored=COMMON_IGNORED,
)


class Embedding(msgspec.Struct):
    """One vector: floats, base64 of `embed_dtype`, or what is not 0."""

    index: int
    embedding: list[float] | str | SparseVector
    object: str = "embedding"


class EmbeddingResponse(msgspec.Struct):
    """The response."""

    id: str
    created: int
    model: str
    data: list[Embedding]
    usage: PoolingUsage
    object: str = "list"
