"""Answers of the routes that say how the server is."""

from __future__ import annotations

from typing import Any

import msgspec


class Status(msgspec.Struct, omit_defaults=True):
    """What a probe reads. `engines`: of each, if there are several, whether it gets requests:
    `ready`, `stuck`, `restarting`, or `failed: ...` with what it cannot do."""

    status: str
    engines: list[str] = []


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
