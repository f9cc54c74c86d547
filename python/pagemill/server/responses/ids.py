"""Ids of responses and their items."""

from __future__ import annotations

import secrets


def new_id(prefix: str) -> str:
    """An id that cannot be guessed."""
    return f"{prefix}_{secrets.token_hex(24)}"
