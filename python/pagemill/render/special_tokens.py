"""Names and files that say which tokens of a model are special."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object

_MAX_FILE_BYTES = 2**26
_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def tokens_from_gguf(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Returns template variables (`bos_token`, ...) from a GGUF file's metadata."""
    tokens = metadata["tokenizer.ggml.tokens"]
    found: dict[str, str] = {}
    for name, key in zip(_TOKEN_NAMES, ("bos", "eos", "unknown", "padding"), strict=False):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(index, int) and 0 <= index < len(tokens):
            found[name] = tokens[index]
    return found


def tokens_from_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Returns template variables from a `tokenizer_config.json`."""
    found: dict[str, str] = {}
    for name in _TOKEN_NAMES:
        if (text := token_text(config.get(name))) is not None:
            found[name] = text
    return found


def token_text(value: Any) -> str | None:
    """Returns the text of a token as files state it, as text or as a serialized AddedToken."""
    if (token := as_object(value)) is not None:
        value = token.get("content")
    return value if isinstance(value, str) else None


def end_ids(values: Any) -> list[int]:
    """Returns the ids of an `eos_token_id` field, which is an id, a list of them, or null."""
    if isinstance(values, int) and not isinstance(values, bool):
        return [values]
    return [value for value in as_array(values) or [] if isinstance(value, int)]


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in `path`, {} if there is no such file.

    Raises:
      RenderError: the file is not a JSON object, or larger than 64 MiB.
    """
    if not path.is_file():
        return {}
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise RenderError(f"{path} is larger than 64 MiB")
    try:
        value = as_object(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise RenderError(f"{path} is not JSON: {error}") from None
    if value is None:
        raise RenderError(f"{path} is not a JSON object")
    return dict(value)
