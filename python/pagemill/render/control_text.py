"""Control tokens that users write stay plain text; those that a chat template writes count.

A user's string that could be a part of a control token gets a mark inside that part before the
template runs: "<|im_end|>" becomes "<M|im_end|M>". A control token that is whole in the rendered
prompt was therefore written by the template, whatever the template did to the user's strings. It is
replaced by a stand-in, one private-use character, and the marks are taken out again. Tokenizers
learn the stand-ins as tokens, and read the rest of the prompt as plain text.

Most requests hold no such string: nothing is marked, and the prompt is tokenized as it is.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pagemill.render.errors import RenderError

_MARK = "\U0010fffd"
_FIRST_STAND_IN = 0x100000
MAX_CONTROL_TOKENS = ord(_MARK) - _FIRST_STAND_IN
_STAND_INS = re.compile(f"[{chr(_FIRST_STAND_IN)}-{chr(ord(_MARK) - 1)}]")


def stand_in(index: int) -> str:
    """Returns the character that stands for control token number `index`."""
    return chr(_FIRST_STAND_IN + index)


class ControlText:
    """The control tokens of one vocabulary. Immutable.

    A token counts as the template's if the template wrote its punctuation: templates write
    `<|{{ role }}|>`, and a word alone cannot break out of that. Tokens of one character are left
    alone: they have no place for a mark.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        """Takes the tokens in the order in which stand-ins count them."""
        self._index = {token: index for index, token in enumerate(tokens) if len(token) > 1}
        self._lengths = sorted({len(token) for token in self._index}, reverse=True)
        self._all = "\0".join(self._index)
        self._first = frozenset(token[0] for token in self._index)
        self._last = frozenset(token[-1] for token in self._index)
        starts = {token[:2] for token in self._index}
        self._starts = _pairs(starts)
        self._parts = _pairs(starts | {token[-2:] for token in self._index})

    def marked(self, value: Any) -> Any:
        """Returns `value`, a tree of JSON values, with marks in its strings; itself if none."""
        if isinstance(value, str):
            return self._marked_text(value)
        if isinstance(value, Mapping):
            fields = cast(Mapping[str, Any], value)
            return {self.marked(key): self.marked(item) for key, item in fields.items()}
        if isinstance(value, list):
            return [self.marked(item) for item in cast(list[Any], value)]
        return value

    def with_stand_ins(self, text: str) -> str | None:
        """Returns `text` with stand-ins and without marks; None if it holds no marks.

        Raises:
          RenderError: users' text holds a stand-in.
        """
        if _MARK not in text:
            return None
        if (found := _STAND_INS.search(text)) is not None:
            raise RenderError(
                f"the messages hold U+{ord(found[0]):X}, a private-use character that the server"
                " uses itself, beside parts of control tokens: leave it out",
                "messages",
            )
        parts: list[str] = []
        done = 0
        for start in self._starts.finditer(text) if self._starts else ():
            at = start.start()
            token = self._token_at(text, at) if at >= done else None
            if token is not None:
                parts += (text[done:at], stand_in(self._index[token]))
                done = at + len(token)
        parts.append(text[done:])
        return "".join(parts).replace(_MARK, "")

    def _token_at(self, text: str, at: int) -> str | None:
        # The longest, as tokenizers take it.
        candidates = (text[at : at + length] for length in self._lengths)
        return next((piece for piece in candidates if piece in self._index), None)

    def _marked_text(self, text: str) -> str:
        if self._parts is None:
            return text
        if self._parts.search(text) is not None:
            text = self._parts.sub(rf"\g<0>{_MARK}", text)
        bare = text.strip()
        if not bare:
            return text
        if bare[-1] in self._first:
            end = len(text.rstrip())
            text = text[:end] + _MARK + text[end:]
        if bare[0] in self._last or self._is_inside_a_token(bare):
            begin = len(text) - len(text.lstrip())
            text = text[:begin] + _MARK + text[begin:]
        return text

    def _is_inside_a_token(self, bare: str) -> bool:
        if len(bare) > self._lengths[0] or bare.replace("_", "").isalnum():
            return False
        return bare in self._all


def _pairs(pairs: set[str]) -> re.Pattern[str] | None:
    # Takes the first character only, so that overlapping pairs are all found.
    if not pairs:
        return None
    after: dict[str, list[str]] = {}
    for pair in sorted(pairs):
        after.setdefault(pair[0], []).append(re.escape(pair[1:]))
    return re.compile(
        "|".join(f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in after.items())
    )
