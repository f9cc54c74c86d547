"""Voxtral: a user's message with nothing but audio, and the token [TRANSCRIBE].

    <s>[INST][BEGIN_AUDIO] AUDIO [/INST]lang:de[TRANSCRIBE]

Source: the requests of transcription of mistral-common, with instructions and not streamed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Self

from pagemill.render.errors import RenderError
from pagemill.render.transcription.base import (
    Around,
    LanguageProbe,
    Span,
    SpeechCheckpoint,
    SpeechTask,
)

_LANGUAGE = re.compile(r"[a-z]{2}")  # ISO 639-1


class Voxtral:
    """Implements `Transcription`."""

    max_clip_s: int | None = None
    token_biases: Mapping[int, float] = {}
    probe: LanguageProbe | None = None

    def __init__(self, checkpoint: SpeechCheckpoint) -> None:
        """Reads the control tokens.

        Raises:
            RenderError: the tokenizer lacks one, or the configuration the token of audio.
        """
        self._tokenizer = checkpoint.tokenizer
        audio = checkpoint.config.get("audio_token_id")
        if type(audio) is not int:
            raise RenderError("config.json: audio_token_id must be a number")
        self.placeholder: int = audio
        self._before = [*map(self._control, ("<s>", "[INST]", "[BEGIN_AUDIO]"))]
        self._end = self._control("[/INST]")
        self._transcribe = self._control("[TRANSCRIBE]")

    @classmethod
    def open(cls, checkpoint: SpeechCheckpoint) -> Self:
        """The model of a folder; see `__init__`."""
        return cls(checkpoint)

    def checked(self, task: SpeechTask) -> SpeechTask:
        """See `Transcription`."""
        if task.to_language is not None:
            raise RenderError(
                "this model transcribes here and does not translate: send the audio in a message"
                " of a chat, and say in it what to write",
                "model",
            )
        if task.timestamps:
            raise RenderError(
                "this model writes no timestamps: send `json` or `text`", "response_format"
            )
        if task.prompt:
            raise RenderError(
                "this model takes no `prompt` with audio that it transcribes", "prompt"
            )
        if task.language is not None and not _LANGUAGE.fullmatch(task.language):
            raise RenderError(
                f"`language` {task.language[:40]!r} has to be two letters, such as `en`", "language"
            )
        return task

    def around(self, task: SpeechTask) -> Around:
        """See `Transcription`."""
        language: list[int] = []
        if task.language is not None:
            language = self._tokenizer.encode(
                f"lang:{task.language}", add_special_tokens=False, parse_special=False
            )
        return Around(self._before, [self._end, *language, self._transcribe])

    def spans(self, token_ids: Sequence[int], clip_s: float) -> list[Span]:
        """Never called: there are no timestamps."""
        raise NotImplementedError

    def _control(self, content: str) -> int:
        token = self._tokenizer.token_id(content)
        if token is None:
            raise RenderError(f"the tokenizer has no {content}")
        return token
