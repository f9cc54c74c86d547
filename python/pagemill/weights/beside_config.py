"""Keys that a model reads as those of its configuration, and that are in files beside config.json:
those of its tokenizer, its processors and its generation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pagemill.weights.json_file import read_object

# Token ids, by `model_type`: the key, and the text of the token.
_TOKENS: Mapping[str, tuple[str, str]] = {
    "internvl": ("video_token_id", "<video>"),
    "internvl_chat": ("image_token_id", "<IMG_CONTEXT>"),
}
_TOKENIZER = "tokenizer.json"
# Model types that are served by processors of several classes, which files may name.
_PROCESSED = ("glm4v", "glm4v_moe")
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")
_CLASS = "processor_class"
# The key of generation_config.json that a model reads, by `model_type`.
_GENERATED = {"whisper": "alignment_heads"}
_GENERATION = "generation_config.json"


def keys_beside(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that `config` lacks and the files of `directory` have; of those, `processor_class`
    is that of the processor.

    Raises:
        WeightsError: a file is not a JSON object.
    """
    kind = str(config.get("model_type"))
    if kind in _TOKENS:
        key, text = _TOKENS[kind]
        return _token_id(directory / _TOKENIZER, key, text) if config.get(key) is None else {}
    if kind in _PROCESSED:
        return _processor_class(directory)
    if kind in _GENERATED and (directory / _GENERATION).is_file():
        key = _GENERATED[kind]
        value = read_object(directory / _GENERATION).get(key)
        return {key: value} if value is not None and config.get(key) is None else {}
    return {}


def _token_id(path: Path, key: str, text: str) -> dict[str, int]:
    added = read_object(path).get("added_tokens") if path.is_file() else None
    for token in cast("list[object]", added) if isinstance(added, list) else []:
        stated = cast("dict[str, object]", token) if isinstance(token, dict) else {}
        number = stated.get("id")
        if stated.get("content") == text and type(number) is int:
            return {key: number}
    return {}


def _processor_class(directory: Path) -> dict[str, str]:
    for path in (directory / name for name in _PROCESSORS):
        stated = read_object(path).get(_CLASS) if path.is_file() else None
        if isinstance(stated, str):
            return {_CLASS: stated}
    return {}
