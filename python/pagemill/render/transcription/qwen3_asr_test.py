"""Qwen3-ASR's prompts: a message of its chat template, and the language behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from pagemill.render.chat_messages import Message
from pagemill.render.errors import RenderError
from pagemill.render.transcription.base import SpeechTask, Transcription
from pagemill.render.transcription.qwen3_asr import LANGUAGES
from pagemill.render.transcription.table import find, open_transcription
from pagemill.render.transcription.testing.speech_tokenizers import (
    QWEN3_ASR_CONTROL,
    byte_tokenizer,
    checkpoint,
    qwen3_asr_tokenizer,
)

NAMES = [*LANGUAGES.values(), "None"]
TOKENIZER = qwen3_asr_tokenizer(NAMES)
AUDIO = TOKENIZER.token_to_id("<|audio_pad|>")
ARCHITECTURES = {"architectures": ["Qwen3ASRForConditionalGeneration"]}
CONFIG = ARCHITECTURES | {"audio_token_id": AUDIO}


def template(messages: Sequence[Message], *, audios: int = 1) -> list[int]:
    *system, user = messages
    assert user == {"role": "user", "content": [{"type": "audio"}]}
    context = "".join(f"{message['role']}:{message['content']}" for message in system)
    return TOKENIZER.encode(f"{context}<|im_start|>{'<|audio_pad|>' * audios}<|im_end|>").ids


def opened(
    folder: Path, config: dict[str, Any], tokenizer: Tokenizer = TOKENIZER, **options: Any
) -> Transcription:
    row = find(config)
    assert row is not None and row.chats
    return open_transcription(
        row, checkpoint(folder, tokenizer, config, {}, lambda sent: template(sent, **options))
    )


def text(ids: Sequence[int]) -> str:
    return TOKENIZER.decode(list(ids), skip_special_tokens=False)


@pytest.mark.parametrize(
    "config", [CONFIG, ARCHITECTURES | {"thinker_config": {"audio_token_id": AUDIO}}]
)
def test_prompts(tmp_path: Path, config: dict[str, Any]) -> None:
    family = opened(tmp_path, config)
    assert family.placeholder == AUDIO and family.max_clip_s is None
    task = family.checked(SpeechTask("yue", prompt="Names: Pagemill."))
    before, after = family.around(task)
    assert text(before) == "system:Names: Pagemill.<|im_start|>"
    assert text(after) == "<|im_end|>language Cantonese<asr_text>"
    assert after[-1] == TOKENIZER.token_to_id("<asr_text>")
    assert family.rules(task) is None


def test_the_language_is_the_token_behind_a_prompt(tmp_path: Path) -> None:
    family = opened(tmp_path, CONFIG)
    assert family.probe is not None and family.probe.no_speech is None
    before, after = family.probe.around
    assert text(before) == "<|im_start|>" and text(after) == "<|im_end|>language"
    languages = family.probe.languages
    assert languages[TOKENIZER.token_to_id(" German")] == "de"
    silent = languages[TOKENIZER.token_to_id(" None")]
    assert sorted(languages.values()) == sorted([*LANGUAGES, silent])
    assert text(family.around(SpeechTask(silent)).after).endswith("language None<asr_text>")


@pytest.mark.parametrize(
    ("task", "param"),
    [
        (SpeechTask("en-us"), "language"),
        (SpeechTask(""), "language"),
        (SpeechTask(to_language="en"), "model"),
        (SpeechTask(timestamps=True), "response_format"),
    ],
)
def test_refusals(tmp_path: Path, task: SpeechTask, param: str) -> None:
    with pytest.raises(RenderError) as error:
        opened(tmp_path, CONFIG).checked(task)
    assert error.value.param == param


def test_a_prompt_has_no_placeholder_of_audio(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="of audio once with this `prompt`") as error:
        opened(tmp_path, CONFIG).around(SpeechTask("de", prompt="a <|audio_pad|>"))
    assert error.value.param == "prompt"


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="placeholder of audio once"):
        opened(tmp_path, CONFIG, audios=2)
    with pytest.raises(RenderError, match="audio_token_id must be a number"):
        opened(tmp_path, ARCHITECTURES)
    with pytest.raises(RenderError, match="does not tell languages"):
        opened(tmp_path, CONFIG, qwen3_asr_tokenizer(NAMES[2:]))
    with pytest.raises(RenderError, match="no <asr_text>"):
        opened(tmp_path, CONFIG, byte_tokenizer(QWEN3_ASR_CONTROL[:-1], first=True))
