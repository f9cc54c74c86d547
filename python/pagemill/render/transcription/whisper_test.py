"""Prompts of Whisper, and its timestamps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.render.errors import RenderError
from pagemill.render.transcription.base import Span, SpeechTask
from pagemill.render.transcription.table import find, open_transcription
from pagemill.render.transcription.testing.speech_tokenizers import (
    WHISPER_CONTROL,
    byte_tokenizer,
    checkpoint,
    whisper_tokenizer,
)
from pagemill.render.transcription.whisper import Whisper

TOKENIZER = whisper_tokenizer()
CONFIG: dict[str, Any] = {
    "architectures": ["WhisperForConditionalGeneration"],
    "vocab_size": TOKENIZER.get_vocab_size(),
    "pad_token_id": 256,
    "max_target_positions": 20,
}


def opened(folder: Path, *, config: dict[str, Any] | None = None, **generation: Any) -> Whisper:
    given = checkpoint(folder, TOKENIZER, CONFIG | (config or {}), generation)
    row = find(given.config)
    assert row is not None and not row.chats
    family = open_transcription(row, given)
    assert isinstance(family, Whisper)
    return family


def names(ids: Any) -> list[str]:
    return [TOKENIZER.id_to_token(i) for i in ids]


def timestamp(seconds: float) -> int:
    token = TOKENIZER.token_to_id(f"<|{seconds:.2f}|>")
    assert token is not None
    return token


@pytest.mark.parametrize(
    ("task", "after"),
    [
        (
            SpeechTask("de"),
            ["<|startoftranscript|>", "<|de|>", "<|transcribe|>", "<|notimestamps|>"],
        ),
        (
            SpeechTask("haw", to_language="en", timestamps=True),
            ["<|startoftranscript|>", "<|haw|>", "<|translate|>"],
        ),
        (
            SpeechTask("en", prompt=" ab", timestamps=True),
            [
                *("<|startofprev|>", "Ġ", "a", "b", "<|startoftranscript|>"),
                *("<|en|>", "<|transcribe|>"),
            ],
        ),
    ],
)
def test_prompts(tmp_path: Path, task: SpeechTask, after: list[str]) -> None:
    family = opened(tmp_path)
    around = family.around(family.checked(task))
    assert list(around.before) == [] and names(around.after) == after
    assert family.placeholder == 256 and family.max_clip_s == 30


def test_of_long_earlier_text_the_end_is_kept(tmp_path: Path) -> None:
    family = opened(tmp_path)
    task = SpeechTask("en", prompt="abcdefghijkl")
    assert names(family.around(task).after)[:10] == ["<|startofprev|>", *"defghijkl"]


def test_control_tokens_in_earlier_text_are_text(tmp_path: Path) -> None:
    ids = opened(tmp_path).around(SpeechTask("en", prompt="<|de|>")).after
    assert names(ids)[:8] == ["<|startofprev|>", "Ġ", *"<|de|>"]


def test_languages_are_those_of_the_vocabulary(tmp_path: Path) -> None:
    family = opened(tmp_path)
    assert family.probe is not None
    assert names(family.probe.around.after) == ["<|startoftranscript|>"]
    assert sorted(family.probe.languages.values()) == ["de", "en", "haw", "zh"]
    assert family.probe.no_speech == TOKENIZER.token_to_id("<|nospeech|>")
    with pytest.raises(RenderError, match="de, en, haw, zh"):
        family.checked(SpeechTask("fr"))
    with pytest.raises(RenderError, match="to English only"):
        family.checked(SpeechTask("de", to_language="zh"))


@pytest.mark.parametrize(
    ("config", "generation"), [({"vocab_size": 51864}, {}), ({}, {"is_multilingual": False})]
)
def test_models_of_english_have_no_languages(
    tmp_path: Path, config: dict[str, Any], generation: dict[str, Any]
) -> None:
    family = opened(tmp_path, config=config, **generation)
    task = family.checked(SpeechTask())
    assert task.language == "en"
    assert names(family.around(task).after) == ["<|startoftranscript|>", "<|notimestamps|>"]
    assert family.probe is not None and not family.probe.languages
    for wrong in (SpeechTask("de"), SpeechTask(to_language="en")):
        with pytest.raises(RenderError):
            family.checked(wrong)


def test_rules_are_those_of_the_files(tmp_path: Path) -> None:
    without_times = TOKENIZER.token_to_id("<|notimestamps|>")
    size, end = TOKENIZER.get_vocab_size(), 256
    family = opened(
        tmp_path,
        config={"suppress_tokens": [7], "begin_suppress_tokens": [32, end]},
        suppress_tokens=[3, 5, -1, 10**9, "a"],
        max_initial_timestamp_index=10**12,
    )
    suppressed = (3, 5, without_times)
    assert family.rules(SpeechTask("en")) == TranscriptRules(
        size, end, suppressed, (32, end), max_first_timestamp=size
    )
    assert family.rules(SpeechTask("en", timestamps=True)) == TranscriptRules(
        size, end, suppressed, (32, end), timestamp(0), size
    )
    plain = opened(tmp_path).rules(SpeechTask("en", timestamps=True))
    assert plain == TranscriptRules(size, end, (without_times,), (), timestamp(0), 50)


def test_spans(tmp_path: Path) -> None:
    family = opened(tmp_path)
    end, a, b, c = 256, 1, 2, 3

    def spans(*tokens: int, clip_s: float = 30.0) -> list[Span]:
        return family.spans(tokens, clip_s)

    assert spans(timestamp(0), a, b, timestamp(2.5), timestamp(3), c, timestamp(4), end) == [
        Span(0.0, 2.5, [1, 2]),
        Span(3.0, 4.0, [5]),
    ]
    assert spans(timestamp(1), a, end, clip_s=7.5) == [Span(1.0, 7.5, [1])]
    assert spans(a, b) == [Span(0.0, 30.0, [0, 1])]
    assert spans(timestamp(0), a, timestamp(30), clip_s=12.0) == [Span(0.0, 12.0, [1])]
    assert spans(timestamp(5), a, timestamp(3), b, timestamp(4)) == [
        Span(5.0, 5.0, [1]),
        Span(5.0, 5.0, [3]),
    ], "times never go back"
    assert spans(timestamp(0), timestamp(30), end) == [] and spans() == []


def test_files_that_lack_something(tmp_path: Path) -> None:
    incomplete = byte_tokenizer(WHISPER_CONTROL[:-1])
    with pytest.raises(RenderError, match="notimestamps"):
        Whisper.open(checkpoint(tmp_path, incomplete, CONFIG, {}))
    without = byte_tokenizer(tuple(name for name in WHISPER_CONTROL if len(name) > 7))
    with pytest.raises(RenderError, match="languages"):
        Whisper.open(checkpoint(tmp_path, without, CONFIG, {}))
    with pytest.raises(RenderError, match="pad_token_id"):
        Whisper.open(checkpoint(tmp_path, TOKENIZER, CONFIG | {"pad_token_id": None}, {}))
