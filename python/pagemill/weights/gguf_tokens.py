"""The special tokens of a GGUF file, and checks of its tokenizer's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagemill.weights.errors import WeightsError
from pagemill.weights.gguf import GgufFile
from pagemill.weights.json_file import shown

_TOKENIZER = "tokenizer.ggml."
_TOKENIZER_TYPES: dict[str, tuple[type, type | None]] = {
    "merges": (list, str),
    "model": (str, None),
    "pre": (str, None),
    "scores": (list, float),
    "token_type": (list, int),
    "tokens": (list, str),
}
_CONTROL = 3  # of token_type
_ENDS_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>")
_MAX_PIECE_CHARS, _MAX_PIECES_CHARS = 2**10, 2**23  # 8 and 4 times the largest known


def _check_tokenizer(gguf: GgufFile) -> None:
    """Checks the types of the tokenizer's metadata, and bounds its pieces: merges follow from every
    way to split a piece in two."""
    for key, value in gguf.metadata.items():
        name = key.removeprefix(_TOKENIZER)
        kind, items = _TOKENIZER_TYPES.get(name, (None, None))
        if kind is None or name == key:
            continue
        # All items of a GGUF array have one type.
        if type(value) is not kind or (items and value and type(value[0]) is not items):
            raise WeightsError(f"{gguf.path}: {key} is of the wrong type: {shown(value)}")
    pieces = gguf.metadata.get(f"{_TOKENIZER}tokens") or [""]
    if max(map(len, pieces)) > _MAX_PIECE_CHARS or sum(map(len, pieces)) > _MAX_PIECES_CHARS:
        raise WeightsError(
            f"{gguf.path}: {_TOKENIZER}tokens has tokens of more than {_MAX_PIECE_CHARS}"
            f" characters, or more than {_MAX_PIECES_CHARS} together"
        )


def read_tokens(gguf: GgufFile) -> dict[str, Any]:
    """Token ids, as in a config.json; a chat model may end a turn with another token than a text.

    Raises:
        WeightsError: metadata of the tokenizer is of the wrong type, or too long.
    """
    metadata = gguf.metadata
    prefix = _TOKENIZER
    _check_tokenizer(gguf)
    ends = [metadata.get(f"{prefix}{kind}_token_id") for kind in ("eos", "eot", "eom")]
    ends += _ends_of_text(metadata)
    config: dict[str, Any] = {"eos_token_id": sorted({end for end in ends if type(end) is int})}
    for name, key in (("bos_token_id", "bos"), ("pad_token_id", "padding")):
        value = metadata.get(f"{prefix}{key}_token_id")
        if type(value) is int:
            config[name] = value
    return config


def _ends_of_text(metadata: Mapping[str, Any]) -> list[int]:
    """The file names the end of a turn as a chat model's `eos`, which may also end the text."""
    pieces: list[str] = metadata.get(f"{_TOKENIZER}tokens") or []
    kinds: list[int] = metadata.get(f"{_TOKENIZER}token_type") or []
    found = [pieces.index(piece) for piece in _ENDS_OF_TEXT if piece in pieces]
    return [index for index in found if kinds[index : index + 1] == [_CONTROL]]
