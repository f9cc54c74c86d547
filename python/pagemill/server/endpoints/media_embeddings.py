"""`POST /v1/media/embeddings`: what the encoders of a model make of images and audio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np

from pagemill.inputs.media_embeds import EMBEDS_PARTS
from pagemill.inputs.media_owner import MediaOwner
from pagemill.render.media.embeds import embeds_part
from pagemill.server.access.caller import Caller
from pagemill.server.errors import ApiError, bad_request, renamed
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.media import MAX_PREPARED_BYTES
from pagemill.server.media_encoding import PARAM, PlacedMedia
from pagemill.server.protocol.media import SentMedia, check_media, media_kind, media_parts
from pagemill.server.protocol.media_embedding import (
    MediaEmbedding,
    MediaEmbeddingRequest,
    MediaEmbeddingResponse,
)
from pagemill.server.protocol.pooling import PoolingUsage
from pagemill.server.state import ServerState
from pagemill.server.time_limit import in_time


async def create(
    server: ServerState, body: MediaEmbeddingRequest, caller: Caller
) -> MediaEmbeddingResponse:
    """Encodes the media of each part."""
    pipeline, _ = server.models.resolve(body.model, caller)
    encoding = pipeline.media_encoding
    assert encoding is not None, "the route is of encoders"
    sent = _sent(body)
    owner = MediaOwner(caller.key_id, caller.tenant, body.cache_salt or "")
    async with in_time(pipeline.deadline(body.timeout, caller)):
        try:
            prepared = await pipeline.rendering.media.read(sent, owner)
        except ApiError as error:
            raise renamed(error, {"messages": PARAM}) from error
        placed = [await encoding.place(each) for each in prepared]
    num_rows, pooled = sum(each.num_rows for each in placed), pipeline.model.pooled
    assert pooled is not None
    _check_size(num_rows, pooled.width)
    prompts = [prompt for each in placed for prompt in each.prompts]
    tokens: dict[int, np.ndarray] = {}
    await pipeline.pool_each(prompts, _options(body, caller), tokens.__setitem__)
    rows = [tokens[index] for index in range(len(prompts))]
    data = await asyncio.to_thread(_parts, placed, rows)
    usage = PoolingUsage(num_rows, num_rows)
    request_id, created = f"media-{body.request_id}", int(time.time())
    return MediaEmbeddingResponse(request_id, created, pipeline.model.name, data, usage)


def _sent(body: MediaEmbeddingRequest) -> list[SentMedia]:
    """The media of the parts.

    Raises:
        ApiError: 400: a part has none, or their embeddings.
    """
    for at, part in enumerate(body.input):
        if media_kind(part) is None:
            raise bad_request(
                f"`{PARAM}[{at}]` must be a part of a message with an image or audio.", PARAM
            )
        check_media(part, f"{PARAM}[{at}]", PARAM)
    sent = media_parts([{"content": body.input}])
    for at, each in enumerate(sent):
        if each.embeds is not None:
            raise bad_request(f"`{PARAM}[{at}]` has embeddings already: send a file.", PARAM)
        if each.kind not in EMBEDS_PARTS.values():
            raise bad_request(
                f"`{PARAM}[{at}]` has a {each.kind}; images and audio are encoded here, and videos"
                " by servers with the language model.",
                PARAM,
            )
    return [each._replace(where=f"{PARAM}[{at}]") for at, each in enumerate(sent)]


def _check_size(num_rows: int, width: int) -> None:
    if 4 * num_rows * width > MAX_PREPARED_BYTES:
        raise bad_request(
            f"`{PARAM}` has {num_rows} rows of {width} numbers; a response has at most"
            f" {MAX_PREPARED_BYTES} bytes of them: send fewer media at a time.",
            PARAM,
        )


def _options(body: MediaEmbeddingRequest, caller: Caller) -> GenerationOptions:
    return GenerationOptions(
        max_tokens=None,
        default_max_tokens=None,
        cache_salt=body.cache_salt or "",
        priority=body.priority,
        timeout_s=body.timeout,
        caller=caller,
        param=PARAM,
    )


def _parts(placed: Sequence[PlacedMedia], rows: Sequence[np.ndarray]) -> list[MediaEmbedding]:
    """The parts of all media, whose prompts have these `rows` one after the other."""
    left = iter(rows)
    return [
        MediaEmbedding(
            index, embeds_part(each.kind, each.rows([next(left) for _ in each.prompts]), each.form)
        )
        for index, each in enumerate(placed)
    ]
