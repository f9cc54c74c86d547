"""Bodies of `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only

MAX_TOKENS = 2**20


class TokenizeRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A text, or messages for the chat template. `add_special_tokens` is true for a text, and
    false for messages, unless it is stated."""

    prompt: str | None = None
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=16384)] | None = None
    model: str | None = None
    add_special_tokens: bool | None = None
    parse_special: bool = True
    return_token_strs: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    tools: list[dict[str, Any]] = []


class DetokenizeRequest(msgspec.Struct, kw_only=True, frozen=True):
    """Token ids."""

    tokens: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=MAX_TOKENS)]
    model: str | None = None


RULES = FieldRules(
    unsupported={
        "chat_template": Unsupported(nothing, "start the server with --chat-template."),
        "mm_processor_kwargs": Unsupported(
            only({}), "start the server with --mm-processor-kwargs."
        ),
        "media_io_kwargs": Unsupported(only({}), "start the server with --media-io-kwargs."),
    },
    ignored=frozenset({"user"}),
)


class TokenizeResponse(msgspec.Struct):
    """The tokens of a prompt; `token_strs` are their texts, if those were requested."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeResponse(msgspec.Struct):
    """The text, control tokens included."""

    prompt: str


TOKEN_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token")


class TokenizerInfo(msgspec.Struct):
    """The tokenizer and the chat template; null if the model has none."""

    vocab_size: int
    model_max_length: int
    chat_template: str | None
    bos_token: str | None = None
    eos_token: str | None = None
    pad_token: str | None = None
    unk_token: str | None = None
