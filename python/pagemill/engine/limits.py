"""How many tokens a prompt leaves room for; refusals that name the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill.engine.outputs import EngineError


def prompt_array(token_ids: Sequence[int], vocab_size: int, param: str = "prompt") -> np.ndarray:
    """The prompt as int32 `[tokens]`.

    Raises:
        EngineError: INVALID_ARGUMENT for an empty prompt or an id outside `[0, vocab_size)`.
    """
    if len(token_ids) == 0:
        raise EngineError(
            "INVALID_ARGUMENT", f"`{param}` is empty: at least one token is needed.", param
        )
    # int64 first, so that an id beyond 32 bits is refused below and not wrapped.
    try:
        wide = np.asarray(token_ids, dtype=np.int64)
    except OverflowError as error:
        raise EngineError(
            "INVALID_ARGUMENT", f"`{param}` holds a token id that does not fit 64 bits.", param
        ) from error
    bad = np.flatnonzero((wide < 0) | (wide >= vocab_size))
    if bad.size:
        at = int(bad[0])
        raise EngineError(
            "INVALID_ARGUMENT",
            f"`{param}` holds token id {int(wide[at])} at position {at}; this model's ids are"
            f" 0 to {vocab_size - 1}.",
            param,
        )
    return wide.astype(np.int32)


def resolve_max_tokens(
    prompt_tokens: int,
    requested: int | None,
    default: int | None,
    max_model_len: int,
    param: str = "prompt",
    requested_param: str = "max_tokens",
) -> int:
    """How many tokens may be generated after a prompt of `prompt_tokens` tokens.

    `requested` is the client's own number and is refused if it does not fit; `default` is
    clamped to the room there is; None means all of it. `param` and `requested_param` name the
    fields that the prompt and `requested` came from.

    Raises:
        EngineError: INVALID_ARGUMENT when the prompt, or the prompt and `requested`, exceed the
            context.
    """
    room = max_model_len - prompt_tokens
    if room < 0 or (room == 0 and requested != 0):
        raise EngineError(
            "INVALID_ARGUMENT",
            f"This model's maximum context length is {max_model_len} tokens, but `{param}` has"
            f" {prompt_tokens} tokens and at least one token has to be generated. Shorten it, or"
            f" start the server with a larger --max-model-len if the model allows it.",
            param,
        )
    if requested is None:
        return room if default is None else min(default, room)
    if requested > room:
        raise EngineError(
            "INVALID_ARGUMENT",
            f"`{requested_param}` is too large: {requested}. This model's maximum context length is"
            f" {max_model_len} tokens and the prompt has {prompt_tokens}, which leaves"
            f" {max_model_len} - {prompt_tokens} = {room}.",
            requested_param,
        )
    return requested
