"""`POST /v1/embeddings`."""

from __future__ import annotations

import base64
import time

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from pagemill.server.admission import read_body, tenant_of
from pagemill.server.disconnect import until_disconnect
from pagemill.server.errors import bad_request
from pagemill.server.pipeline import GenerationOptions, Pipeline
from pagemill.server.protocol.completion import prompts
from pagemill.server.protocol.decode import decode_request
from pagemill.server.protocol.embedding import (
    RULES,
    Embedding,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
)
from pagemill.server.request_ids import name_request
from pagemill.server.state import state_of


async def create(request: Request) -> Response:
    """Embeds one or several texts."""
    state = state_of(request)
    body = await read_body(request, state.config.max_body_bytes)
    asked = decode_request(body, EmbeddingRequest, RULES)
    model = state.pipeline.model
    model.check_name(asked.model)
    model.check_pools()
    name = f"embd-{name_request(request, asked.request_id)}"
    answer = _embed(state.pipeline, asked, name, request)
    response = await until_disconnect(answer, request.receive)
    # Encoding thousands of vectors takes long, but a thread would hold the GIL for as long.
    return Response(msgspec.json.encode(response), media_type="application/json")


async def _embed(
    pipeline: Pipeline, asked: EmbeddingRequest, name: str, request: Request
) -> EmbeddingResponse:
    token_ids = await pipeline.rendering.token_ids(
        prompts(asked.input, "input"),
        asked.add_special_tokens,
        False,
        "input",
        request.receive,
        keeps_head=asked.truncate_prompt_tokens is not None,
    )
    options = GenerationOptions(
        max_tokens=None,
        default_max_tokens=None,
        truncate_prompt_tokens=asked.truncate_prompt_tokens,
        truncation_side=asked.truncation_side,
        cache_salt=asked.cache_salt or "",
        priority=asked.priority,
        tenant=tenant_of(request),
        param="input",
    )
    vectors, num_tokens = await pipeline.embed(token_ids, options)
    if asked.dimensions is not None and asked.dimensions != len(vectors[0]):
        raise bad_request(
            f"`dimensions` must be {len(vectors[0])}: this model's embeddings cannot be shortened.",
            "dimensions",
        )
    data = [
        Embedding(index, _encoded(vector, asked.encoding_format))
        for index, vector in enumerate(vectors)
    ]
    return EmbeddingResponse(
        id=name,
        created=int(time.time()),
        model=pipeline.model.name,
        data=data,
        usage=EmbeddingUsage(num_tokens, num_tokens),
    )


def _encoded(vector: np.ndarray, encoding_format: str) -> list[float] | str:
    if encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
