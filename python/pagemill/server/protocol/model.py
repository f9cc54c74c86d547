"""Bodies of `/v1/models`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pagemill.server.protocol.decode import FieldRules


class ModelName(msgspec.Struct):
    """The parameters of the path."""

    model: str


RULES = FieldRules(unsupported={}, ignored=frozenset())


class ModelCard(msgspec.Struct):
    """One served name, with the fields of both OpenAI's and Anthropic's API.

    `created` and `created_at` are the same time. `max_input_tokens` and `max_tokens` are
    `max_model_len`, the bound of both together. `input_modalities`: "text", and the kinds
    of media that messages may have, such as "image".
    """

    id: str
    created: int
    root: str
    max_model_len: int
    parent: str | None = None
    object: str = "model"
    owned_by: str = "pagemill"
    permission: list[str] = []
    created_at: str = ""
    display_name: str = ""
    lifecycle: str = "active"
    max_input_tokens: int = 0
    max_tokens: int = 0
    type: str = "model"
    input_modalities: tuple[str, ...] = ("text",)


class ModelList(msgspec.Struct):
    """All served names; in Anthropic's API, the only page."""

    data: list[ModelCard]
    object: str = "list"
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


def model_list(cards: Sequence[ModelCard]) -> ModelList:
    """A list of one page."""
    first, last = (cards[0].id, cards[-1].id) if cards else (None, None)
    return ModelList(list(cards), first_id=first, last_id=last)
