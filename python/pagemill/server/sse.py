"""Server-sent events: one per token, encoded where they arise."""

from __future__ import annotations

DONE = b"data: [DONE]\n\n"


def event(payload: bytes) -> bytes:
    """One event whose data is `payload`, which holds no line break (JSON never does)."""
    return b"data: " + payload + b"\n\n"
