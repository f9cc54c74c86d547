"""A real Whisper writes what `transformers` hears in a clip, and about what is said in it."""

from __future__ import annotations

import io
from pathlib import Path

import soundfile
import torch
from pagemill.engine.llm import LLM
from transformers import (
    PreTrainedTokenizerFast,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from tests.parity.model_path import model_path
from tests.real_speech.ctranslate2_files import convert

# <|endoftext|> in place of the recording; <|startoftranscript|>, <|en|>, <|transcribe|> and
# <|notimestamps|>.
AUDIO, START = 50257, [50258, 50259, 50359, 50363]
MOST = 60  # tokens


def test_a_clip(tmp_path: Path) -> None:
    files = model_path("PAGEMILL_TEST_WHISPER_DIR").parent
    convert((files / "model.bin").read_bytes(), files / "tokenizer.json", tmp_path)
    clip = files / "beckett.wav"
    with LLM(str(tmp_path), dtype="f32", kv_cache_dtype="f32", pack_cache=False) as llm:
        (output,) = llm.generate(
            [[AUDIO, *START]],
            audios=[[clip]],
            temperature=0.0,
            max_tokens=MOST,
            progress=io.StringIO(),
        )
    samples, rate = soundfile.read(clip, dtype="float32")
    features = WhisperFeatureExtractor()(samples, sampling_rate=rate, return_tensors="pt")
    reference = WhisperForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.inference_mode():
        (expected,) = reference.generate(
            features["input_features"],
            decoder_input_ids=torch.tensor([START]),
            max_new_tokens=MOST,
            num_beams=1,
        )
    *heard, end = output.choices[0].token_ids
    assert end == AUDIO  # which is also the end of a text
    written = expected.tolist()  # some versions of `transformers` return the beginning, too
    assert heard == (written[len(START) :] if written[: len(START)] == START else written)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    text = tokenizer.decode(heard, skip_special_tokens=True)
    assert "ever tried ever failed" in text.lower().replace(".", "").replace(",", ""), text
