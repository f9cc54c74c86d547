"""`POST /classify`."""

from __future__ import annotations

import time

import numpy as np

from pagemill.inputs.scoring import activated
from pagemill.inputs.task import Pooled
from pagemill.server.access.caller import Caller
from pagemill.server.pooling.rows import pooled_input
from pagemill.server.protocol.classification import (
    Classification,
    ClassificationRequest,
    ClassificationResponse,
)
from pagemill.server.protocol.pooling import PoolingUsage
from pagemill.server.state import ServerState


async def create(
    server: ServerState, body: ClassificationRequest, caller: Caller
) -> ClassificationResponse:
    """Classifies one or several texts, or a chat."""
    pipeline, _ = server.models.resolve(body.model, caller)
    pooled = pipeline.model.pooled
    assert pooled is not None, "the route is of classifiers"
    rows, num_tokens = await pooled_input(pipeline, body, caller)
    if body.use_activation:
        rows = [activated(row, pooled.activation) for row in rows]
    return ClassificationResponse(
        id=f"classify-{body.request_id}",
        created=int(time.time()),
        model=pipeline.model.name,
        data=[_classification(index, row, pooled) for index, row in enumerate(rows)],
        usage=PoolingUsage(num_tokens, num_tokens),
    )


def _classification(index: int, probs: np.ndarray, pooled: Pooled) -> Classification:
    label = pooled.labels[int(probs.argmax())]
    return Classification(index, label, probs.tolist(), len(probs))
