"""How much text a token can stand for, and so how many tokens a text has at least.

A text that cannot fit the context is refused by this number, without being tokenized, so the number
is never too large. In byte-level BPE each byte of the normalized text is in exactly one token;
bytes that the vocabulary lacks are in none, and are not counted. In SentencePiece BPE that falls
back to bytes each character is in one token, or in several. n tokens therefore cover at most n
times the longest token. NFC does not change ASCII, and shortens other text to a quarter at most.
BERT's WordPiece has at least one token for each run of text between blanks that begins with visible
ASCII, which normalization keeps. Other kinds may drop any character; for them the number is 0.

One assumption: whitespace that a control token swallows (`lstrip`, `rstrip`) does not fill a
context.
"""

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE, WordPiece

from pagemill.render.token_bytes import byte_alphabet

_NFC_SHRINKS = 4
_WORD = re.compile(r"[!-~][^ \t\r\n]*")
_BERT = (["BertNormalizer", "BertPreTokenizer"], ["BertPreTokenizer"])
_LOSSLESS = frozenset({"ByteLevel", "Digits", "Metaspace"})  # pre-tokenizers


class TokenReach:
    """The longest token of a vocabulary. Immutable."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Goes through the vocabulary, which takes some 50 ms."""
        self._unit = 0  # characters or bytes of text that a token stands for at most; 0: unknown
        self._in_bytes = False
        self._lacks = b""
        self._shrinks = 1
        model: Any = tokenizer.model
        before, split = _steps(tokenizer.normalizer), _steps(tokenizer.pre_tokenizer)
        rules = [step["type"] for step in (*before, *split)]
        self._in_words = isinstance(model, WordPiece) and rules in _BERT
        if not isinstance(model, BPE) or not all(map(_keeps_text, split)):
            return
        if not all(map(_keeps_length, before)):
            return
        self._in_bytes = any(step["type"] == "ByteLevel" for step in split)
        if self._in_bytes:
            self._lacks = bytes(
                byte for char, byte in byte_alphabet().items() if model.token_to_id(char) is None
            )
        elif not model.byte_fallback or any(
            model.token_to_id(f"<0x{byte:02X}>") is None for byte in range(256)
        ):
            return
        added: Mapping[int, AddedToken] = tokenizer.get_added_tokens_decoder()
        contents = [token.content for token in added.values()]
        pieces = map(model.id_to_token, range(tokenizer.get_vocab_size(with_added_tokens=False)))
        self._unit = max(
            max(
                len(content.encode() if self._in_bytes else content) for content in ["", *contents]
            ),
            max(len(piece or "") for piece in pieces),
        )
        if any(step["type"] == "NFC" for step in before):
            self._shrinks = _NFC_SHRINKS

    def min_tokens(self, text: str, enough: int) -> int:
        """Returns a number of tokens that `text` has at least; may stop counting at `enough`."""
        if self._in_words:
            return sum(1 for _ in itertools.islice(_WORD.finditer(text), enough))
        if self._unit == 0:
            return 0
        shrinks = 1 if text.isascii() else self._shrinks
        if not self._in_bytes:
            size = len(text)
        elif not self._lacks:
            size = utf8_bytes(text)
        elif shrinks == 1:
            size = len(text.encode("utf-8", "surrogatepass").translate(None, self._lacks))
        else:
            return 0  # normalization may write a byte that the vocabulary lacks
        return -(-size // (self._unit * shrinks))

    def head(self, text: str, num_tokens: int) -> str:
        """Returns a beginning of `text` that has the same first `num_tokens` tokens.

        Shorter than `text` only for BERT's WordPiece, where blanks separate tokens.
        """
        if not self._in_words:
            return text
        last = next(itertools.islice(_WORD.finditer(text), num_tokens - 1, None), None)
        return text if last is None else text[: last.end()]


def utf8_bytes(text: str) -> int:
    """Returns how many bytes `text` has in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _steps(part: Any) -> list[dict[str, Any]]:
    # A normalizer or pre-tokenizer as its JSON, a sequence as its members.
    if part is None:
        return []
    steps: list[dict[str, Any]] = [json.loads(part.__getstate__())]
    while any(step["type"] == "Sequence" for step in steps):
        steps = [
            inner
            for step in steps
            for inner in step.get("normalizers", step.get("pretokenizers", [step]))
        ]
    return steps


def _keeps_text(step: dict[str, Any]) -> bool:
    return step["type"] in _LOSSLESS or (
        step["type"] == "Split" and step.get("behavior") != "Removed"
    )


def _keeps_length(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":
        replaced = step["pattern"].get("String")
        return replaced is not None and 0 < len(replaced) <= len(step["content"])
    return step["type"] in ("NFC", "Prepend")
