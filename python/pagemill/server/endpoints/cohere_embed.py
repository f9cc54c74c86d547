"""`POST /v2/embed`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pagemill.inputs.scoring import ends_texts
from pagemill.server.access.caller import Caller
from pagemill.server.errors import bad_request
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.pipeline import Pipeline
from pagemill.server.pooling.contents import Chat, check_parts, pool_chats, text_of
from pagemill.server.pooling.rows import check_dimensions, shortened
from pagemill.server.protocol.cohere_embed import (
    BilledUnits,
    CohereEmbedRequest,
    CohereEmbedResponse,
    Embeddings,
    EmbeddingType,
    EmbedMeta,
)
from pagemill.server.protocol.media import media_kind
from pagemill.server.state import ServerState


async def create(
    server: ServerState, body: CohereEmbedRequest, caller: Caller
) -> CohereEmbedResponse:
    """Embeds texts and images, as Cohere's API has it."""
    pipeline, _ = server.models.resolve(body.model, caller)
    pooled = pipeline.model.pooled
    assert pooled is not None, "the route is of models that embed"
    check_dimensions(body.output_dimension, pooled, "output_dimension")
    inputs = _inputs(body)
    vectors, num_tokens = await (_of_texts if inputs.is_text else _of_chats)(
        pipeline, body, inputs, caller
    )
    vectors = shortened(vectors, body.output_dimension, pooled)
    found = {name: encoded(vectors, name) for name in body.embedding_types or ["float"]}
    return CohereEmbedResponse(
        id=f"embd-{body.request_id}",
        embeddings=Embeddings(**found),
        texts=inputs.texts,
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


class _Inputs(NamedTuple):
    """The inputs of a request, and the field that they came from; `parts` of each, if there are
    images."""

    param: str
    texts: list[str]
    parts: Sequence[list[dict[str, Any]]] = ()

    @property
    def is_text(self) -> bool:
        return not self.parts


def _inputs(body: CohereEmbedRequest) -> _Inputs:
    fields = {"texts": body.texts, "images": body.images, "inputs": body.inputs}
    given = [name for name, value in fields.items() if value is not None]
    if len(given) > 1:
        named = " and ".join(f"`{name}`" for name in given)
        raise bad_request(f"{named} exclude each other.", given[-1])
    if body.texts is not None:
        return _Inputs("texts", body.texts)
    if body.images is not None:
        urls = [{"type": "image_url", "image_url": {"url": url}} for url in body.images]
        return _Inputs("images", [], [[part] for part in urls])
    if body.inputs is None:
        raise bad_request("The body needs `texts`, `images` or `inputs`.", "texts")
    parts = [each.content for each in body.inputs]
    texts = list(map(text_of, parts))
    for index, content in enumerate(parts):
        check_parts(content, f"inputs[{index}]")
    has_media = any(media_kind(part) is not None for content in parts for part in content)
    return _Inputs("inputs", texts, parts if has_media else ())


async def _of_texts(
    pipeline: Pipeline, body: CohereEmbedRequest, inputs: _Inputs, caller: Caller
) -> tuple[list[np.ndarray], int]:
    """The vectors of texts as they are, and the number of prompt tokens."""
    cuts, longest = body.truncate != "NONE", _longest(body, pipeline.model.max_model_len)
    prompts = await pipeline.rendering.prompts(
        inputs.texts, True, False, inputs.param, keeps_head=body.truncate == "END"
    )
    if not cuts:
        _check_lengths(list(map(len, prompts)), longest, inputs.param)
    options = _options(body, caller, inputs.param)
    return await pipeline.pool(
        prompts, replace(options, truncate_prompt_tokens=longest if cuts else None)
    )


async def _of_chats(
    pipeline: Pipeline, body: CohereEmbedRequest, inputs: _Inputs, caller: Caller
) -> tuple[list[np.ndarray], int]:
    """The same of inputs with images, which the chat template writes as messages of a user."""
    if body.max_tokens is not None:
        raise bad_request("`max_tokens` cuts texts; inputs with images stay whole.", "max_tokens")
    chats = [
        Chat([{"role": "user", "content": parts}], [f"{inputs.param}[{index}]"])
        for index, parts in enumerate(inputs.parts)
    ]
    rows: dict[int, np.ndarray] = {}
    num_tokens = await pool_chats(
        pipeline,
        chats,
        _options(body, caller, inputs.param),
        rows.__setitem__,
        add_special_tokens=ends_texts(pipeline.renderer.encode),
    )
    return [rows[index] for index in range(len(chats))], num_tokens


def _options(body: CohereEmbedRequest, caller: Caller, param: str) -> GenerationOptions:
    return GenerationOptions(
        max_tokens=None,
        default_max_tokens=None,
        truncation_side="left" if body.truncate == "START" else "right",
        priority=body.priority,
        timeout_s=body.timeout,
        caller=caller,
        param=param,
    )


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
