"""Bodies of `/v1/media/embeddings`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.pooling import PoolingUsage
from pagemill.server.protocol.sampling import Timeout


class MediaEmbeddingRequest(msgspec.Struct, kw_only=True):
    """The request: `input` has parts of a message with images or audio, as files."""

    input: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=256)]
    model: str | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31) + 1, le=2**31 - 1)] = 0
    timeout: Timeout | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""


RULES = FieldRules(unsupported={}, ignored=frozenset({"user"}))


class MediaEmbedding(msgspec.Struct):
    """The embeddings of one part: `part` takes its place in messages to a server that was started
    with --enable-mm-embeds."""

    index: int
    part: dict[str, Any]
    object: str = "media.embedding"


class MediaEmbeddingResponse(msgspec.Struct):
    """The response; `usage` counts rows."""

    id: str
    created: int
    model: str
    data: list[MediaEmbedding]
    usage: PoolingUsage
    object: str = "list"
