"""What bytes a token stands for: the one table behind detokenization and logprobs.

A tokenizer library decodes whole sequences; streams need single tokens, whose bytes may be half a
character. How a vocabulary spells bytes shows in its decoder:

| decoder | spelling |
|---|---|
| ByteLevel (GPT-2, Llama 3, Qwen) | each byte is one printable character |
| ByteFallback or Metaspace (SentencePiece) | `<0xE2>` is a byte, U+2581 a space |
| WordPiece (BERT) | `##ing` continues a word, everything else starts one |
"""

import json
import re
from typing import Any

from tokenizers import Tokenizer

from pagemill.render.errors import RenderError

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """Returns the character that byte-level vocabularies write for each byte.

    GPT-2's: printable Latin-1 stands for itself, the other bytes for U+0100 and up, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


class TokenBytes:
    """Token id to bytes. Immutable except for a cache of the vocabulary's size; thread-safe.

    `strips_leading_space`: does the first token of a text lose the space it begins with?
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Reads the vocabulary's spelling off `tokenizer`'s decoder.

        Raises:
          RenderError: the decoder is of a kind that is not supported.
        """
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._added = {index: token.content for index, token in added.items()}
        self._special = frozenset(index for index, token in added.items() if token.special)
        steps = _decoder_steps(tokenizer)
        kinds = [step["type"] for step in steps]
        self._alphabet: dict[str, int] = {}
        self._word_prefix = ""
        self._spells_spaces = False
        if "ByteLevel" in kinds:
            self._alphabet = byte_alphabet()
        elif "WordPiece" in kinds:
            self._word_prefix = steps[kinds.index("WordPiece")].get("prefix", "##")
        elif not {"ByteFallback", "Metaspace", "Replace"} & set(kinds):
            raise RenderError(f"a tokenizer with the decoder {kinds} cannot be decoded yet")
        else:
            self._spells_spaces = True
        self.strips_leading_space = bool(self._word_prefix) or any(
            (step["type"] == "Strip" and step.get("start", 0) > 0)
            or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
            for step in steps
        )
        self._cache: list[bytes | None] = [None] * tokenizer.get_vocab_size(with_added_tokens=True)

    def __getitem__(self, token_id: int) -> bytes:
        """The bytes of one token; none for an id that the vocabulary does not have.

        A model's logits may be wider than its vocabulary, so such ids do occur.
        """
        if not 0 <= token_id < len(self._cache):
            return b""
        known = self._cache[token_id]
        if known is None:
            known = self._cache[token_id] = self._bytes(token_id)
        return known

    def is_special(self, token_id: int) -> bool:
        """True for a control token, which text leaves out by default."""
        return token_id in self._special

    def _bytes(self, token_id: int) -> bytes:
        added = self._added.get(token_id)
        if added is not None:
            # Runs of spaces are added tokens of Gemma, spelled as in the rest of its vocabulary.
            return (added.replace(_SPACE, " ") if self._spells_spaces else added).encode()
        piece = self._tokenizer.id_to_token(token_id)
        if piece is None:  # a hole in the vocabulary
            return b""
        if self._alphabet:
            if all(char in self._alphabet for char in piece):
                return bytes(self._alphabet[char] for char in piece)
            return piece.encode()
        if self._word_prefix:
            continues = piece.startswith(self._word_prefix)
            return (piece.removeprefix(self._word_prefix) if continues else " " + piece).encode()
        byte = _BYTE.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode()


def _decoder_steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    decoder: Any = tokenizer.decoder
    if decoder is None:
        return []
    state: dict[str, Any] = json.loads(decoder.__getstate__())
    return state["decoders"] if state["type"] == "Sequence" else [state]
