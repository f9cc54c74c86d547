"""Whole answers, as the request itself would have been answered."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.server.derender.output import check_tokens, log_entries, push
from pagemill.server.derender.request import RenderedRequest
from pagemill.server.errors import bad_request
from pagemill.server.protocol.chat import ChatResponse
from pagemill.server.protocol.completion import CompletionResponse
from pagemill.server.protocol.derender import DerenderFields, Generated, GeneratedChoice
from pagemill.server.respond import FoldedChoice

DerenderedAnswer = ChatResponse | CompletionResponse


async def derendered(request: RenderedRequest, body: DerenderFields) -> DerenderedAnswer:
    """The answer.

    Raises:
        ApiError: 400: the tokens are not an answer to the request.
    """
    param, responses = body.responses
    _check(request, responses, param)
    choices = [choice for response in responses for choice in response.choices]
    folded: list[FoldedChoice] = []
    for index, choice in enumerate(choices):
        folded.append(await _folded(request, index, choice, param))
    answer = request.derendered(sum(len(choice.token_ids) for choice in choices))
    if len(responses) == 1 and responses[0].usage is not None:
        answer.usage = responses[0].usage
    for response in responses:
        answer.kv_transfer_params = answer.kv_transfer_params or response.kv_transfer_params
    return request.wording(f"{request.prefix}-{body.request_id}", answer).whole(folded)


def _check(request: RenderedRequest, responses: Sequence[Generated], param: str) -> None:
    if len(responses) != len(request.prompts):
        raise bad_request(
            f"`{param}` must have {len(request.prompts)} responses, one for each prompt;"
            f" it has {len(responses)}.",
            param,
        )
    for response in responses:
        if len(response.choices) != request.num_samples:
            raise bad_request(
                f"`{param}` must have `n` = {request.num_samples} choices for a prompt; it has"
                f" {len(response.choices)}.",
                param,
            )
    choices = [choice.token_ids for response in responses for choice in response.choices]
    check_tokens(request.model, choices, param)


async def _folded(
    request: RenderedRequest, index: int, choice: GeneratedChoice, param: str
) -> FoldedChoice:
    """The choice, complete."""
    token_ids, logprobs, reason = choice.token_ids, choice.logprobs, choice.finish_reason
    entries = None
    if logprobs is not None:
        entries = log_entries(request.model, token_ids, logprobs, param)
    folded = FoldedChoice(index)
    assembler = request.assembler(index)
    folded.add(await push(assembler, index, token_ids, entries, reason, choice.stop_reason))
    return folded
