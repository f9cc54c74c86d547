"""Small tokenizers with the control tokens of families that transcribe."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from pagemill.render.chat_messages import Message
from pagemill.render.errors import RenderError
from pagemill.render.tokenizer import TextTokenizer
from pagemill.render.transcription.base import SpeechCheckpoint

WHISPER_LANGUAGES = ("en", "zh", "de", "haw")
WHISPER_CONTROL = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{language}|>" for language in WHISPER_LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
NUM_TIMESTAMPS = 1501
VOXTRAL_CONTROL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AUDIO]", "[BEGIN_AUDIO]", "[TRANSCRIBE]"),
)


QWEN3_ASR_CONTROL = (
    *("<|endoftext|>", "<|audio_pad|>", "<|im_start|>", "<|im_end|>", "<asr_text>"),
)
COHERE_ASR_CONTROL = (
    *("▁", "<|endoftext|>", "<pad>", "<|startofcontext|>", "<|startoftranscript|>"),
    *("<|emo:undefined|>", "<|pnc|>", "<|nopnc|>", "<|noitn|>", "<|notimestamp|>"),
    *("<|nodiarize|>", "<|ar|>", "<|de|>", "<|el|>", "<|en|>", "<|es|>", "<|fr|>", "<|it|>"),
    *("<|ja|>", "<|ko|>", "<|nl|>", "<|pl|>", "<|pt|>", "<|vi|>", "<|zh|>"),
)


def byte_tokenizer(control: tuple[str, ...], *, first: bool = False) -> Tokenizer:
    """A token for each byte, and `control` tokens behind them, or in front if `first`."""
    alphabet = sorted(ByteLevel.alphabet())
    names = [*control, *alphabet] if first else alphabet
    tokenizer = Tokenizer(BPE({name: i for i, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in control])
    return tokenizer


def whisper_tokenizer() -> Tokenizer:
    """Whisper's control tokens and timestamps behind 256 bytes."""
    tokenizer = byte_tokenizer(WHISPER_CONTROL)
    tokenizer.add_tokens(
        [AddedToken(f"<|{i / 50:.2f}|>", special=False) for i in range(NUM_TIMESTAMPS)]
    )
    return tokenizer


def qwen3_asr_tokenizer(languages: Sequence[str]) -> Tokenizer:
    """Control tokens, bytes, and a token for each name of a language with a space in front."""
    tokenizer = byte_tokenizer(QWEN3_ASR_CONTROL, first=True)
    tokenizer.add_tokens([AddedToken(f" {name}", special=False) for name in languages])
    return tokenizer


def _no_template(messages: Sequence[Message]) -> list[int]:
    raise RenderError("this model has no chat template")


def checkpoint(
    folder: Path,
    tokenizer: Tokenizer,
    config: dict[str, Any],
    generation: dict[str, Any],
    encode_chat: Callable[[Sequence[Message]], list[int]] = _no_template,
) -> SpeechCheckpoint:
    """What a family is opened with; `generation` is generation_config.json."""
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return SpeechCheckpoint(TextTokenizer(tokenizer), config, folder, encode_chat)
