"""An encoder-decoder on a device: its layers compute other ops of media than of text, also in steps
of text that are replayed from graphs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.media.media_model import encoded, text
from tests.media.whisper_models import AUDIO, FRONT, recording, whisper

PLUGIN = os.environ.get("PAGEMILL_TEST_EMULATED_GPU", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_EMULATED_GPU names no plugin")


@pytest.mark.parametrize("ranks", [1, 2])
def test_whisper(ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))
    model = whisper(tmp_path)
    prompts = [AUDIO + text(1, 9), AUDIO + text(2, 3)]
    audios = [[recording(1)], [recording(2)]]
    options = {"device": "emulated", "dtype": "f32", "tensor_parallel_size": ranks}
    # A recording is longer than what is left of the first step.
    with model.llm(max_num_batched_tokens=33, max_model_len=FRONT + 90, **options) as llm:
        for output, own in zip(model.generate(llm, prompts, audios), audios, strict=True):
            model.check(output, own)
        assert encoded(llm) == 2
