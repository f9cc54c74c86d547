"""Prompts by which a family of models transcribes audio, and how its outputs are read.

family = table.open_transcription(row, checkpoint)
wanted = family.checked(SpeechTask(language="de"))
before, after = family.around(wanted)  # token ids in front of and behind those of a clip
spans = family.spans(token_ids, clip_s=30.0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.render.chat_messages import Message
from pagemill.render.tokenizer import TextTokenizer

RATE = 16_000
"""Samples a second of the audio that all known families take."""


class SpeechTask(NamedTuple):
    """What a request wants. `language` is that of the audio, None: it is not known; `to_language`
    that of the text, None: the same. `prompt` is text in front of what is said, for its style and
    its names. `timestamps`: the output says when it is said."""

    language: str | None = None
    to_language: str | None = None
    prompt: str = ""
    timestamps: bool = False


class Around(NamedTuple):
    """Token ids in front of and behind those of a clip."""

    before: Sequence[int]
    after: Sequence[int]


class Span(NamedTuple):
    """A part of an output: from `start_s` to `end_s` in its clip, and which of the output's tokens
    are its text."""

    start_s: float
    end_s: float
    at: list[int]


class LanguageProbe(NamedTuple):
    """A prompt whose next token is the language: one of `languages`, token id -> ISO 639 code.
    `no_speech` is the token that is likely there if nothing is said."""

    around: Around
    languages: Mapping[int, str]
    no_speech: int | None


class SpeechCheckpoint(NamedTuple):
    """What a family is opened with: its tokenizer, config.json, and folder; `encode_chat` makes
    token ids of a chat, as `Renderer.encode_chat` does."""

    tokenizer: TextTokenizer
    config: Mapping[str, Any]
    folder: Path
    encode_chat: Callable[[Sequence[Message]], list[int]]


class Transcription(Protocol):
    """What is known of one model. Immutable and thread-safe.

    1. `checked` returns the task with what the family makes of it, or raises a RenderError about a
       field of the request.
    2. `around` returns the prompt of a checked task, whose language is known unless the family has
       no probe, or raises a RenderError about a field. It may take as long as a chat template.
    3. `rules` returns those by which an output of a checked task is written; None: there are none.
    4. `spans` divides an output that has timestamps and no `speakers`.
    """

    placeholder: int
    """The token that stands for audio."""
    max_clip_s: int | None
    """Of the audio of one prompt; None: what fits the context."""
    speakers: bool
    """Whether outputs are turns of speakers, with marks (turns.py)."""
    probe: LanguageProbe | None
    """None: the family cannot tell languages, or needs none."""

    def checked(self, task: SpeechTask) -> SpeechTask: ...

    def around(self, task: SpeechTask) -> Around: ...

    def rules(self, task: SpeechTask) -> TranscriptRules | None: ...

    def spans(self, token_ids: Sequence[int], clip_s: float) -> list[Span]: ...
