"""Bodies of `/v1/models`."""

from __future__ import annotations

import msgspec

from pagemill.server.protocol.decode import FieldRules


class ModelName(msgspec.Struct):
    """The parameters of the path."""

    model: str


RULES = FieldRules(unsupported={}, ignored=frozenset())


class ModelCard(msgspec.Struct):
    """One served name."""

    id: str
    created: int
    root: str
    max_model_len: int
    parent: str | None = None
    object: str = "model"
    owned_by: str = "pagemill"
    permission: list[str] = []


class ModelList(msgspec.Struct):
    """All served names."""

    data: list[ModelCard]
    object: str = "list"
