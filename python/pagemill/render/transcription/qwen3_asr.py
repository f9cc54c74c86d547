"""Qwen3-ASR: a user's message with nothing but audio. The answer begins with the language:

    language English<asr_text>what is said

The prompt ends behind it, so that an output is text alone. What a request has as `prompt` is the
system's message.

Source: `Qwen3ASRProcessor` of `transformers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.render.chat_messages import Message
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_object
from pagemill.render.transcription.base import (
    Around,
    LanguageProbe,
    Span,
    SpeechCheckpoint,
    SpeechTask,
)
from pagemill.render.transcription.plain_text import check_text_alone

LANGUAGES: Mapping[str, str] = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fil": "Filipino",
    "fr": "French",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "mk": "Macedonian",
    "ms": "Malay",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "th": "Thai",
    "tr": "Turkish",
    "vi": "Vietnamese",
    "yue": "Cantonese",
    "zh": "Chinese",
}
"""What the model calls the languages of a request."""
# With what the model says of audio in which nothing is said, which is not one of a request's.
_NAMES = {**LANGUAGES, "": "None"}
_LANGUAGE, _TEXT = "language", "<asr_text>"


class Qwen3Asr:
    """Implements `Transcription`."""

    max_clip_s: int | None = None
    speakers: bool = False

    def __init__(self, checkpoint: SpeechCheckpoint) -> None:
        """Renders the message.

        Raises:
            RenderError: the configuration lacks the token of audio, or the tokenizer `<asr_text>`
                or names of languages; or there is no chat template, or one that does not write the
                token of audio once.
        """
        config = as_object(checkpoint.config.get("thinker_config")) or checkpoint.config
        self._tokenizer = checkpoint.tokenizer
        self._encode_chat = checkpoint.encode_chat
        self.placeholder: int = _audio_token(config)
        text = checkpoint.tokenizer.token_id(_TEXT)
        if text is None:
            raise RenderError(f"the tokenizer has no {_TEXT}")
        self._text = text
        around = self._message("")
        stated = Around(around.before, [*around.after, *self._encoded(_LANGUAGE)])
        self.probe: LanguageProbe | None = LanguageProbe(stated, self._first_tokens(), None)

    @classmethod
    def open(cls, checkpoint: SpeechCheckpoint) -> Self:
        """The model of a folder; see `__init__`."""
        return cls(checkpoint)

    def checked(self, task: SpeechTask) -> SpeechTask:
        """See `Transcription`."""
        check_text_alone(task)
        if task.language is not None and task.language not in LANGUAGES:
            raise RenderError(
                f"`language` {task.language[:40]!r} is not one of this model's:"
                f" {', '.join(LANGUAGES)}; without it the language is detected",
                "language",
            )
        return task

    def around(self, task: SpeechTask) -> Around:
        """See `Transcription`."""
        before, after = self._message(task.prompt)
        assert task.language is not None, "it is detected first"
        stated = self._encoded(f"{_LANGUAGE} {_NAMES[task.language]}")
        return Around(before, [*after, *stated, self._text])

    def rules(self, task: SpeechTask) -> TranscriptRules | None:
        """See `Transcription`."""
        return None

    def spans(self, token_ids: Sequence[int], clip_s: float) -> list[Span]:
        """Never called: there are no timestamps."""
        raise NotImplementedError

    def _message(self, prompt: str) -> Around:
        messages: list[Message] = [{"role": "user", "content": [{"type": "audio"}]}]
        if prompt:
            messages.insert(0, {"role": "system", "content": prompt})
        ids = self._encode_chat(messages)
        if ids.count(self.placeholder) != 1:
            message = "the chat template does not write the placeholder of audio once"
            if prompt:
                raise RenderError(f"{message} with this `prompt`", "prompt")
            raise RenderError(message)
        at = ids.index(self.placeholder)
        return Around(ids[:at], ids[at + 1 :])

    def _first_tokens(self) -> dict[int, str]:
        """The languages by the first token of their names.

        Raises:
            RenderError: two names begin with the same token.
        """
        begin = len(self._encoded(_LANGUAGE))
        found = {self._encoded(f"{_LANGUAGE} {name}")[begin]: code for code, name in _NAMES.items()}
        if len(found) != len(_NAMES):
            raise RenderError("the tokenizer does not tell languages by the first token of names")
        return found

    def _encoded(self, text: str) -> list[int]:
        return [*self._tokenizer.encode(text, add_special_tokens=False, parse_special=False)]


def _audio_token(config: Mapping[str, Any]) -> int:
    token = config.get("audio_token_id")
    if type(token) is not int:
        raise RenderError("config.json: audio_token_id must be a number")
    return token
