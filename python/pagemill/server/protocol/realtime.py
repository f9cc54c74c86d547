"""Events of `/v1/realtime`: those of OpenAI's API, of which answers are text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules

_Name = Annotated[str, Meta(max_length=512)]


class ConnectRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The query of the handshake."""

    model: str | None = None
    intent: Literal["transcription"] | None = None


RULES = FieldRules(unsupported={}, ignored=frozenset())


class ClientEvent(msgspec.Struct, kw_only=True, frozen=True):
    """What a client says. Which fields count depends on `type`; `model` and `final` are the
    reference system's."""

    type: Annotated[str, Meta(max_length=100)]
    event_id: _Name | None = None
    audio: str = ""
    final: bool = True
    model: _Name | None = None
    session: dict[str, Any] = {}
    item: dict[str, Any] | None = None
    item_id: _Name | None = None
    previous_item_id: _Name | None = None
    response: dict[str, Any] = {}
    response_id: _Name | None = None


class EventError(msgspec.Struct, kw_only=True):
    """Why an event was refused, or a response failed."""

    type: str
    code: str | None
    message: str
    param: str | None = None
    event_id: str | None = None
