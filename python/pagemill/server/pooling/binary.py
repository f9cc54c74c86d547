"""Responses in bytes: the rows of all inputs one after another, without text around them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pagemill.server.answer import Binary
from pagemill.server.element_types import element_type
from pagemill.server.protocol.pooling import BinaryItem, BinaryMetadata, EncodedFields

MAX_DESCRIBED_INPUTS = 64
"""Clients take headers of 8 KiB at least; an item of the metadata has up to 110 bytes."""


def is_binary(body: EncodedFields) -> bool:
    """Whether the response is bytes."""
    return body.encoding_format in ("bytes", "bytes_only")


def max_inputs(body: EncodedFields) -> int | None:
    """How many inputs the response can describe; None if it is JSON, or describes nothing."""
    return MAX_DESCRIBED_INPUTS if body.encoding_format == "bytes" else None


def binary(rows: Sequence[np.ndarray], body: EncodedFields, described: BinaryMetadata) -> Binary:
    """The answer to `body`; `described` is without its items."""
    elements = element_type(body.embed_dtype)
    is_big = body.endianness == "big"
    content = b"".join(elements.content(row, is_big=is_big) for row in rows)
    if body.encoding_format == "bytes_only":
        return Binary(content)
    end = 0
    for index, row in enumerate(rows):
        start, end = end, end + math.prod(row.shape) * elements.size
        described.data.append(
            BinaryItem(index, body.embed_dtype, body.endianness, start, end, row.shape)
        )
    # Not msgspec, which writes the name of a model as UTF-8.
    return Binary(content, json.dumps(msgspec.to_builtins(described), separators=(",", ":")))
