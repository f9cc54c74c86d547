"""`POST /v1/embeddings`."""

from __future__ import annotations

import base64
import time

import numpy as np

from pagemill.server.caller import Caller
from pagemill.server.errors import bad_request
from pagemill.server.pipeline import GenerationOptions
from pagemill.server.protocol.completion import prompts
from pagemill.server.protocol.embedding import (
    Embedding,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
)
from pagemill.server.state import ServerState


async def create(server: ServerState, body: EmbeddingRequest, caller: Caller) -> EmbeddingResponse:
    """Embeds one or several texts."""
    pipeline, _ = server.models.resolve(body.model, caller)
    rendered = await pipeline.rendering.prompts(
        prompts(body.input, "input"),
        body.add_special_tokens,
        False,
        "input",
        keeps_head=body.truncate_prompt_tokens is not None,
    )
    options = GenerationOptions(
        max_tokens=None,
        default_max_tokens=None,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncation_side=body.truncation_side,
        cache_salt=body.cache_salt or "",
        priority=body.priority,
        timeout_s=body.timeout,
        caller=caller,
        param="input",
    )
    vectors, num_tokens = await pipeline.embed(rendered, options)
    if body.dimensions is not None and body.dimensions != len(vectors[0]):
        raise bad_request(
            f"`dimensions` must be {len(vectors[0])}: this model's embeddings cannot be shortened.",
            "dimensions",
        )
    data = [
        Embedding(index, _encoded(vector, body.encoding_format))
        for index, vector in enumerate(vectors)
    ]
    return EmbeddingResponse(
        id=f"embd-{body.request_id}",
        created=int(time.time()),
        model=pipeline.model.name,
        data=data,
        usage=EmbeddingUsage(num_tokens, num_tokens),
    )


def _encoded(vector: np.ndarray, encoding_format: str) -> list[float] | str:
    if encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
