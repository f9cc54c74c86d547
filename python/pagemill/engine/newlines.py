"""Newlines where tokens of two texts meet: a tokenizer has tokens for several of them.

joined = joined_newlines(encode)
append_joined(prompt, encode("\n\n<start_of_image>"), joined)   # behind "...\n": one of three
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

_MOST = 8
Joined = Mapping[tuple[int, int], int]
"""The token that stands for two tokens, one behind the other."""
NONE_JOINED: Joined = {}


def joined_newlines(encode: Callable[[str], Sequence[int]]) -> Joined:
    """The tokens of up to 8 newlines that two tokens of fewer make."""
    found = {count: list(encode("\n" * count)) for count in range(1, _MOST + 1)}
    single = {count: tokens[0] for count, tokens in found.items() if len(tokens) == 1}
    return {
        (single[first], single[second]): single[first + second]
        for first in single
        for second in single
        if first + second in single
    }


def append_joined(tokens: list[int], more: Sequence[int], joined: Joined) -> None:
    """Add `more` behind `tokens`, with one token for the two that meet if there is one."""
    if tokens and more and (one := joined.get((tokens[-1], more[0]))) is not None:
        tokens[-1] = one
        more = more[1:]
    tokens += more
