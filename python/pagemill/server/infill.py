"""What `suffix` of `/v1/completions` means: the model writes the text between a prompt and it."""

from __future__ import annotations

from typing import Any

import msgspec

from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.render.infill import Infill
from pagemill.server.errors import bad_request
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.completion import CompletionRequest, TextOrIds

_PARAM = "suffix"
# They need prompts that are what was sent, or whose beginning can be cut; beams have one end.
_EXCLUDED = ("prompt_embeds", "echo", "truncate_prompt_tokens", "use_beam_search")


def with_ends_of_middles(pipeline: Pipeline, request: CompletionRequest) -> CompletionRequest:
    """`request`, whose output also ends with the model's tokens for the end of a middle.

    Raises:
        ApiError: 400: the model does not fill in the middle, or fields exclude each other.
    """
    infill = _wanted(pipeline)
    for name in _EXCLUDED:
        value: Any = getattr(request, name)
        if value:
            raise bad_request(f"`{name}` and `suffix` exclude each other.", name)
    if request.ignore_eos:
        return request
    ends = [*(request.stop_token_ids or ()), *infill.end_ids]
    return msgspec.structs.replace(request, stop_token_ids=ends)


async def infill_prompts(
    pipeline: Pipeline, request: CompletionRequest, sent: list[TextOrIds]
) -> list[RenderedPrompt]:
    """The prompts `sent`, each with the request's suffix.

    Raises:
        ApiError: 400 that names `prompt` or `suffix`.
    """
    return await pipeline.rendering.infills(
        _wanted(pipeline),
        sent,
        request.suffix,
        add_special_tokens=request.add_special_tokens,
        parse_special=request.parse_special,
    )


def _wanted(pipeline: Pipeline) -> Infill:
    infill = pipeline.renderer.infill
    if infill is None:
        raise bad_request(
            "`suffix`: this model does not fill in the middle; its vocabulary has none of the"
            " tokens that such models have. Leave it out.",
            _PARAM,
        )
    return infill
