"""A real Whisper writes what `transformers` hears in a clip, about what is said in it, and when;
over a server, a session writes what a file has."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import torch
from pagemill.engine.llm import LLM
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizerFast,
    pipeline,
)

from tests.e2e.server_process import NAME, serve
from tests.parity.model_path import model_path
from tests.real_speech.ctranslate2_files import convert
from tests.transcription.transcribing_server import PATH, TRANSCRIBED, session

# <|endoftext|> in place of the recording; <|startoftranscript|>, <|en|>, <|transcribe|> and
# <|notimestamps|>.
AUDIO, START = 50257, [50258, 50259, 50359, 50363]
MOST = 60  # tokens
# Of Whisper base: openai/whisper, _ALIGNMENT_HEADS.
HEADS = [[3, 1], [4, 2], [4, 3], [4, 7], [5, 1], [5, 2], [5, 4], [5, 6]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `transformers` saves it."""
    files = model_path("PAGEMILL_TEST_WHISPER_DIR").parent
    folder = tmp_path_factory.mktemp("whisper")
    convert((files / "model.bin").read_bytes(), files / "tokenizer.json", folder)
    return folder


@pytest.fixture(scope="module")
def clip() -> Path:
    return model_path("PAGEMILL_TEST_WHISPER_DIR").parent / "beckett.wav"


def is_heard(text: str) -> bool:
    return "ever tried ever failed" in text.lower().replace(".", "").replace(",", "")


def test_a_clip(model: Path, clip: Path) -> None:
    with LLM(str(model), dtype="f32", kv_cache_dtype="f32", pack_cache=False) as llm:
        (output,) = llm.generate(
            [[AUDIO, *START]],
            audios=[[clip]],
            temperature=0.0,
            max_tokens=MOST,
            progress=io.StringIO(),
        )
    samples, rate = soundfile.read(clip, dtype="float32")
    features = WhisperFeatureExtractor()(samples, sampling_rate=rate, return_tensors="pt")
    reference = WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float32)
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
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    text = tokenizer.decode(heard, skip_special_tokens=True)
    assert is_heard(text), text


def test_a_session(model: Path, clip: Path, tmp_path: Path) -> None:
    samples, rate = soundfile.read(clip, dtype="int16")
    heard = {
        "format": {"type": "audio/pcm", "rate": rate},
        "transcription": {"language": "en"},
        "turn_detection": None,
    }
    with serve(str(model), tmp_path, ("--max-num-seqs", "2")) as server:
        files = {"file": clip.read_bytes()}
        url, data = f"{server.base_url}{PATH}", {"model": NAME, "language": "en"}
        expected = httpx.post(url, files=files, data=data, timeout=300).json()["text"]
        assert is_heard(expected)
        with session(server, intent="transcription") as client:
            client.update(heard, type="transcription")
            client.commit(samples)
            assert client.until(TRANSCRIBED).transcript == expected
            turns = {"turn_detection": {"type": "server_vad"}}  # the first has what is heard
            client.update(heard | turns, type="transcription")
            client.append(np.concatenate([samples, np.zeros(2 * rate, np.int16)]))
            assert is_heard(client.until(TRANSCRIBED).transcript)


def test_words(model: Path, clip: Path, tmp_path: Path) -> None:
    for file in model.iterdir():
        (tmp_path / file.name).symlink_to(file)
    generation = GenerationConfig(
        decoder_start_token_id=START[0],
        eos_token_id=AUDIO,
        pad_token_id=AUDIO,
        no_timestamps_token_id=START[-1],
        max_initial_timestamp_index=50,
        suppress_tokens=[],
        is_multilingual=True,
        lang_to_id={"<|en|>": START[1]},
        task_to_id={"transcribe": START[2]},
        alignment_heads=HEADS,
    )
    generation.save_pretrained(tmp_path)
    options = ("--dtype", "f32", "--kv-cache-dtype", "f32", "--activation-dtype", "f32")
    with serve(str(tmp_path), tmp_path, options) as server:
        data = {
            "language": "en",
            "response_format": "verbose_json",
            "timestamp_granularities[]": "word",
        }
        url, files = f"{server.base_url}{PATH}", {"file": clip.read_bytes()}
        answer = httpx.post(url, files=files, data=data, timeout=300)
        assert answer.status_code == 200, answer.text
        found = answer.json()["words"]
    reference = WhisperForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32)
    reference.generation_config = generation
    heard = pipeline(
        "automatic-speech-recognition",
        model=reference,
        tokenizer=WhisperTokenizerFast(tokenizer_file=str(model / "tokenizer.json")),
        feature_extractor=WhisperFeatureExtractor(),
    )
    samples, _ = soundfile.read(clip, dtype="float32")
    generate: dict[str, Any] = {"language": "en", "task": "transcribe", "num_beams": 1}
    chunks = heard(samples, return_timestamps="word", generate_kwargs=generate)["chunks"]
    assert [word["word"] for word in found] == [chunk["text"].strip() for chunk in chunks]
    assert is_heard(" ".join(word["word"] for word in found))
    times = np.array([(word["start"], word["end"]) for word in found])
    expected = np.array([chunk["timestamp"] for chunk in chunks])
    np.testing.assert_allclose(times, expected, rtol=0, atol=0.011)  # it rounds to 10 ms
