"""Random outputs of a grammar."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pagemill.structured.matcher import GrammarMatcher
from pagemill.structured.testing.byte_tokenizer import EOS, OTHER_EOS, ByteTokenizer, allowed

_ENDING = b'}]"e0:'
"""What leads to an end, the most certain first."""


@dataclass(frozen=True, slots=True)
class Walk:
    """An output. `is_dead`: no token may come, and it has not ended; `is_ended`: it has."""

    text: bytes
    is_dead: bool = False
    is_ended: bool = False


def random_walk(
    begin: Callable[[], GrammarMatcher], rng: random.Random, *, free: int = 60, most: int = 800
) -> Walk:
    """Tokens that masks allow: `free` ones at random, then some that lead to its end."""
    matcher, text = begin(), b""
    for count in range(most):
        choices = allowed(matcher)
        if not choices:
            return Walk(text, is_dead=True)
        token = rng.choice(choices)
        if count >= free:
            endings = [each for each in (EOS, OTHER_EOS, *_ENDING) if each in choices]
            token = next((each for each in endings if rng.random() < 0.8), token)
        assert matcher.accept(token)
        if token in (EOS, OTHER_EOS):
            return Walk(text, is_ended=True)
        text += ByteTokenizer()[token]
    return Walk(text)
