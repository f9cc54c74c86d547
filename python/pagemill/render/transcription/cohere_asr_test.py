"""Prompts of Cohere's speech to text: control tokens, and the language that a request states."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagemill.render.errors import RenderError
from pagemill.render.transcription.base import SpeechTask, Transcription
from pagemill.render.transcription.table import find, open_transcription
from pagemill.render.transcription.testing.speech_tokenizers import (
    COHERE_ASR_CONTROL,
    byte_tokenizer,
    checkpoint,
)

TOKENIZER = byte_tokenizer(COHERE_ASR_CONTROL)
CONFIG = {"architectures": ["CohereAsrForConditionalGeneration"], "pad_token_id": 3}


@pytest.fixture(name="family")
def _family(tmp_path: Path) -> Transcription:
    row = find(CONFIG)
    assert row is not None and not row.chats
    return open_transcription(row, checkpoint(tmp_path, TOKENIZER, CONFIG, {}))


def test_prompts(family: Transcription) -> None:
    assert family.placeholder == 3 and family.max_clip_s == 35 and family.probe is None
    task = family.checked(SpeechTask("de"))
    before, after = family.around(task)
    assert not before and family.rules(task) is None
    assert [TOKENIZER.id_to_token(token) for token in after] == [
        "▁",
        "<|startofcontext|>",
        "<|startoftranscript|>",
        "<|emo:undefined|>",
        "<|de|>",
        "<|de|>",
        "<|pnc|>",
        "<|noitn|>",
        "<|notimestamp|>",
        "<|nodiarize|>",
    ]


@pytest.mark.parametrize("stated", [{}, {"pad_token_id": None}])
def test_padding_of_configurations_that_leave_it_out(
    tmp_path: Path, stated: dict[str, object]
) -> None:
    config = {"architectures": CONFIG["architectures"], **stated}
    row = find(config)
    assert row is not None
    assert open_transcription(row, checkpoint(tmp_path, TOKENIZER, config, {})).placeholder == 2


@pytest.mark.parametrize(
    ("task", "param"),
    [
        (SpeechTask(), "language"),
        (SpeechTask("sv"), "language"),
        (SpeechTask("german"), "language"),
        (SpeechTask("de", "en"), "model"),
        (SpeechTask("de", prompt="Names"), "prompt"),
        (SpeechTask("de", timestamps=True), "response_format"),
    ],
)
def test_refusals(family: Transcription, task: SpeechTask, param: str) -> None:
    with pytest.raises(RenderError) as refused:
        family.checked(task)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("config", "control", "why"),
    [
        (CONFIG | {"pad_token_id": "3"}, COHERE_ASR_CONTROL, "pad_token_id must be a number"),
        (CONFIG, COHERE_ASR_CONTROL[:-1], "the tokenizer has no <|zh|>"),
        (CONFIG, COHERE_ASR_CONTROL[1:], "the tokenizer has no ▁"),
    ],
)
def test_files_that_lack_something(
    tmp_path: Path, config: dict[str, object], control: tuple[str, ...], why: str
) -> None:
    row = find(config)
    assert row is not None
    with pytest.raises(RenderError) as refused:
        open_transcription(row, checkpoint(tmp_path, byte_tokenizer(control), config, {}))
    assert why in str(refused.value)
