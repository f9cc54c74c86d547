"""Bodies of `/score` and `/rerank`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pagemill.server.protocol.completion import MAX_PROMPTS
from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.pooling import (
    COMMON_IGNORED,
    COMMON_UNSUPPORTED,
    PoolingFields,
    PoolingUsage,
)

MAX_DOCUMENTS = MAX_PROMPTS
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Parts = Annotated[list[dict[str, Any]], Meta(min_length=1)]
"""Those of a chat's message: texts, images, ..."""


class ContentFields(msgspec.Struct):
    """A query or a document: a `text`, or a `content` of parts; one of both."""

    text: str | None = None
    content: Parts | None = None


Content = str | ContentFields
Contents = Content | Annotated[list[Content], Meta(min_length=1, max_length=MAX_DOCUMENTS)]


class ScoringFields(PoolingFields, kw_only=True):
    """What both have; without `use_activation` a cross-encoder gives logits. The `instruction` is
    for models whose template takes one, and `chat_template_kwargs` are further variables of a
    template. The most tokens of a query and of a document are those before special tokens are
    added; 0 = all."""

    use_activation: bool = True
    chat_template_kwargs: dict[str, Any] = {}
    instruction: Annotated[str, Meta(max_length=2**16)] = ""
    max_tokens_per_query: Count = 0
    max_tokens_per_doc: Count = 0


class ScoreRequest(ScoringFields, kw_only=True):
    """The request: each query is compared with the document of its index, a single one with every
    document. They are `queries` and `documents`, `queries` and `items`, `text_1` and `text_2`, or
    `data_1` and `data_2`."""

    queries: Contents | None = None
    documents: Contents | None = None
    items: Contents | None = None
    text_1: Contents | None = None
    text_2: Contents | None = None
    data_1: Contents | None = None
    data_2: Contents | None = None


class RerankRequest(ScoringFields, kw_only=True):
    """The request: `top_n` documents that fit `query` best; 0 = all."""

    query: Content
    documents: Contents
    top_n: Count = 0
    return_documents: bool = True


RULES = FieldRules(unsupported=COMMON_UNSUPPORTED, ignored=COMMON_IGNORED)


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


class Document(msgspec.Struct, omit_defaults=True):
    """A document of `/rerank`: its `text`, or its parts."""

    text: str | None = None
    multi_modal: list[dict[str, Any]] | None = None


class RankedDocument(msgspec.Struct, omit_defaults=True):
    """A document, by its index in the request; its content unless it was not wanted."""

    index: int
    relevance_score: float
    document: Document | None = None


class RerankResponse(msgspec.Struct):
    """The response, the best document first."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: PoolingUsage
