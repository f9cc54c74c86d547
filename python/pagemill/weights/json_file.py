"""Reads JSON files of a model directory, which are small but not trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from pagemill.weights.errors import WeightsError, lfs_hint

# The largest known are headers and index files of 10 MB, of checkpoints with 10^5 tensors.
MAX_JSON_BYTES = 2**25


def read_json(path: Path) -> Any:
    """The value in the file `path`.

    Raises:
        WeightsError: it cannot be read, is larger than MAX_JSON_BYTES, or is not JSON.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}") from error
    return parse_json(data, str(path))


def read_object(path: Path) -> dict[str, Any]:
    """The object in the file `path`.

    Raises:
        WeightsError: as `read_json`, or the value is not an object.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise WeightsError(f"{path}: not a JSON object")
    return cast("dict[str, Any]", value)


def parse_json(data: bytes, what: str) -> Any:
    """The value in `data`; `what` names it in errors.

    Raises:
        WeightsError: as `read_json`.
    """
    if len(data) > MAX_JSON_BYTES:
        raise WeightsError(f"{what}: more than {MAX_JSON_BYTES} bytes of JSON")
    try:
        return json.loads(data)
    except ValueError as error:
        raise WeightsError(f"{what}: not JSON{lfs_hint(data) or f': {error}'}") from error
    except RecursionError as error:
        raise WeightsError(f"{what}: its JSON is nested too deep") from error


def shown(value: object) -> str:
    """`value` for an error message, shortened."""
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return f"{value!r:.60}"
