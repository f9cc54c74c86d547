"""Bodies of `/v1/embeddings`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.chat import Messages
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only
from pagemill.server.protocol.sampling import Timeout

ElementType = Literal["float32", "float16", "bfloat16"]


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """The request, which has `input` or `messages`, a chat. `add_special_tokens` is by default true
    for `input`, and false for a chat, whose template writes them."""

    input: Any = None
    messages: Messages | None = None
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    embed_dtype: ElementType = "float32"
    endianness: Literal["native", "little", "big"] = "little"
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    truncation_side: Literal["left", "right"] = "right"
    add_special_tokens: bool | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31) + 1, le=2**31 - 1)] = 0
    timeout: Timeout | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""


RULES = FieldRules(
    unsupported={
        "chat_template": Unsupported(nothing, "it would run on the server."),
        "normalize": Unsupported(only(True), "the model decides."),
        "use_activation": Unsupported(only(True), "the model decides."),
        "padding": Unsupported(only("do_not_pad"), "texts are not padded."),
    },
    ignored=frozenset({"user", "mm_processor_kwargs"}),
)


class EmbeddingUsage(msgspec.Struct):
    """`usage`: nothing is generated."""

    prompt_tokens: int
    total_tokens: int


class Embedding(msgspec.Struct):
    """One vector: floats, or base64 of `embed_dtype`."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingResponse(msgspec.Struct):
    """The response."""

    id: str
    created: int
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage
    object: str = "list"
