"""Models that chat about audio: the prompt is what a chat template makes of a message with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pagemill.render.chat_messages import Message
from pagemill.render.errors import RenderError
from pagemill.render.transcription.base import SpeechTask, Transcription
from pagemill.render.transcription.table import find, open_transcription
from pagemill.render.transcription.testing.speech_tokenizers import (
    VOXTRAL_CONTROL,
    byte_tokenizer,
    checkpoint,
)

TOKENIZER = byte_tokenizer(VOXTRAL_CONTROL, first=True)
AUDIO = TOKENIZER.token_to_id("[AUDIO]")
GEMMA4 = {"architectures": ["Gemma4ForConditionalGeneration"], "audio_token_id": AUDIO}
GLM = {"architectures": ["GlmAsrForConditionalGeneration"], "audio_token_id": AUDIO}
THINKER = {"audio_token_index": AUDIO}


def template(messages: Sequence[Message], *, audios: int = 1) -> list[int]:
    """`[INST]`, audio, the text, and `[/INST]`."""
    (message,) = messages
    audio, text = message["content"]
    assert message["role"] == "user" and audio == {"type": "audio"}
    return TOKENIZER.encode(f"[INST]{'[AUDIO]' * audios}{text['text']}[/INST]").ids


def opened(folder: Path, config: dict[str, Any], **options: Any) -> Transcription:
    row = find(config)
    assert row is not None and row.chats
    return open_transcription(
        row, checkpoint(folder, TOKENIZER, config, {}, lambda sent: template(sent, **options))
    )


@pytest.mark.parametrize(
    ("config", "instruction"),
    [
        (GLM, "Please transcribe this audio into text"),
        (
            {"architectures": ["GraniteSpeechForConditionalGeneration"]} | THINKER,
            "can you transcribe the speech into a written format?",
        ),
        (
            {"architectures": ["Qwen2_5OmniModel"], "thinker_config": THINKER},
            "Transcribe this audio into text.",
        ),
        (
            {"architectures": ["Qwen2_5OmniThinkerForConditionalGeneration"]} | THINKER,
            "Transcribe this audio into text.",
        ),
    ],
)
def test_prompts(tmp_path: Path, config: dict[str, Any], instruction: str) -> None:
    family = opened(tmp_path, config)
    before, after = family.around(family.checked(SpeechTask("de")))
    assert before == [TOKENIZER.token_to_id("[INST]")]
    assert TOKENIZER.decode(after, skip_special_tokens=False) == f"{instruction}[/INST]"
    assert family.placeholder == AUDIO and family.probe is None and family.max_clip_s is None
    assert family.rules(SpeechTask()) is None and not family.speakers


def test_gemma4_hears_clips(tmp_path: Path) -> None:
    """Those of its models that have an encoder of audio."""
    assert find(GEMMA4) is None and find(GEMMA4 | {"audio_config": None}) is None
    family = opened(tmp_path, GEMMA4 | {"audio_config": {}})
    _, after = family.around(family.checked(SpeechTask()))
    written = TOKENIZER.decode(after, skip_special_tokens=False)
    assert written == "Transcribe the following speech segment in its original language.[/INST]"
    assert family.placeholder == AUDIO and family.max_clip_s == 30


@pytest.mark.parametrize("stated", [{}, {"audio_token_id": None}])
def test_audio_of_configurations_that_leave_its_token_out(
    tmp_path: Path, stated: dict[str, Any]
) -> None:
    """It is 258881, which this template does not write."""
    config = {"architectures": GEMMA4["architectures"], "audio_config": {}, **stated}
    with pytest.raises(RenderError, match="placeholder of audio once"):
        opened(tmp_path, config)


def test_an_instruction_of_the_chat_template(tmp_path: Path) -> None:
    """MOSS-Transcribe-Diarize's says who says what, and when."""
    config = {"architectures": ["MossTranscribeDiarizeForConditionalGeneration"]}

    def own(messages: Sequence[Message]) -> list[int]:
        assert messages == [{"role": "user", "content": [{"type": "audio"}]}]
        return TOKENIZER.encode("[INST][AUDIO]Who?[/INST]").ids

    row = find(config)
    assert row is not None
    opened = checkpoint(tmp_path, TOKENIZER, config | {"audio_token_id": AUDIO}, {}, own)
    family = open_transcription(row, opened)
    task = family.checked(SpeechTask(timestamps=True))
    assert TOKENIZER.decode(family.around(task).after, skip_special_tokens=False) == "Who?[/INST]"
    assert family.speakers
    with pytest.raises(RenderError) as error:
        family.checked(SpeechTask(prompt="a"))
    assert error.value.param == "prompt"


@pytest.mark.parametrize("audios", [0, 2])
def test_templates_that_do_not_fit(tmp_path: Path, audios: int) -> None:
    with pytest.raises(RenderError, match="placeholder of audio once"):
        opened(tmp_path, GLM, audios=audios)
    with pytest.raises(RenderError, match="audio_token_id must be a number"):
        opened(tmp_path, {"architectures": GLM["architectures"]})


@pytest.mark.parametrize(
    ("task", "param"),
    [
        (SpeechTask("german"), "language"),
        (SpeechTask(prompt="a"), "prompt"),
        (SpeechTask(to_language="en"), "model"),
        (SpeechTask(timestamps=True), "response_format"),
    ],
)
def test_refusals(tmp_path: Path, task: SpeechTask, param: str) -> None:
    with pytest.raises(RenderError) as error:
        opened(tmp_path, GLM).checked(task)
    assert error.value.param == param
