"""`POST /pooling`: what a model gives, for any task but generating."""

from __future__ import annotations

import time

from pagemill.inputs.scoring import activated
from pagemill.inputs.task import Pooled
from pagemill.server.access.caller import Caller
from pagemill.server.answer import Binary
from pagemill.server.errors import bad_request
from pagemill.server.pipeline import Pipeline
from pagemill.server.pooling.binary import binary, is_binary, max_inputs
from pagemill.server.pooling.rows import (
    check_dimensions,
    check_encoding,
    encoded,
    pooled_input,
    pooling_options,
    shortened,
)
from pagemill.server.protocol.pooling import (
    BinaryMetadata,
    PluginResponse,
    PooledData,
    PoolingRequest,
    PoolingResponse,
    PoolingUsage,
)
from pagemill.server.state import ServerState


async def create(
    server: ServerState, body: PoolingRequest, caller: Caller
) -> PoolingResponse | PluginResponse | Binary:
    """Gives the rows of one or several texts, or of a chat; or what the server's plugin makes of
    `data`."""
    pipeline, _ = server.models.resolve(body.model, caller)
    pooled = pipeline.model.pooled
    assert pooled is not None, "the route is of models that pool"
    if body.data is not None:
        return await _by_plugin(pipeline, pooled, body, caller)
    if body.task not in (None, pooled.task):
        raise bad_request(
            f"`task` must be {pooled.task}, for which the model is loaded (`--task`).", "task"
        )
    if pooled.task.classifies and body.dimensions is not None:
        raise bad_request("`dimensions` is for embeddings; this model classifies.", "dimensions")
    if not pooled.task.classifies:
        check_dimensions(body.dimensions, pooled)
    check_encoding(body, pooled)
    if not pooled.task.classifies and not body.use_activation:
        raise bad_request(
            "`use_activation` must be true: the model decides how vectors are normalized.",
            "use_activation",
        )
    rows, num_tokens = await pooled_input(pipeline, body, caller, max_inputs(body))
    rows = shortened(rows, body.dimensions, pooled)
    if body.use_activation:
        rows = [activated(row, pooled.activation) for row in rows]
    request_id, created, model = f"pool-{body.request_id}", int(time.time()), pipeline.model.name
    usage = PoolingUsage(num_tokens, num_tokens)
    if is_binary(body):
        return binary(rows, body, BinaryMetadata(request_id, created, model, [], usage))
    data = [PooledData(index, encoded(row, body)) for index, row in enumerate(rows)]
    return PoolingResponse(request_id, created, model, data, usage)


async def _by_plugin(
    pipeline: Pipeline, pooled: Pooled, body: PoolingRequest, caller: Caller
) -> PluginResponse:
    plugin = pipeline.plugin
    if plugin is None:
        raise bad_request(
            "`data` is for a plugin, and this server has none (--io-processor-plugin): send"
            " `input`.",
            "data",
        )
    if body.input is not None or body.messages is not None:
        raise bad_request("`data` excludes `input` and `messages`.", "data")
    if body.task not in (None, "plugin"):
        raise bad_request("`task` must be plugin for `data`.", "task")
    parsed, texts = await plugin.read(body.data, body.request_id)
    adds_special = body.add_special_tokens is not False
    prompts = await pipeline.rendering.prompts(texts, adds_special, False, "data")
    rows, _ = await pipeline.pool(prompts, pooling_options(body, caller, "data"))
    rows = [activated(row, pooled.activation) for row in rows]
    answer = await plugin.write(parsed, rows, body.request_id)
    return PluginResponse(f"pool-{body.request_id}", int(time.time()), answer)
