"""A tokenizer from the files of Mistral's own format: `tekken.json`, or a SentencePiece model.

Tekken is byte-level BPE: the vocabulary is a list of byte strings, the first ids are control
tokens', and the order of merges is that of the ids. A SentencePiece model is a Protocol Buffer with
the pieces, their scores and kinds, which GGUF files keep in the same terms.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, processors

from pagemill.render.byte_vocabulary import MAX_TOKENS, byte_tokenizer
from pagemill.render.errors import RenderError
from pagemill.render.gguf_tokenizer import tokenizer_from_gguf
from pagemill.render.json_values import as_array, as_object
from pagemill.render.special_tokens import read_json

TEKKEN = "tekken.json"
_SENTENCEPIECE = ("tokenizer.model.v[0-9]*", "*.model.v[0-9]*", "tokenizer.model")
_MAX_MODEL_BYTES = 2**26
_BPE = 2
FIRST_TOKENS = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)
"""Control tokens of files that do not list them, by their ids."""


def mistral_file(folder: Path) -> Path:
    """The tokenizer's file in a model's folder.

    Raises:
      RenderError: there is none.
    """
    if (tekken := folder / TEKKEN).is_file():
        return tekken
    for pattern in _SENTENCEPIECE:
        if found := sorted(path for path in folder.glob(pattern) if path.is_file()):
            return found[-1]
    raise RenderError(
        f"{folder} has neither {TEKKEN} nor tokenizer.model, which --tokenizer-mode mistral needs"
    )


def open_vocabulary(folder: Path, cache: Path | None) -> tuple[Tokenizer, dict[str, str]]:
    """Returns the tokenizer of the model in `folder`, and its tokens by their roles.

    Raises:
      RenderError: the folder has no such file, or it cannot be read.
    """
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return mistral_tokenizer(mistral_file(folder), cache), tokens


def mistral_tokenizer(file: Path, cache: Path | None = None) -> Tokenizer:
    """The tokenizer in a file that `mistral_file` found.

    Args:
      file: its path.
      cache: the folder where merges are kept for the next start; see `merges.kept_merges`.

    Raises:
      RenderError: it is damaged, or of a kind that is not supported.
    """
    try:
        if file.name == TEKKEN:
            return _tekken(read_json(file), cache)
        if file.stat().st_size > _MAX_MODEL_BYTES:
            raise RenderError(f"{file} is larger than 64 MiB")
        return tokenizer_from_gguf(_metadata(file.read_bytes()), cache)
    except (OSError, KeyError, TypeError, ValueError, IndexError, struct.error) as error:
        if isinstance(error, RenderError):
            raise
        raise RenderError(f"{file} is not a tokenizer of Mistral's: {error!r}") from None


def _tekken(content: Mapping[str, Any], cache: Path | None) -> Tokenizer:
    config: Mapping[str, Any] = content["config"]
    size, num_special = int(config["default_vocab_size"]), int(config["default_num_special_tokens"])
    vocabulary = as_array(content["vocab"]) or []
    if not 0 < num_special < size <= min(MAX_TOKENS, num_special + len(vocabulary)):
        raise RenderError(f"{TEKKEN} has {len(vocabulary)} tokens, and says that it has {size}")
    pieces = {
        num_special + at: base64.b64decode(token["token_bytes"], validate=True)
        for at, token in enumerate(vocabulary[: size - num_special])
    }
    added = dict(enumerate(_special_tokens(content.get("special_tokens"), num_special)))
    tokenizer = byte_tokenizer(pieces, added, str(config["pattern"]), cache)
    begin = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A"], special_tokens=[begin]
    )
    return tokenizer


def _special_tokens(listed: Any, number: int) -> list[AddedToken]:
    """The first tokens, by their ids."""
    tokens: dict[int, tuple[str, bool]] = {
        at: (text, True) for at, text in enumerate(FIRST_TOKENS if listed is None else ())
    }
    for entry in as_array(listed) or ():
        fields = as_object(entry) or {}
        tokens[int(fields["rank"])] = (str(fields["token_str"]), fields["is_control"] is True)
    named = [tokens.get(at, (f"<SPECIAL_{at}>", True)) for at in range(number)]
    return [AddedToken(text, normalized=False, special=special) for text, special in named]


def _metadata(content: bytes) -> dict[str, Any]:
    """A SentencePiece model in the terms of a GGUF file."""
    pieces: list[dict[int, Any]] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for number, value in _fields(content):
        if number == 1:
            pieces.append(dict(_fields(value)))
        elif number == 2:
            trainer = dict(_fields(value))
        elif number == 3:
            normalizer = dict(_fields(value))
        if len(pieces) > MAX_TOKENS:
            raise RenderError(f"a tokenizer has more than {MAX_TOKENS} tokens")
    if trainer.get(3, 1) != _BPE:
        raise RenderError("a SentencePiece model that is not BPE is not supported")
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece[1].decode() for piece in pieces],
        "tokenizer.ggml.scores": [struct.unpack("<f", piece[2])[0] for piece in pieces],
        "tokenizer.ggml.token_type": [piece.get(3, 1) for piece in pieces],
        "tokenizer.ggml.unknown_token_id": trainer.get(40, 0),
        "tokenizer.ggml.bos_token_id": trainer.get(41, 1),
        "tokenizer.ggml.eos_token_id": trainer.get(42, 2),
        "tokenizer.ggml.add_space_prefix": bool(normalizer.get(3, 1)),
    }


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a Protocol Buffer: numbers with integers, or with bytes."""
    at = 0
    while at < len(content):
        key, at = _integer(content, at)
        match key & 7:
            case 0:
                value, at = _integer(content, at)
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                value, at = content[at : at + size], at + size
            case 2:
                size, at = _integer(content, at)
                value, at = content[at : at + size], at + size
            case kind:
                raise ValueError(f"a field of type {kind}")
        yield key >> 3, value


def _integer(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("an integer of more than 64 bits")
