"""Bodies of `/score` and `/rerank`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pagemill.server.protocol.completion import MAX_PROMPTS
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only
from pagemill.server.protocol.pooling import COMMON_IGNORED, PoolingFields, PoolingUsage

MAX_DOCUMENTS = MAX_PROMPTS
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Texts = str | Annotated[list[str], Meta(min_length=1, max_length=MAX_DOCUMENTS)]


class ScoringFields(PoolingFields, kw_only=True):
    """What both have; without `use_activation` a cross-encoder gives logits. The `instruction` is
    for models whose template takes one. The most tokens of a query and of a document are those
    before special tokens are added; 0 = all."""

    use_activation: bool = True
    instruction: Annotated[str, Meta(max_length=2**16)] = ""
    max_tokens_per_query: Count = 0
    max_tokens_per_doc: Count = 0


class ScoreRequest(ScoringFields, kw_only=True):
    """The request: each query is compared with the document of its index, a single one with every
    document. They are `queries` and `documents`, `queries` and `items`, `text_1` and `text_2`, or
    `data_1` and `data_2`."""

    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    text_1: Texts | None = None
    text_2: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None


class Document(msgspec.Struct):
    """A document of `/rerank`."""

    text: str


class RerankRequest(ScoringFields, kw_only=True):
    """The request: `top_n` documents that fit `query` best; 0 = all."""

    query: str
    documents: Annotated[list[str | Document], Meta(min_length=1, max_length=MAX_DOCUMENTS)]
    top_n: Count = 0
    return_documents: bool = True


RULES = FieldRules(
    unsupported={
        "chat_template": Unsupported(nothing, "it would run on the server."),
        "padding": Unsupported(only("do_not_pad"), "texts are not padded."),
    },
    ignored=COMMON_IGNORED,
)


class Score(msgspec.Struct):
    """How well a document fits its query."""

    index: int
    score: float
    object: str = "score"


class ScoreResponse(msgspec.Struct):
    """The response."""

    id: str
    created: int
    model: str
    data: list[Score]
    usage: PoolingUsage
    object: str = "list"


class RankedDocument(msgspec.Struct, omit_defaults=True):
    """A document, by its index in the request; its text unless it was not wanted."""

    index: int
    relevance_score: float
    document: Document | None = None


class RerankResponse(msgspec.Struct):
    """The response, the best document first."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: PoolingUsage
