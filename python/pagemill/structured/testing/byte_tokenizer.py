"""A small vocabulary, and what a grammar admits with it."""

from __future__ import annotations

import numpy as np

from pagemill._native import TokenMatcher
from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.grammar import Grammar
from pagemill.structured.matcher import GrammarMatcher
from pagemill.structured.vocabulary import Vocabulary

WORDS = ['{"', '":', '", "', "name", "true", "false", "12", "  ", "\n\n", "é", "yes", "no"]
EOS, OTHER_EOS, OPENER, THINK_END = range(256 + len(WORDS), 260 + len(WORDS))
MODEL_VOCAB = THINK_END + 30  # the model's logits have more rows than there are tokens


class ByteTokenizer:
    """Every byte is a token, and some words are. It is its own `token_bytes`."""

    vocab_size = THINK_END + 1

    @property
    def token_bytes(self) -> ByteTokenizer:
        return self

    def __getitem__(self, token_id: int) -> bytes:
        if token_id < 256:
            return bytes([token_id])
        if token_id < EOS:
            return WORDS[token_id - 256].encode()
        return {EOS: b"<eos>", OTHER_EOS: b"<eot>", THINK_END: b"</think>"}.get(token_id, b"")

    def is_special(self, token_id: int) -> bool:
        return EOS <= token_id <= THINK_END

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        return list(text.encode())


def byte_vocabulary() -> Vocabulary:
    """Two tokens end an output; those of reasoning are no part of texts."""
    return Vocabulary(ByteTokenizer(), MODEL_VOCAB, (EOS, OTHER_EOS))


def allowed(matcher: GrammarMatcher | TokenMatcher) -> list[int]:
    mask = np.full((MODEL_VOCAB + 31) // 32, 0xDEADBEEF, np.uint32)
    matcher.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[:MODEL_VOCAB]
    return np.flatnonzero(bits).tolist()


def admits(compiler: GrammarCompiler, grammar: Grammar, text: str) -> bool:
    """Whether `text` may be written byte by byte, and ended, with masks and accept agreeing."""
    matcher = compiler.factory(grammar)()
    for byte in text.encode():
        may = byte in allowed(matcher)
        assert matcher.accept(byte) == may
        if not may:
            return False
    return EOS in allowed(matcher)
