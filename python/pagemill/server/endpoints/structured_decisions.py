"""`POST /v1/systemone`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.protocol.structured_decision import (
    StructuredDecisionRequest,
    StructuredDecisionResponse,
)
from pagemill.server.state import ServerState
from pagemill.server.structured_decisions import decide


async def create(
    server: ServerState, body: StructuredDecisionRequest, caller: Caller
) -> StructuredDecisionResponse:
    """Answers questions about a state by the probabilities of their labels."""
    pipeline, _ = server.models.resolve(body.model, caller)
    found = await decide(pipeline, body, caller)
    return StructuredDecisionResponse(
        id=f"decision-{body.request_id}",
        model=pipeline.model.name,
        answers=found.answers,
        usage=found.usage,
        diagnostics=found.diagnostics,
    )
