"""Tokens that another server generated for a rendered chat, as that chat's answer.

The prompt is rendered again, because how it ends says whether the output begins with reasoning;
what the tokens say is then read by the same parser and written by the same wording as a chat's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from pagemill.render.assembly import ChoiceAssembler
from pagemill.server.access.caller import Caller
from pagemill.server.chat import checked_chat
from pagemill.server.chat_wording import ChatWording
from pagemill.server.errors import bad_request
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.chat import ChatRequest, ChatResponse, ChoiceLogprobs
from pagemill.server.protocol.derender import DerenderRequest, Generated, GeneratedChoice
from pagemill.server.protocol.usage import PromptTokensDetails, Usage
from pagemill.server.records.timings import RequestTimings
from pagemill.server.respond import FoldedChoice

_MAX_TOKENS = 2**16  # of all choices: they are read while the server waits
_TOKEN = "token_id:"


@dataclass(frozen=True, slots=True)
class _Finished:
    """Implements `respond.Generated`."""

    prompts: Sequence[np.ndarray]
    num_choices: int
    usage: Usage
    kv_transfer_params: dict[str, str]
    timings: RequestTimings = field(default_factory=RequestTimings)

    @property
    def prompt_usage(self) -> Usage:
        """Streams have one."""
        return self.usage


class _Output(msgspec.Struct):
    """Implements `assembly.TokenOutput`."""

    index: int
    token_ids: list[int]
    logprobs: list[Any] | None
    finish_reason: str | None
    stop_token_id: int | None = None


class _Entry(msgspec.Struct):
    """Implements `engine.outputs.TokenLogprobs`; the rank is not known, and no chat says it."""

    token_id: int
    logprob: float
    top: list[tuple[int, float]]
    rank: int = 0


async def derender_chat(
    pipeline: Pipeline, chat: ChatRequest, body: DerenderRequest, caller: Caller
) -> ChatResponse:
    """The chat's answer.

    Raises:
        ApiError: the chat cannot be served, or the tokens are not an answer to it.
    """
    generated = body.generate_response
    _check(pipeline, chat, generated)
    prompt, sampling, options = await checked_chat(pipeline, chat, caller)
    (fitted,) = pipeline.fit([prompt], options)
    token_ids = fitted.rendered.token_ids
    choices: list[FoldedChoice] = []
    for index, choice in enumerate(generated.choices):
        assembler = pipeline.assembler(token_ids, sampling, options)
        choices.append(_folded(index, choice, assembler))
        await asyncio.sleep(0)  # others may run
    finished = _Finished(
        prompts=[token_ids],
        num_choices=len(choices),
        usage=generated.usage or _usage(len(token_ids), generated),
        kv_transfer_params=generated.kv_transfer_params,
    )
    wording = ChatWording(pipeline, chat, f"chatcmpl-{body.request_id}", finished)
    return wording.whole(choices)


def _check(pipeline: Pipeline, chat: ChatRequest, generated: Generated) -> None:
    if chat.stream:
        raise bad_request("`chat_request.stream` must be false.", "chat_request")
    sizes = [len(choice.token_ids) for choice in generated.choices]
    if max(sizes) > pipeline.model.max_model_len or sum(sizes) > _MAX_TOKENS:
        raise bad_request(
            f"`generate_response` has {sum(sizes)} tokens, one choice {max(sizes)}; at most"
            f" {_MAX_TOKENS} are read, of a choice {pipeline.model.max_model_len}.",
            "generate_response",
        )
    for choice in generated.choices:
        unknown = [token for token in choice.token_ids if token >= pipeline.model.vocab_size]
        if unknown:
            raise bad_request(
                f"`generate_response` has the token {unknown[0]}; the vocabulary has"
                f" {pipeline.model.vocab_size} tokens.",
                "generate_response",
            )


def _folded(index: int, choice: GeneratedChoice, assembler: ChoiceAssembler) -> FoldedChoice:
    """The choice, complete."""
    folded = FoldedChoice(index)
    logprobs = None if choice.logprobs is None else _entries(choice.token_ids, choice.logprobs)
    # A stop string ends the output here as it did there; what comes after is not read.
    by_string = choice.finish_reason == "stop" and isinstance(choice.stop_reason, str)
    reason = None if by_string else choice.finish_reason
    stop_token = choice.stop_reason if isinstance(choice.stop_reason, int) else None
    folded.add(assembler.push(_Output(index, choice.token_ids, logprobs, reason, stop_token)))
    if not assembler.finished:
        folded.add(assembler.push(_Output(index, [], None, choice.finish_reason)))
    return folded


def _entries(token_ids: Sequence[int], logprobs: ChoiceLogprobs) -> list[_Entry]:
    """Log probabilities as the engine has them.

    Raises:
        ApiError: 400: there are not as many as tokens, or alternatives are texts.
    """
    if len(logprobs.content) != len(token_ids):
        raise bad_request(
            "`generate_response` has log probabilities of other tokens.", "generate_response"
        )
    return [
        _Entry(
            token_id,
            each.logprob,
            [(_token_id(top.token), top.logprob) for top in each.top_logprobs],
        )
        for token_id, each in zip(token_ids, logprobs.content, strict=True)
    ]


def _token_id(text: str) -> int:
    number = text.removeprefix(_TOKEN)
    if not (text.startswith(_TOKEN) and number.isascii() and number.isdigit() and len(number) < 10):
        raise bad_request(
            f"`generate_response`: the log probability of {text[:40]!r} is not one of"
            f" `{_TOKEN}NUMBER`; send the answer that `output_mode` `tokens` gives.",
            "generate_response",
        )
    return int(number)


def _usage(prompt_tokens: int, generated: Generated) -> Usage:
    tokens = sum(len(choice.token_ids) for choice in generated.choices)
    return Usage(prompt_tokens, tokens, prompt_tokens + tokens, PromptTokensDetails(0))
