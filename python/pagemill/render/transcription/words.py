"""The words of a transcript.

groups = words(decode, token_ids, language="en")    # indices of the tokens of each word

Words are written with the space in front of them, and have the punctuation that is beside them.
In languages without spaces each character is a word. Source: openai/whisper, tokenizer.py.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

_WITHOUT_SPACES = frozenset({"ja", "lo", "my", "th", "yue", "zh"})
# Texts in the first one belong to the word behind them, and so does white space; those in the
# second one belong to the word in front of them.
_OPENING = "\"'“¡¿([{-"
_CLOSING = "\"'.。,，!！?？:：”)]}、"
_INCOMPLETE = "\ufffd"  # what `decode` writes for a part of a character


def words(
    decode: Callable[[Sequence[int]], str], token_ids: Sequence[int], language: str | None
) -> list[list[int]]:
    """The tokens of each word, as indices in `token_ids`, the tokens of a text in `language` (None:
    one with spaces) without control tokens. Every token is in one word."""
    groups = _characters(decode, token_ids)
    texts = [decode([token_ids[at] for at in group]) for group in groups]
    if language not in _WITHOUT_SPACES:
        groups, texts = _joined(groups, texts, _begin_words(texts))
    return _with_punctuation(groups, texts)


def _characters(
    decode: Callable[[Sequence[int]], str], token_ids: Sequence[int]
) -> list[list[int]]:
    """The shortest groups of tokens that are whole characters."""
    whole = decode(token_ids)
    groups: list[list[int]] = [[]]
    done = 0  # characters of `whole`
    for at in range(len(token_ids)):
        groups[-1].append(at)
        text = decode([token_ids[i] for i in groups[-1]])
        broken = text.find(_INCOMPLETE)
        # A character of the text may be the one that stands for incomplete ones.
        if broken < 0 or whole[done + broken : done + broken + 1] in ("", _INCOMPLETE):
            done += len(text)
            groups.append([])
    return [group for group in groups if group]


def _begin_words(texts: Sequence[str]) -> list[bool]:
    """Whether each begins a word, and does not go on with the one before."""
    return [
        at == 0 or text.startswith(" ") or text.strip() in string.punctuation
        for at, text in enumerate(texts)
    ]


def _with_punctuation(groups: list[list[int]], texts: list[str]) -> list[list[int]]:
    """Words without those of punctuation alone, which are parts of those beside them."""
    opens = [text.startswith(" ") and text.strip() in _OPENING for text in texts]
    groups, texts = _joined(
        groups, texts, [at == 0 or not opens[at - 1] for at in range(len(texts))]
    )
    begins = [True] * len(texts)
    for at in range(1, len(texts)):
        begins[at] = texts[at] not in _CLOSING or texts[at - 1].endswith(" ")
    return _joined(groups, texts, begins)[0]


def _joined(
    groups: list[list[int]], texts: list[str], begins: Sequence[bool]
) -> tuple[list[list[int]], list[str]]:
    """The groups with the others joined to those in front of them that begin one."""
    found: list[list[int]] = []
    joined: list[str] = []
    for group, text, begin in zip(groups, texts, begins, strict=True):
        if begin:
            found.append([])
            joined.append("")
        found[-1] += group
        joined[-1] += text
    return found, joined
