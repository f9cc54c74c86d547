"""The schemas of schemastore.org, as a cache of `requests` holds them."""

from __future__ import annotations

import io
import json
import pickle
import sqlite3
from pathlib import Path
from typing import Any


def real_schemas(database: Path) -> dict[str, Any]:
    """The responses that are JSON, by their addresses."""
    found: dict[str, Any] = {}
    with sqlite3.connect(database) as connection:
        for (value,) in connection.execute("SELECT value FROM responses ORDER BY key"):
            response = _Responses(io.BytesIO(value)).load()
            try:
                found[response["url"]] = json.loads(response["_content"])
            except ValueError:
                continue
    return found


class _Responses(pickle.Unpickler):
    """Reads plain values only; what else is in a response is an empty object."""

    def find_class(self, module: str, name: str) -> type[_Nothing]:
        """Nothing is looked up."""
        return _Nothing


class _Nothing:
    def __init__(self, *values: object) -> None:
        """Takes what comes."""

    def __setstate__(self, state: object) -> None:
        """Takes what comes."""
