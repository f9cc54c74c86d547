"""`POST /v1/embeddings`."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

import numpy as np

from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.caller import Caller
from pagemill.server.chat import check_chat, rendered_prompt
from pagemill.server.element_types import element_type
from pagemill.server.errors import bad_request
from pagemill.server.model_info import ModelInfo
from pagemill.server.pipeline import GenerationOptions, Pipeline
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.completion import prompts
from pagemill.server.protocol.embedding import (
    Embedding,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
)
from pagemill.server.state import ServerState

_LEAST_NORM = 1e-12


async def create(server: ServerState, body: EmbeddingRequest, caller: Caller) -> EmbeddingResponse:
    """Embeds one or several texts, or a chat."""
    pipeline, _ = server.models.resolve(body.model, caller)
    options = GenerationOptions(
        max_tokens=None,
        default_max_tokens=None,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncation_side=body.truncation_side,
        cache_salt=body.cache_salt or "",
        priority=body.priority,
        timeout_s=body.timeout,
        caller=caller,
        param="input" if body.messages is None else "messages",
    )
    vectors, num_tokens = await pipeline.embed(await _rendered(pipeline, body), options)
    if body.dimensions is not None:
        vectors = _shortened(vectors, body.dimensions, pipeline.model)
    data = [Embedding(index, _encoded(vector, body)) for index, vector in enumerate(vectors)]
    return EmbeddingResponse(
        id=f"embd-{body.request_id}",
        created=int(time.time()),
        model=pipeline.model.name,
        data=data,
        usage=EmbeddingUsage(num_tokens, num_tokens),
    )


async def _rendered(pipeline: Pipeline, body: EmbeddingRequest) -> Sequence[RenderedPrompt]:
    if body.messages is None:
        return await pipeline.rendering.prompts(
            prompts(body.input, "input"),
            body.add_special_tokens is not False,
            False,
            "input",
            keeps_head=body.truncate_prompt_tokens is not None,
        )
    if body.input is not None:
        raise bad_request("`input` and `messages` exclude each other.", "messages")
    chat = ChatRequest(
        messages=body.messages,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        add_special_tokens=body.add_special_tokens is True,
        chat_template_kwargs=body.chat_template_kwargs,
    )
    check_chat(chat)
    return [await rendered_prompt(pipeline.rendering, chat)]


def _shortened(vectors: Sequence[np.ndarray], size: int, model: ModelInfo) -> Sequence[np.ndarray]:
    """The first `size` elements of each vector, as models are trained to be shortened.

    Raises:
        ApiError: 400: the model's embeddings cannot have this size.
    """
    full, sizes = len(vectors[0]), model.embedding_sizes
    if size == full:
        return vectors
    if sizes is None:
        raise bad_request(
            f"`dimensions` must be {full}: this model's embeddings cannot be shortened.",
            "dimensions",
        )
    if size > full or (sizes and size not in sizes):
        known = ", ".join(map(str, sizes)) if sizes else f"from 1 to {full}"
        raise bad_request(f"`dimensions` must be {full}, or {known}.", "dimensions")
    parts = [vector[:size] for vector in vectors]
    if not model.normalizes:
        return parts
    return [part / max(float(np.linalg.norm(part)), _LEAST_NORM) for part in parts]


def _encoded(vector: np.ndarray, body: EmbeddingRequest) -> list[float] | str:
    elements = element_type(body.embed_dtype)
    if body.encoding_format == "float":
        return elements.values(vector)
    return base64.b64encode(elements.content(vector, is_big=body.endianness == "big")).decode()
