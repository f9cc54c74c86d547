"""How the tokens of a chat are chosen."""

from __future__ import annotations

from pagemill.engine.sampling import SamplingParams
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.sampling import to_sampling


def chat_sampling(request: ChatRequest, max_logprobs: int) -> SamplingParams:
    """How the request's tokens are chosen, without the model's defaults.

    Raises:
        ApiError: 400 naming the field.
    """
    return to_sampling(
        request,
        logprobs=request.top_logprobs if request.logprobs else None,
        prompt_logprobs=request.prompt_logprobs,
        max_logprobs=max_logprobs,
        logprobs_param="top_logprobs",
    )
