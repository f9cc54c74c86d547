"""What a compiler of grammars has to know of a model's tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class TokenBytes(Protocol):
    """What bytes a token stands for; b"" for one outside the vocabulary."""

    def __getitem__(self, token_id: int, /) -> bytes: ...

    def is_special(self, token_id: int, /) -> bool:
        """True for a control token, which no text spells."""
        ...


class Tokenizer(Protocol):
    """The part of `render.TextTokenizer` that is used here."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def token_bytes(self) -> TokenBytes: ...

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """The tokens of `text`."""
        ...


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model.

    `vocab_size`: of its logits, which may have more rows than the tokenizer has tokens.
    `eos_token_ids`: those that end an output, at least one. `marker_ids`: tokens that are no part
    of texts, beside control tokens.
    """

    tokenizer: Tokenizer
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    marker_ids: frozenset[int] = frozenset()
