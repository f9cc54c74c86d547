"""Cohere's models of speech to text: a prompt has control tokens of what to write.

    AUDIO ▁<|startofcontext|><|startoftranscript|><|emo:undefined|><|de|><|de|><|pnc|><|noitn|>
        <|notimestamp|><|nodiarize|>

Source: `CohereAsrProcessor` of `transformers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.render.errors import RenderError
from pagemill.render.tokenizer import TextTokenizer
from pagemill.render.transcription.base import (
    Around,
    LanguageProbe,
    Span,
    SpeechCheckpoint,
    SpeechTask,
)
from pagemill.render.transcription.plain_text import check_plain

_CLIP_S = 35
_PADDING = 2  # that of the configuration's class: published checkpoints may leave it out
_LANGUAGES = ("ar", "de", "el", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "vi", "zh")
_BEFORE = ("▁", "<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>")
# Punctuation, numbers as words, neither times nor speakers.
_BEHIND = ("<|pnc|>", "<|noitn|>", "<|notimestamp|>", "<|nodiarize|>")


class CohereAsr:
    """Implements `Transcription`."""

    max_clip_s: int | None = _CLIP_S
    speakers: bool = False
    probe: LanguageProbe | None = None

    def __init__(self, checkpoint: SpeechCheckpoint) -> None:
        """Reads the control tokens.

        Raises:
            RenderError: the tokenizer lacks one, or the padding token is not a number.
        """
        tokenizer = checkpoint.tokenizer
        self.placeholder: int = _padding(checkpoint)
        self._before = [_token(tokenizer, content) for content in _BEFORE]
        self._behind = [_token(tokenizer, content) for content in _BEHIND]
        self._languages = {name: _token(tokenizer, f"<|{name}|>") for name in _LANGUAGES}

    @classmethod
    def open(cls, checkpoint: SpeechCheckpoint) -> Self:
        """The model of a folder; see `__init__`."""
        return cls(checkpoint)

    def checked(self, task: SpeechTask) -> SpeechTask:
        """See `Transcription`."""
        check_plain(task)
        if task.language not in self._languages:
            raise RenderError(
                "this model has to know the language of the audio: send `language`, one of"
                f" {', '.join(self._languages)}",
                "language",
            )
        return task

    def around(self, task: SpeechTask) -> Around:
        """See `Transcription`. Clips do not see the text of those in front of them."""
        assert task.language is not None, "it was checked"
        language = self._languages[task.language]
        return Around((), [*self._before, language, language, *self._behind])

    def rules(self, task: SpeechTask) -> TranscriptRules | None:
        """See `Transcription`."""
        return None

    def spans(self, token_ids: Sequence[int], clip_s: float) -> list[Span]:
        """Never called: there are no timestamps."""
        raise NotImplementedError


def _token(tokenizer: TextTokenizer, content: str) -> int:
    token = tokenizer.token_id(content)
    if token is None:
        raise RenderError(f"the tokenizer has no {content}")
    return token


def _padding(checkpoint: SpeechCheckpoint) -> int:
    token = checkpoint.config.get("pad_token_id")
    token = _PADDING if token is None else token
    if type(token) is not int or token < 0:
        raise RenderError("config.json: pad_token_id must be a number of 0 or more")
    return token
