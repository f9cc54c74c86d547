"""Prompts of Voxtral, as mistral-common writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagemill.render.errors import RenderError
from pagemill.render.transcription.base import SpeechTask, Transcription
from pagemill.render.transcription.table import find, open_transcription
from pagemill.render.transcription.testing.speech_tokenizers import (
    VOXTRAL_CONTROL,
    byte_tokenizer,
    checkpoint,
)

TOKENIZER = byte_tokenizer(VOXTRAL_CONTROL, first=True)


@pytest.fixture
def family(tmp_path: Path) -> Transcription:
    config = {"architectures": ["VoxtralForConditionalGeneration"], "audio_token_id": 5}
    row = find(config)
    assert row is not None and row.chats
    return open_transcription(row, checkpoint(tmp_path, TOKENIZER, config, {}))


def names(ids: object) -> list[str]:
    assert isinstance(ids, list)
    return [TOKENIZER.id_to_token(i) for i in ids]


def test_prompts(family: Transcription) -> None:
    before, after = family.around(family.checked(SpeechTask("de")))
    assert names(before) == ["<s>", "[INST]", "[BEGIN_AUDIO]"]
    assert names(after) == ["[/INST]", *"lang:de", "[TRANSCRIBE]"]
    assert names(family.around(SpeechTask()).after) == ["[/INST]", "[TRANSCRIBE]"]
    assert TOKENIZER.id_to_token(family.placeholder) == "[AUDIO]"
    assert family.probe is None and family.max_clip_s is None
    assert family.rules(SpeechTask("de")) is None


@pytest.mark.parametrize(
    ("task", "param"),
    [
        (SpeechTask("german"), "language"),
        (SpeechTask("de", prompt="a"), "prompt"),
        (SpeechTask("de", to_language="en"), "model"),
        (SpeechTask("de", timestamps=True), "response_format"),
    ],
)
def test_refusals(family: Transcription, task: SpeechTask, param: str) -> None:
    with pytest.raises(RenderError) as error:
        family.checked(task)
    assert error.value.param == param


def test_models_that_transcribe_nothing() -> None:
    assert find({"architectures": ["LlamaForCausalLM"]}) is None
    assert find({}) is None
