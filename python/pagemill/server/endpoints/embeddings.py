"""`POST /v1/embeddings`."""

from __future__ import annotations

import time

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Binary
from pagemill.server.pooling.binary import binary, is_binary, max_inputs
from pagemill.server.pooling.rows import (
    check_dimensions,
    check_encoding,
    encoded,
    pooled_input,
    shortened,
)
from pagemill.server.protocol.embedding import Embedding, EmbeddingRequest, EmbeddingResponse
from pagemill.server.protocol.pooling import BinaryMetadata, PoolingUsage
from pagemill.server.state import ServerState


async def create(
    server: ServerState, body: EmbeddingRequest, caller: Caller
) -> EmbeddingResponse | Binary:
    """Embeds one or several texts, or a chat."""
    pipeline, _ = server.models.resolve(body.model, caller)
    pooled = pipeline.model.pooled
    assert pooled is not None, "the route is of models that embed"
    check_dimensions(body.dimensions, pooled)
    check_encoding(body, pooled)
    vectors, num_tokens = await pooled_input(pipeline, body, caller, max_inputs(body))
    vectors = shortened(vectors, body.dimensions, pooled)
    request_id, created, model = f"embd-{body.request_id}", int(time.time()), pipeline.model.name
    usage = PoolingUsage(num_tokens, num_tokens)
    if is_binary(body):
        return binary(vectors, body, BinaryMetadata(request_id, created, model, [], usage))
    data = [Embedding(index, encoded(vector, body)) for index, vector in enumerate(vectors)]
    return EmbeddingResponse(request_id, created, model, data, usage)
