"""MOSS-Transcribe-Diarize through the engine: its tokens are those of `transformers`, with the
times that its processor writes between those of audio."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.models.audio.log_mel import HOP
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.media.audio_models import PLACEHOLDER, audio
from tests.media.media_model import MediaTestModel, encoded, text
from tests.media.moss_transcribe_models import MOST, audio_text, moss_transcribe, with_times

AUDIO = [PLACEHOLDER]


@pytest.fixture(scope="module", name="moss")
def _moss(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return moss_transcribe(tmp_path_factory.mktemp("moss_transcribe"))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_times_are_among_tokens(moss: MediaTestModel, executor: str) -> None:
    """Also a few samples, rests of groups of the encoder's vectors, and times of two digits."""
    lengths = [2, 8 * HOP, 8 * HOP + 1, MOST, MOST + 1, 32_000, 33_000, 4 * MOST, 162_000]
    prompt = text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4)
    audios = [[audio(1, samples), audio(2, 3000)] for samples in lengths]
    assert audio_text(audios[-1][0]).endswith("8" + "a" * 25 + "10aa")
    with moss.llm(executor=executor) as llm:
        outputs = moss.generate(llm, [prompt] * len(lengths), audios, logprobs=0)
        for output, own in zip(outputs, audios, strict=True):
            moss.check(output, own)


def test_the_reference_reads_digits() -> None:
    """In place of placeholders that the engine's prompt has there."""
    ids = [*AUDIO * len(audio_text(audio(1, 33_000))), 9]
    assert with_times(ids, [audio(1, 33_000)]) == [*AUDIO * 25, 15 + 2, *AUDIO, 9]


def test_equal_windows_at_other_times_are_other_items(moss: MediaTestModel) -> None:
    """Their tokens have other digits between them."""
    sound = np.tile(audio(1, MOST), 8)  # times are in the fourth and the eighth window
    with moss.llm() as llm:
        (output,) = moss.generate(llm, [AUDIO + text(1, 5)], [[sound]])
        moss.check(output, [sound])
        assert encoded(llm) == 3


def test_a_step_may_be_shorter_than_an_item(moss: MediaTestModel) -> None:
    sound = audio(1, 70_000)
    with moss.llm(max_num_batched_tokens=8) as llm:
        (output,) = moss.generate(llm, [AUDIO + text(1, 5)], [[sound]])
        moss.check(output, [sound])


@pytest.mark.parametrize("changes", [{"projector_bias": False}, {"tie_word_embeddings": False}])
def test_other_configurations(tmp_path: Path, changes: dict[str, Any]) -> None:
    model, sound = moss_transcribe(tmp_path, **changes), audio(1, MOST)
    with model.llm() as llm:
        (output,) = model.generate(llm, [AUDIO + text(1, 5)], [[sound]])
        model.check(output, [sound])


def test_ranks_and_stages_of_text(moss: MediaTestModel) -> None:
    moss.check_divided()


def test_language_model_only(moss: MediaTestModel) -> None:
    moss.check_language_model_only("audio_tower.", audio(1, 900))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"audio_merge_size": 2}, "audio_merge_size must be 4"),
        ({"audio_chunk_size": 480_000}, "audio_chunk_size must be 8960"),
    ],
)
def test_refusals(
    moss: MediaTestModel, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    config = json.loads((moss.path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    (tmp_path / "model.safetensors").symlink_to(moss.path / "model.safetensors")
    with pytest.raises(ModelConfigError, match=message):
        build(ModelSource.open(tmp_path), BuildOptions())


def test_audio_that_does_not_fit_is_refused(moss: MediaTestModel) -> None:
    stereo = np.zeros((900, 2), np.float32)
    with moss.llm() as llm:
        moss.check_refused(llm, AUDIO, [stereo], r"audio 0: .*, got \[900, 2\]")
        moss.check_refused(llm, AUDIO, [stereo[:0, 0]], r"audio 0: .*, got \[0\]")
