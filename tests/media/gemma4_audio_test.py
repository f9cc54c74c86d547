"""Audio of Gemma 4 through the engine: tokens are those of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill import _native
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.encoder import MediaSizes
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.models.audio.gemma4_mel import LEAST_SAMPLES, gemma4_log_mel
from pagemill.models.audio.log_mel import HOP
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.gemma4_media import Gemma4MediaModel
from pagemill.models.multimodal.gemma4_omni import Gemma4OmniModel
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource

from tests.media.audio_models import audio
from tests.media.gemma4_models import (
    AUDIO,
    AUDIO_END,
    AUDIO_START,
    BINS,
    PLACEHOLDER,
    VIDEO,
    Gemma4TestModel,
    gemma4,
    image,
    log_mel,
)
from tests.media.media_model import encoded, text
from tests.parity.tiny_models import save

SOUND = [AUDIO]
# Bounds that clamp activations, and linear layers without bounds.
CHANGES: dict[str, dict[str, Any]] = {
    "bounded": {"gradient_clipping": 0.75},
    "plain": {"use_clipped_linears": False},
}


def _made(path: Path, changes: dict[str, Any]) -> Gemma4TestModel:
    torch.manual_seed(0)
    return Gemma4TestModel(path, save(gemma4("small", changes), path))


@pytest.fixture(scope="module", name="model", params=CHANGES)
def _model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Gemma4TestModel:
    return _made(tmp_path_factory.mktemp(request.param), CHANGES[request.param])


def _samples(frames: int) -> int:
    return (frames + 1) * HOP


def _tokens(samples: int) -> int:
    """A fourth of the frames that end in front of the last sample."""
    return -(-(-(-samples // HOP) - 1) // 4)


def test_log_mel_is_that_of_the_extractor() -> None:
    for samples in (LEAST_SAMPLES, 2 * HOP, 2 * HOP + 1, 40_000, 480_000):
        own = audio(1, samples)
        found = log_mel([own])
        expected = found["input_features"][found["input_features_mask"]]
        np.testing.assert_allclose(gemma4_log_mel(own, BINS), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_the_encoder_is_that_of_transformers(model: Gemma4TestModel, executor: str) -> None:
    """Of a number of frames with each rest of four, and of several seconds, which are longer than
    windows and taps are."""
    encoder = build(ModelSource.open(model.path), BuildOptions()).encoders[1]
    assert encoder.features is not None
    run = (
        TorchExecutor(encoder.program_text, TorchOptions())
        if executor == "torch"
        else _native.NativeExecutor(
            encoder.program_text, _native.ExecutorOptions(activation_dtype="f32")
        )
    )
    for samples in (LEAST_SAMPLES, *(_samples(20 + i) for i in range(4)), 3 * 16_000 + 77):
        own = audio(samples, samples)
        with torch.inference_mode():
            found = model.transformer.model.get_audio_features(**log_mel([own]))
        expected = found.pooler_output[found.attention_mask].numpy()
        item = encoder.features(PreparedMedia("audio", own))
        assert item.tokens == len(item.rows) == len(expected) == _tokens(samples)
        count = np.arange(len(item.rows), dtype=np.int32)
        batch = {
            "token_ids": count * 0,
            "positions": count,
            "query_start": np.array([0, len(count)], np.int32),
            "seq_lens": np.array([len(count)], np.int32),
            "logits_rows": count[:0],
            "media_rows": count,
            "kv": [],
            "inputs": {"features": item.rows},
        }
        np.testing.assert_allclose(run(batch)["embeddings"], expected, rtol=0, atol=5e-5)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_audio(model: Gemma4TestModel, executor: str) -> None:
    """Two items in a prompt, of which the second has an odd length of several seconds."""
    prompt = text(1, 3) + SOUND + text(2, 5) + SOUND + text(3, 4)
    audios = [[audio(i, _samples(20 + i)), audio(9, 2 * 16_000 + 4321 + i)] for i in range(4)]
    with model.llm(executor=executor) as llm:
        none = [[] for _ in audios]
        outputs = model.generate(llm, [prompt] * 4, none, audios=audios, logprobs=0)
        assert encoded(llm) == 8
    for output, own in zip(outputs, audios, strict=True):
        tokens = sum(_tokens(len(each)) for each in own)
        assert output.prompt_token_ids.count(AUDIO) == tokens
        model.check(output, own)


def test_audio_has_tokens_around_it(model: Gemma4TestModel) -> None:
    with model.llm() as llm:
        (output,) = model.generate(llm, [[20, *SOUND, 21]], [[]], audios=[[audio(1, 3000)]])
    assert output.prompt_token_ids == [20, AUDIO_START, *SOUND * 5, AUDIO_END, 21]


@pytest.mark.parametrize("step", [16, 64])
def test_audio_beside_images_and_videos(model: Gemma4TestModel, step: int) -> None:
    """In one prompt, and in prompts that share steps."""
    seen, heard = image(1, 6, 6), [audio(1, 30_001), audio(2, 5000)]
    patches, _ = image(2, 12, 3)
    video = patches, (2, 6, 3), FrameTimes((0.0, 61.4), 61.4)
    prompts = [
        text(1, 4) + SOUND + [PLACEHOLDER] + text(2, 3) + [VIDEO] + SOUND + text(3, 5),
        SOUND + text(4, 3),
        [PLACEHOLDER] + text(5, 4),
        text(6, 20),
    ]
    images, videos = [[seen], [], [seen], []], [[video], [], [], []]
    audios = [heard, heard[:1], [], []]
    with model.llm(max_num_batched_tokens=step) as llm:
        outputs = model.generate(llm, prompts, images, videos=videos, audios=audios, logprobs=0)
        assert encoded(llm) == 2 + 1 + 2
    for output, *media in zip(outputs, images, videos, audios, strict=True):
        model.check(output, [item for kind in media for item in kind])


def test_audio_that_does_not_fit_is_refused(model: Gemma4TestModel) -> None:
    with model.llm() as llm:
        for own in (
            audio(1, LEAST_SAMPLES - 1),
            audio(1, 30 * 16_000 + 1),
            audio(1, 4000).reshape(2, -1),
        ):
            with pytest.raises(
                EngineError, match=r"from 161 to 480000 of them \(30 s\)"
            ) as refused:
                model.generate(llm, [SOUND], [[]], audios=[[own]])
            assert refused.value.code == "INVALID_ARGUMENT"


def test_memory_is_that_of_the_longest_audio(model: Gemma4TestModel) -> None:
    built = build(ModelSource.open(model.path), BuildOptions())
    config = build_config(EngineConfig, {"max_num_batched_tokens": 8192, "max_num_seqs": 4})
    sizes = MediaSizes.of(built, ExecutorSizes.of(built, config, "f32", None), config)
    assert sizes.encoders[1].encoder_tokens == 750


def test_models_without_audio(model: Gemma4TestModel) -> None:
    """Those that have no encoder, and those whose images would let tokens of audio see each
    other."""
    config = ModelSource.open(model.path).config
    both = {**config["text_config"], "use_bidirectional_attention": "vision"}
    for changes in ({"audio_config": None}, {"text_config": both}):
        assert type(Gemma4OmniModel.from_config({**config, **changes})) is Gemma4MediaModel
    assert type(Gemma4OmniModel.from_config(config)) is Gemma4OmniModel
    model.check_divided()


def test_an_encoder_that_is_not_needed_is_not_loaded(model: Gemma4TestModel) -> None:
    source = ModelSource.open(model.path)
    (encoder,) = build(source, BuildOptions(refused_media=frozenset({"audio"}))).encoders
    assert "vision_tower" in encoder.program_text and "audio_tower" not in encoder.program_text
    with model.llm(limit_mm_per_prompt={"audio": 0}) as llm:
        seen = image(1, 6, 6)
        (output,) = model.generate(llm, [[PLACEHOLDER] + text(1, 4)], [[seen]], logprobs=0)
        model.check(output, [seen])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"num_attention_heads": 7}, "7 heads cannot share hidden_size 24"),
        ({"attention_context_right": 1}, "and attention_context_right 0"),
        ({"attention_chunk_size": 9}, "attention_chunk_size is 9 and attention_context_left 5"),
        ({"attention_context_left": 1}, "must be one larger, at most 1025"),
        ({"conv_kernel_size": 65}, "at most 64 are supported"),
        ({"subsampling_conv_channels": [6, 6]}, "the first is a multiple of 4"),
        ({"subsampling_conv_channels": 8}, "must be two numbers"),
        ({"attention_logit_cap": 0}, "attention_logit_cap from 0.001"),
    ],
)
def test_configurations_that_are_refused(
    model: Gemma4TestModel, changes: dict[str, Any], why: str
) -> None:
    config = ModelSource.open(model.path).config
    changed = {**config, "audio_config": {**config["audio_config"], **changes}}
    with pytest.raises(ModelConfigError, match=why):
        Gemma4OmniModel.from_config(changed)
