"""A renderer without a vocabulary, for tests of the server: token ids are bytes of UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from pagemill.render.errors import RenderError
from pagemill.render.events import Piece
from pagemill.render.formats.json_formats import HERMES
from pagemill.render.formats.reasoning_formats import THINK
from pagemill.render.infill import Infill
from pagemill.render.output_machine import Formats
from pagemill.render.renderer import ChatPrompt
from pagemill.render.tokenizer import NO_LIMITS, TextLimits, TextPair

WORDED = Formats(THINK, HERMES)
"""Markers are text."""
# Bytes that no text has are the markers.
MARKED = Formats(
    THINK,
    HERMES,
    {0xF8: "<think>", 0xF9: "</think>", 0xFA: "<tool_call>", 0xFB: "</tool_call>"},
)
_BYTES = [bytes([value]) for value in range(256)]


class FakeDetokenizer:
    """Bytes to complete characters; byte 0 and markers are special tokens without text."""

    def __init__(self, skip_special_tokens: bool, marker_ids: Container[int] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._skip = skip_special_tokens
        self._marker_ids = marker_ids

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that `token_ids` complete."""
        kept = (i for i in token_ids if i or not self._skip)
        return self._decoder.decode(b"".join(b"<eos>" if i == 0 else bytes([i]) for i in kept))

    def piece(self, token_id: int) -> Piece:
        """The text that one token completes."""
        if token_id in self._marker_ids:
            return Piece("", token_id, True)
        if token_id == 0:
            return Piece(self.push((token_id,)), token_id, True)
        return Piece(self._decoder.decode(_BYTES[token_id]), token_id, False)

    def flush(self) -> str:
        """What an unfinished character leaves."""
        return self._decoder.decode(b"", final=True)


class FakeRendered(NamedTuple):
    """What a chat template was given."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    template_kwargs: Mapping[str, Any] | None


class FakeTokenizer:
    """Token ids are bytes. It is its own `token_bytes`."""

    vocab_size = 256

    @property
    def token_bytes(self) -> FakeTokenizer:
        """What bytes a token stands for."""
        return self

    def __getitem__(self, token_id: int) -> bytes:
        return bytes([token_id])

    def is_special(self, token_id: int) -> bool:
        """Byte 0, which ends an output, and those that no text has."""
        return token_id == 0 or token_id >= 0xF8

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """The bytes of `text`."""
        del add_special_tokens, parse_special
        return list(text.encode())


class FakeRenderer:
    """Has the methods of `rendering.Renderer`."""

    has_text = True
    eos_token_ids: tuple[int, ...] = (0,)
    special_tokens: Mapping[str, str] = {"eos_token": "<eos>"}
    chat_template: str | None = "{{ messages }}"
    infill: Infill | None = None
    chat_variables: frozenset[str] = frozenset()
    tokenizer = FakeTokenizer()

    def __init__(self, formats: Formats | None = None) -> None:
        """`formats`: those of the output; None: all of it is text."""
        self.formats: Formats = formats or Formats()
        self.markers: Mapping[str, int] = {
            text: token for token, text in self.formats.marker_ids.items()
        }
        self.rendered: list[FakeRendered] = []

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """The bytes of `text`."""
        del add_special_tokens, parse_special
        return list(text.encode())

    def encode_pair(
        self, first: str, second: str | None, limits: TextLimits = NO_LIMITS
    ) -> TextPair:
        """The bytes of both, with a space between them."""
        first = first[: limits.first]
        if second is None:
            return TextPair(self.encode(first)[: limits.prompt], 0)
        text = f"{first} {second[: limits.second]}"
        return TextPair(self.encode(text)[: limits.prompt], len(first.encode()) + 1)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """`role:content` lines; a role "refuse" is refused."""
        del continue_final_message
        self.rendered.append(FakeRendered(messages, tools, template_kwargs))
        if any(message["role"] == "refuse" for message in messages):
            raise RenderError("the template refuses", "messages")
        lines = [f"{message['role']}:{message.get('content')}" for message in messages]
        return ChatPrompt("\n".join([*lines, "assistant:"] if add_generation_prompt else lines))

    def encode_prompt(self, prompt: ChatPrompt, add_special_tokens: bool = False) -> list[int]:
        """The bytes of `prompt`."""
        return self.encode(prompt.text, add_special_tokens, parse_special=True)

    def min_tokens(self, text: str, enough: int) -> int:
        """The number of bytes."""
        del enough
        return len(text.encode())

    def head(self, text: str, num_tokens: int) -> str:
        """The first `num_tokens` characters."""
        return text[:num_tokens]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `token_ids`."""
        detokenizer = FakeDetokenizer(skip_special_tokens)
        return detokenizer.push(token_ids) + detokenizer.flush()

    def detokenizer(
        self, prompt_token_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> FakeDetokenizer:
        """A detokenizer for what follows."""
        del prompt_token_ids
        return FakeDetokenizer(skip_special_tokens, self.formats.marker_ids)

    def token_bytes(self, token_id: int) -> bytes:
        """The byte."""
        return bytes([token_id])

    def token_text(self, token_id: int) -> str:
        """The byte as text by itself."""
        return self.token_bytes(token_id).decode("utf-8", "replace")
