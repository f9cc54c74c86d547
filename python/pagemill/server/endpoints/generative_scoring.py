"""`POST /generative_scoring`."""

from __future__ import annotations

import time

from pagemill.server.access.caller import Caller
from pagemill.server.generative_scores import label_logprobs, scores
from pagemill.server.protocol.generative_score import (
    GenerativeScoreRequest,
    GenerativeScoreResponse,
)
from pagemill.server.protocol.score import Score
from pagemill.server.state import ServerState


async def create(
    server: ServerState, body: GenerativeScoreRequest, caller: Caller
) -> GenerativeScoreResponse:
    """Scores items by the probability of a label behind query and item."""
    pipeline, _ = server.models.resolve(body.model, caller)
    logprobs, usage = await label_logprobs(pipeline, body, caller)
    values = scores(logprobs, apply_softmax=body.apply_softmax)
    return GenerativeScoreResponse(
        id=f"generative-scoring-{body.request_id}",
        created=int(time.time()),
        model=pipeline.model.name,
        data=[Score(index, value) for index, value in enumerate(values)],
        usage=usage,
    )
