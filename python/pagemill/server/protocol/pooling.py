"""Bodies of `/pooling`, and what bodies of models that pool have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.chat import Messages
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only
from pagemill.server.protocol.sampling import Timeout

ElementType = Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"]
Endianness = Literal["native", "little", "big"]
PoolingTask = Literal["embed", "classify", "token_embed", "token_classify", "plugin"]
Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class PoolingFields(msgspec.Struct, kw_only=True):
    """What all requests have."""

    model: str | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    truncation_side: Literal["left", "right"] = "right"
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31) + 1, le=2**31 - 1)] = 0
    timeout: Timeout | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""


class InputFields(PoolingFields, kw_only=True):
    """A request has `input` or `messages`, a chat. `add_special_tokens` is by default true for
    `input`, and false for a chat, whose template writes them."""

    input: Any = None
    messages: Messages | None = None
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    add_special_tokens: bool | None = None


class EncodedFields(InputFields, kw_only=True):
    """How vectors are written; `sparse` is for models whose vectors are. `bytes` and `bytes_only`
    make the response a `Binary`."""

    encoding_format: Literal["float", "base64", "sparse", "bytes", "bytes_only"] = "float"
    embed_dtype: ElementType = "float32"
    endianness: Endianness = "little"
    dimensions: Size | None = None


class PoolingRequest(EncodedFields, kw_only=True):
    """The request. `task`, if it is given, is the model's; without `use_activation` a classifier
    gives logits. `data` is in place of `input`, for the server's plugin (`--io-processor-plugin`),
    with the task "plugin" or none."""

    task: PoolingTask | None = None
    use_activation: bool = True
    data: Any = None


COMMON_UNSUPPORTED = {
    "chat_template": Unsupported(nothing, "it would run on the server."),
    "padding": Unsupported(only("do_not_pad"), "texts are not padded."),
    "mm_processor_kwargs": Unsupported(only({}), "start the server with --mm-processor-kwargs."),
    "media_io_kwargs": Unsupported(only({}), "start the server with --media-io-kwargs."),
}
COMMON_IGNORED = frozenset({"user"})
RULES = FieldRules(
    unsupported={
        **COMMON_UNSUPPORTED,
        "normalize": Unsupported(only(True), "the model decides."),
    },
    ignored=COMMON_IGNORED,
)


class PoolingUsage(msgspec.Struct):
    """`usage`: nothing is generated."""

    prompt_tokens: int
    total_tokens: int


class SparseVector(msgspec.Struct):
    """The elements of a vector that are not 0, in the order of their indices, which are ids of
    tokens."""

    indices: list[int]
    values: list[float]


class PooledData(msgspec.Struct):
    """The row of one input, or a row for each of its tokens; or base64 of the rows' numbers."""

    index: int
    data: list[float | list[float]] | str | SparseVector
    object: str = "pooling"


class BinaryItem(msgspec.Struct):
    """Where the rows of one input are: elements of `shape`, in bytes from `start` to `end`."""

    index: int
    embed_dtype: ElementType
    endianness: Endianness
    start: int
    end: int
    shape: tuple[int, ...]


class BinaryMetadata(msgspec.Struct):
    """What describes a response in bytes."""

    id: str
    created: int
    model: str
    data: list[BinaryItem]
    usage: PoolingUsage


class PluginResponse(msgspec.Struct):
    """The response to `data`, as the server's plugin makes it."""

    request_id: str
    created_at: int
    data: msgspec.Raw


class PoolingResponse(msgspec.Struct):
    """The response."""

    id: str
    created: int
    model: str
    data: list[PooledData]
    usage: PoolingUsage
    object: str = "list"


POOLED = PoolingResponse | PluginResponse
"""The second one if the request has `data`."""
