"""What a model's process reports to the parent."""

from __future__ import annotations

import msgspec

from pagemill.server.protocol.model import ModelCard


class NeedsMemory(msgspec.Struct, tag="needs_memory"):
    """It waits for an offer: the bytes of the host's memory that the model may use, before
    `memory_utilization`. `reason`: why the last offer is not enough, "" at first."""

    reason: str = ""


class Ready(msgspec.Struct, tag="ready"):
    """It serves. `host_bytes` of the host's memory it may use; `cards` are of its names."""

    host_bytes: int
    cards: list[ModelCard]


class Failed(msgspec.Struct, tag="failed"):
    """It cannot serve, and ends."""

    reason: str


Report = NeedsMemory | Ready | Failed
