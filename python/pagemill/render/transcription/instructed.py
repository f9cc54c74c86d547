"""Models that chat about audio: they transcribe it if the user's message says so. The prompt is
what their chat template makes of that message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_object
from pagemill.render.transcription.base import (
    Around,
    LanguageProbe,
    Span,
    SpeechCheckpoint,
    SpeechTask,
)
from pagemill.render.transcription.plain_text import check_plain


class Instructed:
    """Implements `Transcription`. A subclass has the `instruction` behind the audio, "" if the chat
    template has it, and where the configuration has the token of audio."""

    instruction: ClassVar[str]
    audio_keys: ClassVar[Sequence[str]] = ("audio_token_id",)

    max_clip_s: int | None = None
    speakers: bool = False
    probe: LanguageProbe | None = None

    def __init__(self, checkpoint: SpeechCheckpoint) -> None:
        """Renders the message.

        Raises:
            RenderError: the configuration lacks the token of audio, or there is no chat template,
                or one that does not write that token once.
        """
        self.placeholder: int = self._audio_token(checkpoint.config)
        parts = [{"type": "audio"}]
        if self.instruction:
            parts.append({"type": "text", "text": self.instruction})
        prompt = checkpoint.encode_chat([{"role": "user", "content": parts}])
        if prompt.count(self.placeholder) != 1:
            raise RenderError("the chat template does not write the placeholder of audio once")
        at = prompt.index(self.placeholder)
        self._around = Around(prompt[:at], prompt[at + 1 :])

    @classmethod
    def open(cls, checkpoint: SpeechCheckpoint) -> Self:
        """The model of a folder; see `__init__`."""
        return cls(checkpoint)

    def checked(self, task: SpeechTask) -> SpeechTask:
        """See `Transcription`."""
        return check_plain(task)

    def around(self, task: SpeechTask) -> Around:
        """The same for every language: these models hear which one it is."""
        return self._around

    def rules(self, task: SpeechTask) -> TranscriptRules | None:
        """See `Transcription`."""
        return None

    def spans(self, token_ids: Sequence[int], clip_s: float) -> list[Span]:
        """Never called: there are no timestamps, or those of turns."""
        raise NotImplementedError

    def _audio_token(self, config: Mapping[str, Any]) -> int:
        found = next((config[key] for key in self.audio_keys if key in config), None)
        if type(found) is not int:
            raise RenderError(f"config.json: {self.audio_keys[0]} must be a number")
        return found


class Gemma4(Instructed):
    """Gemma 4 with an encoder of audio. Source of the instruction: the model card."""

    instruction = "Transcribe the following speech segment in its original language."
    max_clip_s = 30  # that its encoder takes

    def _audio_token(self, config: Mapping[str, Any]) -> int:
        # Published configurations may leave out that of their class.
        stated = config.get("audio_token_id")
        return super()._audio_token({"audio_token_id": 258881 if stated is None else stated})


class GlmAsr(Instructed):
    """GLM-ASR. Source of the instruction: `GlmAsrProcessor` of `transformers`."""

    instruction = "Please transcribe this audio into text"


class GraniteSpeech(Instructed):
    """Granite Speech and Granite Speech Plus. Source of the instruction: the model card."""

    instruction = "can you transcribe the speech into a written format?"
    audio_keys = ("audio_token_index", "audio_token_id")


class MossTranscribeDiarize(Instructed):
    """MOSS-Transcribe-Diarize. Its chat template has an instruction to write who says what."""

    instruction = ""
    speakers = True

    def checked(self, task: SpeechTask) -> SpeechTask:
        """It writes timestamps in any case."""
        return check_plain(task._replace(timestamps=False))


class Qwen25Omni(Instructed):
    """Qwen2.5-Omni, whose configuration may be that of its thinker alone."""

    instruction = "Transcribe this audio into text."
    audio_keys = ("audio_token_index", "audio_token_id")

    def _audio_token(self, config: Mapping[str, Any]) -> int:
        return super()._audio_token(as_object(config.get("thinker_config")) or config)
