"""The prompts of a data set: a file with a JSON object on each line.

{"prompt": "Why is the sky blue?", "max_tokens": 100}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from pagemill.benchmark.load_generator import Request
from pagemill.config import ConfigError

_MAX_LINE_BYTES = 2**20
_MAX_BYTES = 2**28
_MAX_TOKENS = 10**6


def read_dataset(path: str, count: int, output_len: int) -> list[Request]:
    """Returns the first `count` requests of a file, or all if it has fewer. Empty lines and other
    fields than "prompt" and "max_tokens" are skipped.

    Args:
      path: the file.
      count: how many requests are needed; lines after them are not read.
      output_len: output tokens of a line without "max_tokens".

    Raises:
      ConfigError: the file cannot be read, has no request, or a line is not one.
    """
    found: list[Request] = []
    try:
        with Path(path).open("rb") as file:
            number = 0
            while len(found) < count and (line := file.readline(_MAX_LINE_BYTES + 1)):
                number += 1
                if len(line) > _MAX_LINE_BYTES:
                    raise _error(path, number, "longer than 1 MiB")
                if file.tell() > _MAX_BYTES:
                    raise _error(path, number, "more than 256 MiB: lower --num-prompts")
                if line.strip():
                    found.append(_request(line, path, number, output_len))
    except OSError as error:
        raise ConfigError(f"--dataset {path}: {error.strerror or error}") from None
    if not found:
        raise ConfigError(f"--dataset {path}: it has no requests")
    return found


def _request(line: bytes, path: str, number: int, output_len: int) -> Request:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise _error(path, number, "it is not JSON") from None
    entry = cast(dict[str, Any], value if isinstance(value, dict) else {})
    prompt = entry.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise _error(path, number, 'expected an object with a text "prompt" that is not empty')
    tokens = entry.get("max_tokens", output_len)
    if type(tokens) is not int or not 1 <= tokens <= _MAX_TOKENS:
        raise _error(path, number, f'"max_tokens" is not an integer from 1 to {_MAX_TOKENS}')
    return Request(prompt, tokens)


def _error(path: str, line: int, what: str) -> ConfigError:
    return ConfigError(f"--dataset {path}, line {line}: {what}")
