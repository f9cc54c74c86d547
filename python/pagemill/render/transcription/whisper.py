"""Whisper: a prompt has control tokens for language, task and timestamps.

    AUDIO <|startofprev|> earlier text <|startoftranscript|><|de|><|transcribe|><|notimestamps|>

Outputs with timestamps have a token for each 20 ms of a clip: `<|0.00|> text<|4.20|>`. The ids of
these tokens follow that of `<|notimestamps|>`, whether the tokenizer has them or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import msgspec

from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array
from pagemill.render.special_tokens import read_json
from pagemill.render.tokenizer import TextTokenizer
from pagemill.render.transcription.base import (
    Around,
    LanguageProbe,
    Span,
    SpeechCheckpoint,
    SpeechTask,
)

_CLIP_S = 30
_TIMESTAMP_S = 0.02
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
_ENGLISH = "en"
_ENGLISH_VOCABULARY = 51864  # of the models without other languages; all others have more
_MAX_FIRST_TIMESTAMP = 50  # 1 s: the default of the model's authors


class WrittenRules(NamedTuple):
    """What the files of a model say of its outputs."""

    vocab_size: int
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]
    max_first_timestamp: int

    @classmethod
    def of(cls, config: Mapping[str, Any], generation: Mapping[str, Any]) -> Self:
        """From config.json and generation_config.json; files of early versions of `transformers`
        have all in the first one.

        Raises:
            RenderError: the vocabulary has no size.
        """
        vocab_size = _number(config, "vocab_size")
        stated = {**config, **generation}

        def tokens(key: str) -> tuple[int, ...]:
            listed = as_array(stated.get(key)) or ()
            return tuple(i for i in listed if type(i) is int and 0 <= i < vocab_size)

        latest = stated.get("max_initial_timestamp_index")
        return cls(
            vocab_size,
            tokens("suppress_tokens"),
            tokens("begin_suppress_tokens"),
            min(latest, vocab_size)
            if type(latest) is int and latest >= 0
            else _MAX_FIRST_TIMESTAMP,
        )


class Whisper:
    """Implements `Transcription`."""

    max_clip_s: int | None = _CLIP_S
    speakers: bool = False

    def __init__(
        self,
        tokenizer: TextTokenizer,
        placeholder: int,
        *,
        is_multilingual: bool,
        max_prompt_tokens: int,
        rules: WrittenRules,
    ) -> None:
        """Reads the control tokens.

        Args:
            tokenizer: the model's.
            placeholder: the token that stands for the audio.
            is_multilingual: the model has languages other than English.
            max_prompt_tokens: of earlier text.
            rules: those of the model's files.

        Raises:
            RenderError: the tokenizer lacks a control token.
        """
        self._tokenizer = tokenizer
        self.placeholder = placeholder
        self._max_prompt_tokens = max_prompt_tokens
        self._previous = _control(tokenizer, "<|startofprev|>")
        self._start = _control(tokenizer, "<|startoftranscript|>")
        self._without_times = _control(tokenizer, "<|notimestamps|>")
        self._text_end = _control(tokenizer, "<|endoftext|>")
        self._languages = _languages(tokenizer) if is_multilingual else {}
        self._tasks = {
            translates: _control(tokenizer, f"<|{'translate' if translates else 'transcribe'}|>")
            for translates in ((False, True) if is_multilingual else ())
        }
        self._rules = TranscriptRules(
            rules.vocab_size,
            self._text_end,
            (*rules.suppressed, self._without_times),
            rules.suppressed_first,
            max_first_timestamp=rules.max_first_timestamp,
        )
        named = {token: language for language, token in self._languages.items()}
        start = Around((), (self._start,))
        self.probe: LanguageProbe | None = LanguageProbe(start, named, _no_speech(tokenizer))

    @classmethod
    def open(cls, checkpoint: SpeechCheckpoint) -> Self:
        """The model of a folder.

        Raises:
            RenderError: a file cannot be read, or lacks something.
        """
        config = checkpoint.config
        generation = read_json(checkpoint.folder / "generation_config.json")
        rules = WrittenRules.of(config, generation)
        stated = generation.get("is_multilingual")
        return cls(
            checkpoint.tokenizer,
            _number(config, "pad_token_id"),
            is_multilingual=(
                stated if isinstance(stated, bool) else rules.vocab_size != _ENGLISH_VOCABULARY
            ),
            # As when the model was trained: half of what the decoder reads, and writes.
            max_prompt_tokens=_number(config, "max_target_positions") // 2 - 1,
            rules=rules,
        )

    def checked(self, task: SpeechTask) -> SpeechTask:
        """See `Transcription`."""
        known = sorted(self._languages) or [_ENGLISH]
        if task.to_language not in (None, _ENGLISH):
            raise RenderError("this model translates to English only: send `en`", "to_language")
        if task.to_language is not None and not self._languages:
            raise RenderError("this model knows English only, and does not translate", "model")
        if task.language is not None and task.language not in known:
            raise RenderError(
                f"`language` {task.language[:40]!r} is not one of this model's:"
                f" {', '.join(known)}; without it the language is detected",
                "language",
            )
        return task if self._languages else task._replace(language=_ENGLISH)

    def around(self, task: SpeechTask) -> Around:
        """See `Transcription`."""
        after = [*self._earlier(task.prompt), self._start]
        if self._languages:
            assert task.language is not None, "it is detected first"
            after += [self._languages[task.language], self._tasks[task.to_language is not None]]
        if not task.timestamps:
            after.append(self._without_times)
        return Around((), after)

    def rules(self, task: SpeechTask) -> TranscriptRules | None:
        """See `Transcription`."""
        begin = self._without_times + 1 if task.timestamps else None
        return msgspec.structs.replace(self._rules, timestamp_begin=begin)

    def spans(self, token_ids: Sequence[int], clip_s: float) -> list[Span]:
        """See `Transcription`."""
        found: list[Span] = []
        start, text = 0.0, list[int]()

        def close(end: float) -> None:
            nonlocal text
            if text:
                found.append(Span(start, max(start, end), text))
                text = []

        for at, token in enumerate(token_ids):
            if token > self._without_times:
                # Clips are shorter than the 30 s that the model hears.
                time = min(_TIMESTAMP_S * (token - self._without_times - 1), clip_s)
                close(time)
                start = max(start, time)
            elif token < self._text_end:
                text.append(at)
        close(clip_s)
        return found

    def _earlier(self, prompt: str) -> list[int]:
        if not prompt.strip():
            return []
        ids = self._tokenizer.encode(
            f" {prompt.strip()}", add_special_tokens=False, parse_special=False
        )
        return [self._previous, *ids[-self._max_prompt_tokens :]]


def _languages(tokenizer: TextTokenizer) -> dict[str, int]:
    found: dict[str, int] = {}
    for content in tokenizer.added_tokens:
        named = _LANGUAGE.fullmatch(content)
        token = tokenizer.added_token_id(content)
        if named is not None and token is not None:
            found[named[1]] = token
    if not found:
        raise RenderError("the tokenizer has no tokens of languages, such as <|en|>")
    return found


def _no_speech(tokenizer: TextTokenizer) -> int | None:
    # Called otherwise in the first checkpoints.
    found = map(tokenizer.token_id, ("<|nospeech|>", "<|nocaptions|>"))
    return next((token for token in found if token is not None), None)


def _control(tokenizer: TextTokenizer, content: str) -> int:
    token = tokenizer.token_id(content)
    if token is None:
        raise RenderError(f"the tokenizer has no {content}")
    return token


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or value < 0:
        raise RenderError(f"config.json: {key} must be a number of 0 or more")
    return value
