"""Bodies of `/v2/embed`, Cohere's API of embeddings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagemill.config.sampling import INT32_MAX
from pagemill.server.protocol.completion import MAX_PROMPTS
from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.pooling import Size
from pagemill.server.protocol.sampling import Timeout

EmbeddingType = Literal["float", "base64", "binary", "ubinary"]
InputType = Literal["search_document", "search_query", "classification", "clustering", "image"]
MAX_PARTS = 64


class Input(msgspec.Struct, kw_only=True, frozen=True):
    """An input of parts, `text` and `image_url`."""

    content: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=MAX_PARTS)]


class CohereEmbedRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The request: `texts`, `images` (their URLs) or `inputs`. `truncate` is the end at which a
    text is cut to `max_tokens`, or to what fits. Without `embedding_types` there is `float`."""

    model: str | None = None
    input_type: InputType | None = None
    texts: Annotated[list[str], Meta(min_length=1, max_length=MAX_PROMPTS)] | None = None
    images: Annotated[list[str], Meta(min_length=1, max_length=MAX_PROMPTS)] | None = None
    inputs: Annotated[list[Input], Meta(min_length=1, max_length=MAX_PROMPTS)] | None = None
    output_dimension: Size | None = None
    embedding_types: Annotated[list[EmbeddingType], Meta(max_length=4)] = []
    truncate: Literal["NONE", "START", "END"] = "END"
    max_tokens: Size | None = None
    priority: Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)] = 0
    timeout: Timeout | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""


RULES = FieldRules(unsupported={}, ignored=frozenset())


_Vectors = list[list[float]]  # below, `float` is a field


class Embeddings(msgspec.Struct):
    """The vectors of all inputs, by type: numbers; base64 of little-endian float32; a bit for each
    element, 1 if it is positive, eight to a number, which is signed (`binary`) or not."""

    float: _Vectors | UnsetType = UNSET
    base64: list[str] | UnsetType = UNSET
    binary: list[list[int]] | UnsetType = UNSET
    ubinary: list[list[int]] | UnsetType = UNSET


class ApiVersion(msgspec.Struct):
    """That of Cohere's API."""

    version: str = "2"


class BilledUnits(msgspec.Struct):
    """Tokens of all inputs."""

    input_tokens: int


class EmbedMeta(msgspec.Struct):
    """`meta`."""

    billed_units: BilledUnits
    api_version: ApiVersion = msgspec.field(default_factory=ApiVersion)


class CohereEmbedResponse(msgspec.Struct):
    """The response."""

    id: str
    embeddings: Embeddings
    texts: list[str]
    meta: EmbedMeta
    response_type: str = "embeddings_by_type"
