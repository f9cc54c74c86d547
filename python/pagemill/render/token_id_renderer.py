"""A model's renderer without a tokenizer (`--skip-tokenizer-init`): token ids in, token ids out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from pagemill.render.errors import RenderError
from pagemill.render.events import Piece
from pagemill.render.infill import Infill
from pagemill.render.model_files import RenderSource, stated_end_ids
from pagemill.render.output_machine import Formats
from pagemill.render.renderer import ChatPrompt, Renderer
from pagemill.render.tokenizer import NO_LIMITS, TextLimits, TextPair

_READS_NO_TEXT = (
    "no tokenizer is loaded (--skip-tokenizer-init), so text cannot be read: send token ids, as"
    " the prompt of a completion or to /inference/v1/generate"
)
_WRITES_NO_TEXT = (
    "no tokenizer is loaded (--skip-tokenizer-init), so tokens cannot be written as text: request"
    " token ids, by return_token_ids of a completion or from /inference/v1/generate"
)


class TokenIdDetokenizer:
    """Has the methods of `Detokenizer`; no token has text."""

    def push(self, token_ids: Sequence[int]) -> str:
        """Returns "" for any tokens."""
        del token_ids
        return ""

    def piece(self, token_id: int) -> Piece:
        """Returns a token without text."""
        return Piece("", token_id, False)

    def flush(self) -> str:
        """Returns ""."""
        return ""


class TokenIdRenderer:
    """Has the methods of `Renderer` that requests need; those that read or write text raise a
    RenderError that says why. Outputs have tokens and an empty text."""

    has_text = False
    has_chat_template = False
    chat_template: str | None = None
    infill: Infill | None = None
    chat_variables: frozenset[str] = frozenset()

    def __init__(self, eos_token_ids: Sequence[int] = ()) -> None:
        """`eos_token_ids`: tokens that end a generation."""
        self.eos_token_ids: tuple[int, ...] = tuple(dict.fromkeys(eos_token_ids))
        self.formats: Formats = Formats()
        self.markers: Mapping[str, int] = {}
        self.special_tokens: Mapping[str, str] = {}

    @classmethod
    def open(cls, source: RenderSource) -> TokenIdRenderer:
        """Returns the renderer of an opened model, whose files need no tokenizer.

        Raises:
          RenderError: generation_config.json cannot be read.
        """
        return cls(stated_end_ids(source))

    def close(self) -> None:
        """Does nothing: there are no processes."""

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Raises RenderError."""
        del text, add_special_tokens, parse_special
        _refuse_to_read()

    def encode_pair(
        self, first: str, second: str | None, limits: TextLimits = NO_LIMITS
    ) -> TextPair:
        """Raises RenderError."""
        del first, second, limits
        _refuse_to_read()

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """Raises RenderError."""
        del messages, tools, add_generation_prompt, continue_final_message, template_kwargs
        _refuse_to_read()

    def encode_prompt(self, prompt: ChatPrompt, add_special_tokens: bool = False) -> list[int]:
        """Raises RenderError."""
        del prompt, add_special_tokens
        _refuse_to_read()

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], add_special_tokens: bool = False
    ) -> list[int]:
        """Raises RenderError."""
        del messages, add_special_tokens
        _refuse_to_read()

    def min_tokens(self, text: str, enough: int) -> int:
        """Returns 0: no text is known to be too long."""
        del text, enough
        return 0

    def head(self, text: str, num_tokens: int) -> str:
        """Returns `text`, which `encode` refuses."""
        del num_tokens
        return text

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Raises RenderError."""
        del token_ids, skip_special_tokens
        raise RenderError(_WRITES_NO_TEXT)

    def detokenizer(
        self, prompt_token_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> TokenIdDetokenizer:
        """Returns a detokenizer that writes no text."""
        del prompt_token_ids, skip_special_tokens
        return TokenIdDetokenizer()

    def token_bytes(self, token_id: int) -> bytes:
        """Returns b""."""
        del token_id
        return b""

    def token_text(self, token_id: int) -> str:
        """Returns the name of a token in log probabilities: "token_id:5"."""
        return f"token_id:{token_id}"


AnyRenderer = Renderer | TokenIdRenderer
"""The renderer of a loaded model."""


def _refuse_to_read() -> NoReturn:
    raise RenderError(_READS_NO_TEXT)
