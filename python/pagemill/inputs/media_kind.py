"""Kinds of media in prompts."""

from __future__ import annotations

from typing import Literal

MediaKind = Literal["image", "audio", "video"]
"""As limits, chat templates and placeholders tell media apart."""
