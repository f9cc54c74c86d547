"""How many tokens a prompt leaves room for; refusals that name the arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from pagemill.engine.outputs import EngineError
from pagemill.inputs.encoder_text import EncoderText
from pagemill.inputs.rendered_prompt import RenderedPrompt

T = TypeVar("T")


def text_prompt(token_ids: Sequence[int], param: str = "prompt") -> RenderedPrompt:
    """A prompt of text; `check_prompt` compares it with the model.

    Raises:
        EngineError: INVALID_ARGUMENT for an id that does not fit 32 bits.
    """
    try:
        return RenderedPrompt.of(token_ids)
    except OverflowError as error:
        message = f"`{param}` holds a token id that does not fit 32 bits."
        raise EngineError("INVALID_ARGUMENT", message, param) from error


def encoder_prompt(
    text: EncoderText,
    prompt: RenderedPrompt,
    decoder: Sequence[int] = (),
    param: str = "prompt",
) -> RenderedPrompt:
    """`EncoderText.prompt` of the tokens of `prompt`, a text.

    Raises:
        EngineError: INVALID_ARGUMENT: the text is empty or too long, or has an unknown token.
    """
    try:
        return text.prompt(prompt.token_ids, decoder)
    except (ValueError, OverflowError) as error:
        raise EngineError("INVALID_ARGUMENT", f"`{param}` {error}.", param) from error


def longest_context(prompt: RenderedPrompt, max_model_len: int, text: EncoderText | None) -> int:
    """The tokens that `prompt` and its output can have together; `text`: of an encoder-decoder."""
    return max_model_len if text is None else min(max_model_len, text.longest(prompt))


def check_prompt(prompt: RenderedPrompt, vocab_size: int, param: str = "prompt") -> None:
    """Compares a prompt with the model's vocabulary.

    Raises:
        EngineError: INVALID_ARGUMENT for an empty prompt or an id outside `[0, vocab_size)`.
    """
    token_ids = prompt.token_ids
    if len(token_ids) == 0:
        raise EngineError(
            "INVALID_ARGUMENT", f"`{param}` is empty: at least one token is needed.", param
        )
    bad = np.flatnonzero((token_ids < 0) | (token_ids >= vocab_size))
    if bad.size:
        at = int(bad[0])
        raise EngineError(
            "INVALID_ARGUMENT",
            f"`{param}` holds token id {int(token_ids[at])} at position {at}; this model's ids are"
            f" 0 to {vocab_size - 1}.",
            param,
        )


def each_checked(
    prompts: Sequence[RenderedPrompt], param: str, check: Callable[[RenderedPrompt], T]
) -> list[T]:
    """What `check` returns for each of `prompts`, which came in the field `param`.

    Raises:
        EngineError: that of `check`; if it is about one of several prompts, it says which.
    """
    results: list[T] = []
    for at, prompt in enumerate(prompts):
        try:
            results.append(check(prompt))
        except EngineError as error:
            if error.param != param or len(prompts) == 1:
                raise
            message = error.message.replace(f"`{param}`", f"`{param}[{at}]`")
            raise EngineError(error.code, message, param) from error
    return results


def check_stop(stop: Sequence[str], has_text: bool) -> None:
    """Refuses stop strings for outputs without text.

    Raises:
        EngineError: INVALID_ARGUMENT.
    """
    if stop and not has_text:
        raise EngineError(
            "INVALID_ARGUMENT",
            "`stop` needs text, and no tokenizer is loaded (--skip-tokenizer-init): use"
            " `stop_token_ids`.",
            "stop",
        )


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
