"""Voxtral: a user's message with nothing but audio, and the token [TRANSCRIBE].

    <s>[INST][BEGIN_AUDIO] AUDIO [/INST]lang:de[TRANSCRIBE]

Source: the requests of transcription of mistral-common, with instructions and not streamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.render.errors import RenderError
from pagemill.render.transcription.base import (
    Around,
    LanguageProbe,
    Span,
    SpeechCheckpoint,
    SpeechTask,
)
from pagemill.render.transcription.plain_text import check_plain


class Voxtral:
    """Implements `Transcription`."""

    max_clip_s: int | None = None
    speakers: bool = False
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
        return check_plain(task)

    def around(self, task: SpeechTask) -> Around:
        """See `Transcription`."""
        language: list[int] = []
        if task.language is not None:
            language = self._tokenizer.encode(
                f"lang:{task.language}", add_special_tokens=False, parse_special=False
            )
        return Around(self._before, [self._end, *language, self._transcribe])

    def rules(self, task: SpeechTask) -> TranscriptRules | None:
        """See `Transcription`."""
        return None

    def spans(self, token_ids: Sequence[int], clip_s: float) -> list[Span]:
        """Never called: there are no timestamps."""
        raise NotImplementedError

    def _control(self, content: str) -> int:
        token = self._tokenizer.token_id(content)
        if token is None:
            raise RenderError(f"the tokenizer has no {content}")
        return token
