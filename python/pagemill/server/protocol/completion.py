"""Bodies of `/v1/completions`."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagemill.server.errors import bad_request, invalid_body
from pagemill.server.protocol.chat import PromptLogprobs
from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.sampling import (
    IGNORED,
    UNSUPPORTED,
    Count,
    GenerationRequest,
    Logprobs,
    Positive,
)
from pagemill.server.protocol.usage import Usage
from pagemill.server.records.timings import RequestTimings

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 2048


class CompletionRequest(GenerationRequest, kw_only=True, frozen=True):
    """The request. `prompt` has four shapes; `prompts` sorts them out. `prompt_embeds` has prompts
    that are embeddings, in place of others or in front of them. With `suffix`, what is generated
    goes between each prompt and it. An encoder-decoder's encoder reads the prompt, and its decoder
    begins with `decoder_prompt`, a text or token ids."""

    prompt: Any = None
    prompt_embeds: str | Annotated[list[str], Meta(max_length=MAX_PROMPTS)] = []
    suffix: str = ""
    decoder_prompt: str | list[int] = ""
    max_tokens: Count | None = None
    logprobs: Logprobs | None = None
    best_of: Positive | None = None
    echo: bool = False
    add_special_tokens: bool = True
    parse_special: bool = True

    @property
    def embeds(self) -> list[str]:
        """The tensors of `prompt_embeds`, each in base64."""
        sent = self.prompt_embeds
        return [sent] if isinstance(sent, str) else sent


RULES = FieldRules(
    unsupported={name: rule for name, rule in UNSUPPORTED.items() if name != "prompt_embeds"},
    ignored=IGNORED,
)

TextOrIds = str | list[int]


def prompts(prompt: object, param: str = "prompt") -> list[TextOrIds]:
    """The prompts of a request: a string, token ids, or a list of either.

    Raises:
        ApiError: 400 for none, another shape, or more than MAX_PROMPTS.
    """
    if prompt is None:
        raise invalid_body(f"`{param}` is required.", param)
    if isinstance(prompt, str):
        return [prompt]
    items = cast(list[Any], prompt) if isinstance(prompt, list) else []
    if not items:
        raise invalid_body(
            f"`{param}` must be a string, a list of strings, a list of token ids, or a list of"
            " lists of token ids, and not be empty.",
            param,
        )
    if _are_ids(items):
        return [items]
    if len(items) > MAX_PROMPTS:
        raise bad_request(
            f"`{param}` has {len(items)} prompts; at most {MAX_PROMPTS} are allowed.", param
        )
    for at, item in enumerate(items):
        if not isinstance(item, str) and not _are_ids(item):
            raise invalid_body(f"`{param}[{at}]` must be a string or a list of token ids.", param)
    return items


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in cast(list[Any], value))


class CompletionLogprobs(msgspec.Struct):
    """`logprobs` of a choice: parallel lists, one entry per token."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(msgspec.Struct):
    """A choice, complete or a part of one."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | None | UnsetType = UNSET
    routed_experts: str | UnsetType = UNSET


class CompletionResponse(msgspec.Struct):
    """A response, or one event of a stream."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    object: str = "text_completion"
    system_fingerprint: str = ""
    usage: Usage | UnsetType = UNSET
    kv_transfer_params: dict[str, str] | UnsetType = UNSET
    metrics: RequestTimings | UnsetType = UNSET
