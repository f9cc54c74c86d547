"""Tokens that were generated, as what reads a choice takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pagemill.render.assembly import ChoiceAssembler, ChoiceDelta
from pagemill.server.errors import bad_request
from pagemill.server.model_info import ModelInfo
from pagemill.server.protocol.chat import ChoiceLogprobs

MAX_TOKENS = 2**16
"""Of all choices."""
PORTION_TOKENS = 2048
"""What is read before other requests may run: about 10 ms."""
_TOKEN = "token_id:"


class _Output(msgspec.Struct):
    """Implements `assembly.TokenOutput`."""

    index: int
    token_ids: list[int]
    logprobs: list[Any] | None
    finish_reason: str | None
    stop_token_id: int | None = None


class _Entry(msgspec.Struct):
    """Implements `engine.outputs.TokenLogprobs`; the rank is not known, and no answer says it."""

    token_id: int
    logprob: float
    top: list[tuple[int, float]]
    rank: int = 0


def check_tokens(model: ModelInfo, choices: Sequence[Sequence[int]], param: str) -> None:
    """Raises a 400 ApiError, about the field `param`, unless `model` can have written the tokens of
    all `choices`."""
    sizes = list(map(len, choices))
    if max(sizes, default=0) > model.max_model_len or sum(sizes) > MAX_TOKENS:
        raise bad_request(
            f"`{param}` has {sum(sizes)} tokens, one choice {max(sizes)}; at most {MAX_TOKENS} are"
            f" read, of a choice {model.max_model_len}.",
            param,
        )
    for token_ids in choices:
        _check_known(model, token_ids, param)


def _check_known(model: ModelInfo, token_ids: Iterable[int], param: str) -> None:
    unknown = next((token for token in token_ids if token >= model.vocab_size), None)
    if unknown is not None:
        raise bad_request(
            f"`{param}` has the token {unknown}; the vocabulary has {model.vocab_size} tokens.",
            param,
        )


async def push(
    assembler: ChoiceAssembler,
    index: int,
    token_ids: list[int],
    logprobs: list[Any] | None = None,
    finish_reason: str | None = None,
    stop_reason: str | int | None = None,
) -> ChoiceDelta:
    """What the next tokens of choice `index` make; `assembler` has not finished."""
    # A stop string ends the output here as it did there; what comes after is not read.
    by_string = finish_reason == "stop" and isinstance(stop_reason, str)
    reason = None if by_string else finish_reason
    stop_token = stop_reason if isinstance(stop_reason, int) else None
    last = max(0, len(token_ids) - 1) // PORTION_TOKENS * PORTION_TOKENS
    delta = ChoiceDelta(index, [], [], None, [])
    for start in range(0, last + 1, PORTION_TOKENS):
        part = slice(start, start + PORTION_TOKENS)
        entries = None if logprobs is None else logprobs[part]
        ends = reason if start == last else None
        delta.extend(assembler.push(_Output(index, token_ids[part], entries, ends, stop_token)))
        if assembler.finished:
            return delta
        await asyncio.sleep(0)
    if by_string:
        delta.extend(assembler.push(_Output(index, [], None, finish_reason)))
    return delta


def log_entries(
    model: ModelInfo, token_ids: Sequence[int], logprobs: ChoiceLogprobs, param: str
) -> list[Any]:
    """Log probabilities as the engine has them.

    Raises:
        ApiError: 400, about the field `param`: there are not as many as tokens, or alternatives
            are texts, or no tokens of `model`.
    """
    if len(logprobs.content) != len(token_ids):
        raise bad_request(f"`{param}` has log probabilities of other tokens.", param)
    entries = [
        _Entry(
            token_id,
            each.logprob,
            [(_token_id(top.token, param), top.logprob) for top in each.top_logprobs],
        )
        for token_id, each in zip(token_ids, logprobs.content, strict=True)
    ]
    _check_known(model, (token for entry in entries for token, _ in entry.top), param)
    return entries


def _token_id(text: str, param: str) -> int:
    number = text.removeprefix(_TOKEN)
    if not (text.startswith(_TOKEN) and number.isascii() and number.isdigit() and len(number) < 10):
        raise bad_request(
            f"`{param}`: the log probability of {text[:40]!r} is not one of `{_TOKEN}NUMBER`; send"
            " what `output_mode` `tokens` gives.",
            param,
        )
    return int(number)
