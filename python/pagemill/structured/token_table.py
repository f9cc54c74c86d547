"""The tokens of a model as back ends of grammars want them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pagemill.structured.vocabulary import Vocabulary


class TokenTable:
    """What each token stands for, and texts as tokens. Implements llguidance's tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Reads all tokens."""
        self._tokenizer = vocabulary.tokenizer
        self.eos_token_ids = vocabulary.eos_token_ids
        self.eos_token_id = vocabulary.eos_token_ids[0]
        self.bos_token_id = None
        known = self._tokenizer.token_bytes
        ids = range(vocabulary.vocab_size)
        self.tokens = [known[index] for index in ids]
        markers = vocabulary.marker_ids
        self.special_token_ids = [i for i in ids if i in markers or known.is_special(i)]
        self._special = frozenset(self.special_token_ids)

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokens that are exactly `text`, none of them special; none if the tokenizer writes
        something else, as for bytes that no token has."""
        if isinstance(text, bytes):
            text = text.decode()
        found = self._encode(text)
        known = self._tokenizer.token_bytes
        if markers := self._special.intersection(found):
            found = self._encode_around([known[token].decode() for token in markers], text)
        return found if b"".join(known[token] for token in found) == text.encode() else []

    def texts(self) -> list[bytes]:
        """What each token writes: nothing if it is special."""
        return [b"" if i in self._special else text for i, text in enumerate(self.tokens)]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, parse_special=False)

    def _encode_around(self, markers: Sequence[str], text: str) -> list[int]:
        """The markers are written as text, each behind its first character in a token of its own:
        a tokenizer knows some, that are not special to it, in any text."""
        within = [f"(?<={re.escape(each[:1])})(?={re.escape(each[1:])})" for each in markers]
        return [token for part in re.split("|".join(within), text) for token in self._encode(part)]
