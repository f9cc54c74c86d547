"""Bodies of the routes of several models: which there are, and an operator's requests about one."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.model import ModelCard


class HostedModelStatus(msgspec.Struct, omit_defaults=True):
    """Where a model is. `reason`: why it has failed, or what keeps it from being loaded."""

    value: Literal["unloaded", "loading", "loaded", "unloading", "failed"]
    reason: str = ""


class HostedModelCard(ModelCard, kw_only=True):
    """A name and the status of its model. `max_model_len` is 0, and `input_modalities` is "text",
    until the model was loaded once."""

    status: HostedModelStatus


class HostedModelList(msgspec.Struct, kw_only=True):
    """All names; in Anthropic's API, the only page."""

    data: list[HostedModelCard]
    object: str = "list"
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


class HostedModelRequest(msgspec.Struct, kw_only=True):
    """Names the model to load or unload."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]


class HostedModelState(msgspec.Struct, kw_only=True):
    """The status of a model after an operator's request."""

    model: str
    status: HostedModelStatus


RULES = FieldRules(unsupported={}, ignored=frozenset())
