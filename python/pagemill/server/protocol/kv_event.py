"""Bodies of `/kv_events`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules

MAX_EVENTS = 10_000
MAX_WAIT_S = 60.0


class KvEventsRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A poll: the events from number `sequence` on, at most `max_events` of them. Without any, the
    answer comes when there is one, or after `timeout_s`."""

    sequence: Annotated[int, Meta(ge=1, le=2**62)] = 1
    max_events: Annotated[int, Meta(ge=1, le=MAX_EVENTS)] = 1000
    timeout_s: Annotated[float, Meta(ge=0, le=MAX_WAIT_S)] = 0.0
    request_id: str = ""


RULES = FieldRules(unsupported={}, ignored=frozenset())


class KvEvent(msgspec.Struct):
    """Blocks that came to the prefix cache, or went. Tokens are not shown: they are prompts."""

    type: Literal["stored", "removed", "cleared"]
    group: int
    """Group of layers whose cache it is."""
    medium: str
    """Where the blocks are: "pool", or the name of a tier."""
    block_size: int
    """In tokens; of stored blocks only."""
    hashes: list[str]
    """Hexadecimal; how they are made stands in cc/kv_cache/block_hash.h."""


class KvEvents(msgspec.Struct):
    """The answer to a poll."""

    log_id: str
    """Another one than before: the engine was started anew, with an empty cache and events from
    number 1."""
    next: int
    """The next poll's `sequence`."""
    dropped: int
    """Events before these that are not kept any more (`--max-kv-events`)."""
    events: list[KvEvent]
