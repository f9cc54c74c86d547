"""`POST /v2/embed`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from pagemill.server.access.caller import Caller
from pagemill.server.errors import bad_request
from pagemill.server.pipeline import GenerationOptions
from pagemill.server.pooling.rows import check_dimensions, shortened
from pagemill.server.protocol.cohere_embed import (
    BilledUnits,
    CohereEmbedRequest,
    CohereEmbedResponse,
    Embeddings,
    EmbeddingType,
    EmbedMeta,
)
from pagemill.server.state import ServerState


async def create(
    server: ServerState, body: CohereEmbedRequest, caller: Caller
) -> CohereEmbedResponse:
    """Embeds texts, as Cohere's API has it."""
    pipeline, _ = server.models.resolve(body.model, caller)
    pooled = pipeline.model.pooled
    assert pooled is not None, "the route is of models that embed"
    check_dimensions(body.output_dimension, pooled, "output_dimension")
    texts, param = _texts(body)
    cuts = body.truncate != "NONE"
    options = GenerationOptions(
        max_tokens=None,
        default_max_tokens=None,
        truncate_prompt_tokens=_longest(body, pipeline.model.max_model_len) if cuts else None,
        truncation_side="left" if body.truncate == "START" else "right",
        priority=body.priority,
        timeout_s=body.timeout,
        caller=caller,
        param=param,
    )
    prompts = await pipeline.rendering.prompts(
        texts, True, False, param, keeps_head=body.truncate == "END"
    )
    if not cuts:
        _check_lengths(list(map(len, prompts)), _longest(body, pipeline.model.max_model_len), param)
    vectors, num_tokens = await pipeline.pool(prompts, options)
    vectors = shortened(vectors, body.output_dimension, pooled)
    found = {name: encoded(vectors, name) for name in body.embedding_types or ["float"]}
    return CohereEmbedResponse(
        id=f"embd-{body.request_id}",
        embeddings=Embeddings(**found),
        texts=texts,
        meta=EmbedMeta(BilledUnits(num_tokens)),
    )


def encoded(vectors: Sequence[np.ndarray], name: EmbeddingType) -> list[Any]:
    """Float32 vectors as the type `name` has them; see `Embeddings`."""
    match name:
        case "float":
            return [vector.tolist() for vector in vectors]
        case "base64":
            return [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
        case "binary":
            return [(np.packbits(v > 0).astype(np.int16) - 128).tolist() for v in vectors]
        case "ubinary":
            return [np.packbits(vector > 0).tolist() for vector in vectors]


def _texts(body: CohereEmbedRequest) -> tuple[list[str], str]:
    """The texts, and the field that they came from."""
    if body.texts is not None and body.inputs is not None:
        raise bad_request("`texts` and `inputs` exclude each other.", "inputs")
    if body.texts is not None:
        return body.texts, "texts"
    if body.inputs is None:
        raise bad_request("The body needs `texts` or `inputs`.", "texts")
    return ["".join(part.text for part in each.content) for each in body.inputs], "inputs"


def _longest(body: CohereEmbedRequest, max_model_len: int) -> int:
    """The most tokens of a text."""
    return max_model_len if body.max_tokens is None else min(body.max_tokens, max_model_len)


def _check_lengths(lengths: Sequence[int], longest: int, param: str) -> None:
    for index, length in enumerate(lengths):
        if length > longest:
            raise bad_request(
                f"`{param}[{index}]` has {length} tokens, and at most {longest} are embedded:"
                " shorten it, or send `truncate: END`.",
                param,
            )
