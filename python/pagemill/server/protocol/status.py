"""Answers of the routes that say how the server is."""

from __future__ import annotations

from typing import Any

import msgspec


class Status(msgspec.Struct):
    """What a probe reads."""

    status: str


class Version(msgspec.Struct):
    """Of the program."""

    version: str


METRICS = str
"""Prometheus's exposition text."""
DOCUMENT = dict[str, Any]
"""An object of any fields."""
