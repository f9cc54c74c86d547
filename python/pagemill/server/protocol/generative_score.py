"""Bodies of `/generative_scoring`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pagemill.config.sampling import INT32_MAX
from pagemill.server.protocol.completion import MAX_PROMPTS
from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.sampling import Timeout, TokenId
from pagemill.server.protocol.score import Score
from pagemill.server.protocol.usage import Usage

MAX_LABELS = 64


class GenerativeScoreRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The request. `query` and `items` are texts, or all of them token ids."""

    query: str | list[TokenId]
    items: Annotated[list[str | list[TokenId]], Meta(min_length=1, max_length=MAX_PROMPTS)]
    label_token_ids: Annotated[list[TokenId], Meta(min_length=1, max_length=MAX_LABELS)]
    apply_softmax: bool = True
    item_first: bool = False
    add_special_tokens: bool = True
    model: str | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    priority: Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)] = 0
    timeout: Timeout | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""


RULES = FieldRules(unsupported={}, ignored=frozenset({"user"}))


class GenerativeScoreResponse(msgspec.Struct):
    """The response: a score for each item."""

    id: str
    created: int
    model: str
    data: list[Score]
    usage: Usage
    object: str = "list"
