"""Events of a stream, one call for each: the client keeps what is known between them.

    answer = await derendered_chunk(request, body)    # {chunk, stream_state}
    body.stream_state = answer.stream_state           # of the next call

A state is the tokens so far. They are read again with each call, which is bounded as a whole answer
is.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from pagemill.server.derender.output import check_tokens, log_entries, push
from pagemill.server.derender.request import RenderedRequest, Wording
from pagemill.server.errors import bad_request
from pagemill.server.protocol.derender import (
    DerenderedChunk,
    DerenderFields,
    GeneratedChunk,
    StreamState,
)
from pagemill.server.sse import payloads

_PARAM = "generate_chunk"
_STATE = "stream_state"


async def derendered_chunk(request: RenderedRequest, body: DerenderFields) -> DerenderedChunk:
    """The next event of the answer.

    Raises:
        ApiError: 400: the tokens are not an answer to the request.
    """
    generated = body.chunk
    if len(request.prompts) > 1:
        raise bad_request(
            "`completion_request` must have one prompt with `stream`: each has its own stream.",
            "completion_request",
        )
    state = _state(request, body)
    _check(request, generated, state.token_ids)
    num_tokens = sum(map(len, state.token_ids))
    num_tokens += sum(len(choice.token_ids) for choice in generated.choices)
    answer = request.derendered(num_tokens)
    answer.usage = generated.usage or answer.usage
    answer.kv_transfer_params = generated.kv_transfer_params
    wording = request.wording(state.name, answer)
    events = wording.begin() if body.stream_state is None else b""
    events += await _continued(request, generated, state, wording)
    if not generated.choices:
        events += wording.end(None)
    encoded = base64.b64encode(msgspec.json.encode(state)).decode()
    return DerenderedChunk(_chunk(events, state), encoded)


def _state(request: RenderedRequest, body: DerenderFields) -> StreamState:
    """What the calls before this one have read."""
    if body.stream_state is None:
        name = f"{request.prefix}-{body.request_id}"
        return StreamState(name, int(time.time()), [[] for _ in range(request.num_choices)])
    try:
        content = base64.b64decode(body.stream_state, validate=True)
        state = msgspec.json.decode(content, type=StreamState)
    except (binascii.Error, UnicodeDecodeError, ValueError, msgspec.DecodeError) as error:
        raise bad_request(
            f"`{_STATE}` must be that of the answer to the chunk before.", _STATE
        ) from error
    if len(state.token_ids) != request.num_choices:
        raise bad_request(f"`{_STATE}` is that of a request with other choices.", _STATE)
    check_tokens(request.model, state.token_ids, _STATE)
    return state


def _check(
    request: RenderedRequest, generated: GeneratedChunk, known: Sequence[Sequence[int]]
) -> None:
    if len({choice.index for choice in generated.choices}) < len(generated.choices):
        raise bad_request(f"`{_PARAM}` has a choice more than once.", _PARAM)
    sizes = [list(token_ids) for token_ids in known]
    for choice in generated.choices:
        if choice.index >= request.num_choices:
            raise bad_request(
                f"`{_PARAM}` has the choice {choice.index}; the request has {request.num_choices}.",
                _PARAM,
            )
        sizes[choice.index] += choice.token_ids
    check_tokens(request.model, sizes, _PARAM)


async def _continued(
    request: RenderedRequest, generated: GeneratedChunk, state: StreamState, wording: Wording
) -> bytes:
    """The events of `generated`, behind those of `state`, to which its tokens are added."""
    events = b""
    for choice in generated.choices:
        index, token_ids, logprobs = choice.index, choice.token_ids, choice.logprobs
        entries = None
        if logprobs is not None:
            entries = log_entries(request.model, token_ids, logprobs, _PARAM)
        assembler, known = request.assembler(index), state.token_ids[index]
        wording.delta(await push(assembler, index, known))
        if not assembler.finished:  # by a stop string
            reason = choice.finish_reason
            delta = await push(assembler, index, token_ids, entries, reason, choice.stop_reason)
            events += wording.delta(delta)
            known += token_ids
    return events


def _chunk(events: bytes, state: StreamState) -> dict[str, Any] | None:
    """Events as one; None: there are none."""
    written: list[dict[str, Any]] = [msgspec.json.decode(each) for each in payloads(events)]
    if not written:
        return None
    choices = [choice for each in written for choice in each["choices"]]
    return {**written[-1], "choices": choices, "created": state.created}
