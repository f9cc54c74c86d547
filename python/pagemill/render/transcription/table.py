"""Families that transcribe, by the architecture of a configuration. To add one: a module with a
class that implements `Transcription`, and a row here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from pagemill.render.json_values import as_array
from pagemill.render.transcription.base import SpeechCheckpoint, Transcription


class Row(NamedTuple):
    """`path` is "module:Class" in this package. `chats`: it answers text, too. `part`: a model
    transcribes only if its configuration has this part."""

    path: str
    chats: bool
    part: str = ""


FAMILIES: Mapping[str, Row] = {
    "CohereAsrForConditionalGeneration": Row("cohere_asr:CohereAsr", chats=False),
    "Gemma4ForConditionalGeneration": Row("instructed:Gemma4", chats=True, part="audio_config"),
    "GlmAsrForConditionalGeneration": Row("instructed:GlmAsr", chats=True),
    "GraniteSpeechForConditionalGeneration": Row("instructed:GraniteSpeech", chats=True),
    "GraniteSpeechPlusForConditionalGeneration": Row("instructed:GraniteSpeech", chats=True),
    "MossTranscribeDiarizeForConditionalGeneration": Row(
        "instructed:MossTranscribeDiarize", chats=True
    ),
    "Qwen2_5OmniForConditionalGeneration": Row("instructed:Qwen25Omni", chats=True),
    "Qwen2_5OmniModel": Row("instructed:Qwen25Omni", chats=True),
    "Qwen2_5OmniThinkerForConditionalGeneration": Row("instructed:Qwen25Omni", chats=True),
    "Qwen3ASRForConditionalGeneration": Row("qwen3_asr:Qwen3Asr", chats=True),
    "VoxtralForConditionalGeneration": Row("voxtral:Voxtral", chats=True),
    "WhisperForConditionalGeneration": Row("whisper:Whisper", chats=False),
}


def find(config: Mapping[str, Any]) -> Row | None:
    """The row of a model with this configuration; None: it transcribes nothing."""
    names = as_array(config.get("architectures")) or [None]
    row = FAMILIES.get(names[0]) if isinstance(names[0], str) else None
    return None if row is None or (row.part and config.get(row.part) is None) else row


def open_transcription(row: Row, checkpoint: SpeechCheckpoint) -> Transcription:
    """What is known of a model.

    Raises:
        RenderError: its files lack something that is needed.
    """
    module, _, name = row.path.partition(":")
    family = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return family.open(checkpoint)
