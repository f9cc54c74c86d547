"""Answers of the routes that say how the server is."""

from __future__ import annotations

from typing import Any

import msgspec


class Status(msgspec.Struct):
    """What a probe reads."""

    status: str


class Load(msgspec.Struct):
    """API requests whose response is not complete, of this process."""

    server_load: int


class Version(msgspec.Struct):
    """Of the program."""

    version: str


METRICS = str
"""Prometheus's exposition text."""
DOCUMENT = dict[str, Any]
"""An object of any fields."""
