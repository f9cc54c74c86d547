"""What endpoints of models that pool have in common: options, inputs, encodings."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.scoring import normalized
from pagemill.inputs.task import Pooled
from pagemill.server.access.caller import Caller
from pagemill.server.chat import check_chat, rendered_prompt
from pagemill.server.element_types import element_type
from pagemill.server.errors import bad_request
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.completion import prompts
from pagemill.server.protocol.pooling import (
    EncodedFields,
    InputFields,
    PoolingFields,
    SparseVector,
)
from pagemill.server.time_limit import in_time


def pooling_options(body: PoolingFields, caller: Caller, param: str) -> GenerationOptions:
    """What the pipeline needs of `body`, whose texts are in its field `param`."""
    return GenerationOptions(
        max_tokens=None,
        default_max_tokens=None,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncation_side=body.truncation_side,
        cache_salt=body.cache_salt or "",
        priority=body.priority,
        timeout_s=body.timeout,
        caller=caller,
        param=param,
    )


async def pooled_input(
    pipeline: Pipeline, body: InputFields, caller: Caller, max_inputs: int | None = None
) -> tuple[list[np.ndarray], int]:
    """The rows of each input of `body`, of which there may be `max_inputs` (None: as many as any
    request has), and the number of prompt tokens; see `Pipeline.pool`.

    Raises:
        ApiError: the request cannot be served.
    """
    options = pooling_options(body, caller, "input" if body.messages is None else "messages")
    rendered = await _rendered(pipeline, body, caller)
    if max_inputs is not None and len(rendered) > max_inputs:
        raise bad_request(
            f"`input` has {len(rendered)} inputs, and a header describes at most {max_inputs}:"
            " send less at a time, or `encoding_format: bytes_only`.",
            "input",
        )
    return await pipeline.pool(rendered, options)


async def _rendered(
    pipeline: Pipeline, body: InputFields, caller: Caller
) -> Sequence[RenderedPrompt]:
    if body.messages is None:
        return await pipeline.rendering.prompts(
            prompts(body.input, "input"),
            body.add_special_tokens is not False,
            False,
            "input",
            keeps_head=body.truncate_prompt_tokens is not None and body.truncation_side == "right",
        )
    if body.input is not None:
        raise bad_request("`input` and `messages` exclude each other.", "messages")
    chat = ChatRequest(
        messages=body.messages,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        add_special_tokens=body.add_special_tokens is True,
        chat_template_kwargs=body.chat_template_kwargs,
        cache_salt=body.cache_salt,
    )
    check_chat(chat)
    async with in_time(pipeline.deadline(body.timeout, caller)):
        return [await rendered_prompt(pipeline.rendering, chat, caller)]


def check_dimensions(size: int | None, pooled: Pooled, param: str = "dimensions") -> None:
    """Checks a size of vectors, of the field `param`, before any is computed; None = all elements.

    Raises:
        ApiError: 400: the model's vectors cannot have this size.
    """
    full, sizes = pooled.width, pooled.sizes
    if size is None or size == full:
        return
    if sizes is None:
        raise bad_request(
            f"`{param}` must be {full}: this model's embeddings cannot be shortened.", param
        )
    if size > full or (sizes and size not in sizes):
        known = ", ".join(map(str, sizes)) if sizes else f"from 1 to {full}"
        raise bad_request(f"`{param}` must be {full}, or {known}.", param)


def shortened(
    vectors: Sequence[np.ndarray], size: int | None, pooled: Pooled
) -> Sequence[np.ndarray]:
    """The first `size` elements of each vector, as models are trained to be shortened; None = all.
    `check_dimensions` has seen the size."""
    if size is None or size == pooled.width:
        return vectors
    parts = [vector[..., :size] for vector in vectors]
    return list(map(normalized, parts)) if pooled.normalizes else parts


def check_encoding(body: EncodedFields, pooled: Pooled) -> None:
    """Checks how vectors are to be written before any is computed.

    Raises:
        ApiError: 400: they are not sparse.
    """
    if body.encoding_format == "sparse" and not pooled.sparse:
        raise bad_request(
            "`encoding_format` must not be sparse: this model's vectors have all their elements.",
            "encoding_format",
        )


def encoded(rows: np.ndarray, body: EncodedFields) -> list[Any] | str | SparseVector:
    """Rows as a response has them: numbers, in a list for each row; base64; or what is not 0 of
    one row. `check_encoding` has seen the body."""
    elements = element_type(body.embed_dtype)
    if body.encoding_format == "sparse":
        indices = np.flatnonzero(rows)
        return SparseVector(indices.tolist(), elements.values(rows[indices]))
    if body.encoding_format == "float":
        return elements.values(rows)
    return base64.b64encode(elements.content(rows, is_big=body.endianness == "big")).decode()
