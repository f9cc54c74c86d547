"""Prompts of models that fill in the middle: prefix and suffix, each behind a token that names it.

Layouts are those that the authors of Code Llama, StarCoder, Qwen2.5-Coder and CodeGemma (which have
the same tokens), DeepSeek-Coder, Seed-Coder and Codestral publish with their models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol


class _Text(Enum):
    PREFIX = "prefix"
    SUFFIX = "suffix"


class _Layout(NamedTuple):
    """The prompt's parts in order. `ends`: further tokens that end what the model writes."""

    parts: tuple[str | _Text, ...]
    ends: tuple[str, ...] = ()


_LAYOUTS = (
    _Layout(
        ("<|fim_prefix|>", _Text.PREFIX, "<|fim_suffix|>", _Text.SUFFIX, "<|fim_middle|>"),
        ("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>"),
    ),
    _Layout(
        ("<fim_prefix>", _Text.PREFIX, "<fim_suffix>", _Text.SUFFIX, "<fim_middle>"),
        ("<fim_pad>", "<repo_name>", "<file_sep>"),
    ),
    _Layout(
        ("<fim-prefix>", _Text.PREFIX, "<fim-suffix>", _Text.SUFFIX, "<fim-middle>"),
        ("<fim-pad>",),
    ),
    _Layout(
        ("<｜fim▁begin｜>", _Text.PREFIX, "<｜fim▁hole｜>", _Text.SUFFIX, "<｜fim▁end｜>"),
    ),
    _Layout(("▁<PRE>", _Text.PREFIX, "▁<SUF>", _Text.SUFFIX, "▁<MID>"), ("▁<EOT>",)),
    _Layout(
        ("<[fim-suffix]>", _Text.SUFFIX, "<[fim-prefix]>", _Text.PREFIX, "<[fim-middle]>"),
    ),
    _Layout(("[SUFFIX]", _Text.SUFFIX, "[PREFIX]", _Text.PREFIX)),
)
# What is put in front of a text to see whether the tokenizer adds a space to it, and then to keep
# it from doing so: a token of its own wherever spaces are added (SentencePiece).
_LEAD = "\n"


class Vocabulary(Protocol):
    """The part of `TextTokenizer` that is used here."""

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]: ...

    def token_id(self, content: str) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Infill:
    """How one model is asked to fill in the middle.

    `parts`: of its prompts, with the ids of tokens. `end_ids`: tokens that end what it writes,
    beside those that end all of its outputs.
    """

    tokenizer: Vocabulary
    parts: tuple[int | _Text, ...]
    end_ids: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Vocabulary) -> Infill | None:
        """The first layout whose tokens the vocabulary has, if there is one."""
        for layout in _LAYOUTS:
            parts = [p if isinstance(p, _Text) else tokenizer.token_id(p) for p in layout.parts]
            known = tuple(part for part in parts if part is not None)
            if len(known) == len(parts):
                own = [part for part in known if isinstance(part, int)]
                ends = map(tokenizer.token_id, layout.ends)
                return cls(tokenizer, known, (*own, *(i for i in ends if i is not None)))
        return None

    def prompts(
        self,
        prefixes: Sequence[str | list[int]],
        suffix: str,
        *,
        add_special_tokens: bool,
        parse_special: bool,
    ) -> list[list[int]]:
        """The token ids of a prompt for each prefix, which is a text or token ids.

        Args:
          prefixes: what is in front of the middle.
          suffix: what is behind it.
          add_special_tokens: put the tokens in front that the model expects, such as BOS.
          parse_special: as for `TextTokenizer.encode`.

        Raises:
          RenderError: as for `TextTokenizer.encode`.
        """
        tokenizer = self.tokenizer
        around = tokenizer.encode("", add_special_tokens=True, parse_special=False)
        start = around if add_special_tokens else []
        behind = self._continuation(suffix, parse_special)
        found: list[list[int]] = []
        for prefix in prefixes:
            ids = prefix
            if isinstance(ids, str):
                ids = tokenizer.encode(ids, add_special_tokens=False, parse_special=parse_special)
            texts = {_Text.PREFIX: ids, _Text.SUFFIX: behind}
            pieces = (texts[p] if isinstance(p, _Text) else [p] for p in self.parts)
            found.append([*start, *(token for piece in pieces for token in piece)])
        return found

    def _continuation(self, text: str, parse_special: bool) -> list[int]:
        """The token ids of a text that continues another: SentencePiece puts no space in front
        of it."""
        encode = self.tokenizer.encode
        lead = encode(_LEAD, add_special_tokens=False, parse_special=False)
        if len(lead) > 1:
            ids = encode(_LEAD + text, add_special_tokens=False, parse_special=parse_special)
            if ids[: len(lead)] == lead:
                return ids[len(lead) :]
        return encode(text, add_special_tokens=False, parse_special=parse_special)
