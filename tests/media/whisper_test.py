"""Whisper through the engine: an encoder's rows are the first tokens of its decoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.models.log_mel import HOP
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

from tests.media.image_model import ImageModel, encoded, text
from tests.parity.tiny_models import save

BINS, FRONT = 7, 21  # of log-mel; rows of the encoder
MOST = 2 * FRONT * HOP  # samples of a recording
PLACEHOLDER = 3
AUDIO = [PLACEHOLDER]
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)


class WhisperModel(ImageModel):
    argument = "audios"


def config(**changes: Any) -> WhisperConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 257,
        "num_mel_bins": BINS,
        "d_model": 40,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 56,
        "decoder_ffn_dim": 72,
        "max_source_positions": FRONT,
        "max_target_positions": 90,
        "pad_token_id": PLACEHOLDER,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 4,
    }
    return WhisperConfig(**(sizes | changes))


def whisper(path: Path, **changes: Any) -> ImageModel:
    torch.manual_seed(0)
    reference = WhisperForConditionalGeneration(config(**changes))
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if parameter.ndim > 1 or "bias" in name:
                parameter.normal_(std=0.2)
    save(reference, path)

    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        """The ids of a prompt begin with the tokens of its recording."""
        assert ids[:FRONT] == AUDIO * FRONT
        found = _EXTRACTOR(list(audios), sampling_rate=16000, return_tensors="pt", max_length=MOST)[
            "input_features"
        ]
        with torch.inference_mode():
            decoded = torch.tensor([ids[FRONT:]])
            rows = reference(found, decoder_input_ids=decoded, use_cache=False).logits[0]
        return torch.cat([torch.zeros(FRONT, rows.shape[1]), rows])

    return WhisperModel(path, logits)


def recording(seed: int, samples: int = MOST) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=samples)
    return (noise * np.linspace(0.01, 0.3, samples)).astype(np.float32)


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> ImageModel:
    return whisper(tmp_path_factory.mktemp("whisper"))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(model: ImageModel, executor: str) -> None:
    prompts = [AUDIO + text(1, 4), AUDIO + text(2, 1), AUDIO + text(3, 17), AUDIO + text(4, 2)]
    audios = [[recording(1)], [recording(2, 999)], [recording(3)], [recording(1)]]
    with model.llm(executor=executor, max_model_len=FRONT + 90) as llm:
        outputs = model.generate(llm, prompts, audios, logprobs=0)
        for output, own in zip(outputs, audios, strict=True):
            model.check(output, own)
        assert encoded(llm) == 3, "equal recordings are encoded once"


@pytest.mark.parametrize("step", [21, 22, 23, 32])
def test_steps_of_media_of_text_and_of_both(model: ImageModel, step: int) -> None:
    """A step of a recording alone, which ends where the text begins, and longer ones."""
    prompts = [AUDIO + text(1, 9), AUDIO + text(2, 3)]
    audios = [[recording(1)], [recording(2)]]
    options = {"max_num_batched_tokens": step, "max_model_len": FRONT + 90}
    with model.llm(**options) as llm:
        for output, own in zip(model.generate(llm, prompts, audios), audios, strict=True):
            model.check(output, own)


def test_prefixes_are_those_of_equal_recordings(model: ImageModel) -> None:
    """Also where another text follows; KV of a block depends on the recording."""
    first, other = text(1, 20), text(2, 20)
    with model.llm(max_model_len=FRONT + 90) as llm:
        cached: list[int] = []
        for ids, own in [(first, 1), (first, 2), (first, 1), (other, 1)]:
            (output,) = model.generate(llm, [AUDIO + ids], [[recording(own)]])
            model.check(output, [recording(own)])
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 32, 16]


def test_preempted_requests_hear_again(model: ImageModel) -> None:
    prompts = [AUDIO + text(i, 40) for i in range(4)]
    audios = [[recording(i)] for i in range(4)]
    page = 2 * 40 * 16 * 4 * 3  # bytes: keys and values of three layers
    options = {"max_model_len": 80, "kv_cache_memory_bytes": f"{page * 9}B", "max_step_ms": 0}
    with model.llm(**options) as llm:
        outputs = model.generate_together(llm, prompts, audios)
        for output, own in zip(outputs, audios, strict=True):
            model.check(output, own)
        assert llm._engine.stats().num_preemptions > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_caches_and_activations_in_16_bits(model: ImageModel, dtype: str) -> None:
    """The largest error of a log probability is that of 8 bits of precision, in few layers."""
    prompt, own = AUDIO + text(1, 6), [recording(1)]
    log_probabilities: list[np.ndarray] = []
    for options in ({}, {"kv_cache_dtype": "bf16", "dtype": dtype}):
        with model.llm(max_model_len=FRONT + 90, **options) as llm:
            (output,) = model.generate(llm, [prompt], [own], logprobs=0)
            found = output.choices[0].logprobs
            assert found is not None
            log_probabilities.append(np.array([each.logprob for each in found[:1]]))
    np.testing.assert_allclose(*log_probabilities, rtol=0, atol=0.2)


def test_ranks(model: ImageModel) -> None:
    """Rank 0 hears, both decode."""
    prompts = [AUDIO + text(1, 9), AUDIO + text(2, 3)]
    audios = [[recording(1)], [recording(2)]]
    options = {"max_num_batched_tokens": 22, "max_model_len": FRONT + 90}
    with model.llm(tensor_parallel_size=2, **options) as llm:
        for output, own in zip(model.generate(llm, prompts, audios), audios, strict=True):
            model.check(output, own)


def test_what_is_no_recording_is_refused(model: ImageModel) -> None:
    def refuse(message: str, prompt: list[int], audios: list[np.ndarray]) -> None:
        with (
            model.llm(max_model_len=FRONT + 90) as llm,
            pytest.raises(EngineError, match=message) as refused,
        ):
            model.generate(llm, [prompt], [audios])
        assert refused.value.code == "INVALID_ARGUMENT"

    refuse("has one recording, this one has 0", text(1, 3), [])
    refuse("begin", text(1, 3) + AUDIO, [recording(1)])
    refuse("has one recording, this one has 2", AUDIO + AUDIO, [recording(1), recording(2)])
    refuse("at most 6720", AUDIO, [recording(1, MOST + 1)])
