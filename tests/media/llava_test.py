"""Images through the engine: LLaVA's tokens are those of `transformers`, regardless of preemption
and caching, and equal images are encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill import _native
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import (
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    SiglipVisionConfig,
    VipLlavaConfig,
    VipLlavaForConditionalGeneration,
)

from tests.media.media_model import (
    MediaTestModel,
    encoded,
    encoder_outputs,
    media_prompts,
    newer_name,
    text,
)
from tests.parity.tiny_models import LLAVA_IMAGE, LLAVA_PLACEHOLDER, llava, make, save

TOKENS = 9  # of an image
IMAGE = [LLAVA_PLACEHOLDER]


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=LLAVA_IMAGE).astype(np.float32)


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        pixels = torch.tensor(np.stack(images)) if images else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    return MediaTestModel(path, logits)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("llava")
    return image_model(path, make("llava", path))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(model: MediaTestModel, executor: str) -> None:
    a, b = image(1), image(2)
    prompts = [
        *media_prompts(IMAGE),
        text(6, 7) + IMAGE + IMAGE,
    ]
    images = [[a, b], [b], [], [b, a]]
    with model.llm(executor=executor) as llm:
        for output, own in zip(model.generate(llm, prompts, images), images, strict=True):
            assert output.prompt_token_ids.count(LLAVA_PLACEHOLDER) == TOKENS * len(own)
            model.check(output, own)
        assert encoded(llm) == 2, "equal images are encoded once"


def test_language_model_only(model: MediaTestModel) -> None:
    model.check_language_model_only("vision_tower.", image(1))


@pytest.mark.parametrize("step", [11, 16, 17])
def test_steps_may_end_inside_an_image(model: MediaTestModel, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [image(1), image(2)]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images])
        model.check(output, images)


def test_prefixes_are_those_of_equal_images(model: MediaTestModel) -> None:
    prompt = text(1, 10) + IMAGE + text(2, 40)
    with model.llm() as llm:
        cached = []
        for own in (image(1), image(2), image(1)):
            (output,) = model.generate(llm, [prompt], [[own]])
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 48]
        assert encoded(llm) == 2, "tokens of a cached prefix need no embeddings"


def test_preempted_requests_get_their_images_again(model: MediaTestModel) -> None:
    prompts = [text(i, 40) + IMAGE + text(i + 9, 30) for i in range(4)]
    images = [[image(i)] for i in range(4)]
    page = 2 * 2 * 16 * 16 * 4 * 3  # bytes: keys and values of three layers
    options = {"max_model_len": 90, "kv_cache_memory_bytes": f"{page * 11}B", "max_step_ms": 0}
    with model.llm(**options) as llm:
        outputs = model.generate_together(llm, prompts, images)
        for output, own in zip(outputs, images, strict=True):
            model.check(output, own)
        assert llm._engine.stats().num_preemptions > 0


def test_a_small_encoder_cache_encodes_again(model: MediaTestModel) -> None:
    """Steps of 9 tokens: one image is encoded in a step, and one is kept."""
    images = [image(1), image(2), image(1)]
    prompt = IMAGE + text(1, 9) + IMAGE + text(2, 9) + IMAGE + text(3, 3)
    with model.llm(max_num_batched_tokens=9, max_num_seqs=1) as llm:
        (output,) = model.generate(llm, [prompt], [images])
        model.check(output, images)
        assert encoded(llm) == 3


VARIANTS: dict[str, dict[str, Any]] = {
    "class token": {"vision_feature_select_strategy": "full"},
    "last layer": {"vision_feature_layer": -1},
    "first layer": {"vision_feature_layer": 1},
    "several layers": {"vision_feature_layer": [-2, 0, -1]},
    "no bias": {"multimodal_projector_bias": False, "projector_hidden_act": "relu"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_encoders_of_both_executors(changes: dict[str, Any], tmp_path: Path) -> None:

    torch.manual_seed(0)
    reference = save(llava(**changes), tmp_path)
    pixels = np.stack([image(1), image(2)])
    with torch.inference_mode():
        features = reference.get_image_features(torch.tensor(pixels)).pooler_output
        expected = torch.cat(list(features)).numpy()
    (encoder,) = build(ModelSource.open(tmp_path), BuildOptions()).encoders
    assert encoder.traits.tokens * 2 == len(expected)
    items = [encoder.features(PreparedMedia("image", p)) for p in pixels]
    for found in encoder_outputs(encoder, items):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


SIGLIP = SiglipVisionConfig(
    hidden_size=48,
    intermediate_size=72,
    num_hidden_layers=3,
    num_attention_heads=4,
    image_size=24,
    patch_size=8,
)


@pytest.mark.parametrize("text_config", [MistralConfig, Qwen2Config])
@pytest.mark.parametrize("vision", [{}, {"vision_config": SIGLIP}], ids=["clip", "siglip"])
def test_other_parts(text_config: Any, vision: dict[str, Any], tmp_path: Path) -> None:
    """SigLIP's tower, and other decoders than Llama."""
    sizes = {
        "vocab_size": 257,
        "hidden_size": 96,
        "intermediate_size": 136,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    }
    changes = {"vision_feature_select_strategy": "full", "vision_feature_layer": -1} | vision
    torch.manual_seed(0)
    model = image_model(
        tmp_path, save(llava(text_config=text_config(**sizes), **changes), tmp_path)
    )
    prompt = text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2)
    images = [image(1), image(2)]
    with model.llm(max_num_batched_tokens=24) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        tokens = TOKENS if vision else TOKENS + 1
        assert output.prompt_token_ids.count(LLAVA_PLACEHOLDER) == tokens * 2
        model.check(output, images)


def test_vip_llava(tmp_path: Path) -> None:
    """Features of several layers, normalized together."""
    parts = llava().config
    config = VipLlavaConfig(
        vision_config=parts.vision_config,
        text_config=parts.text_config,
        image_token_index=LLAVA_PLACEHOLDER,
        vision_feature_layer=[-2, -1, 1],
    )
    torch.manual_seed(0)
    model = image_model(tmp_path, save(VipLlavaForConditionalGeneration(config), tmp_path))
    prompt = text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2)
    images = [image(1), image(2)]
    with model.llm() as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_older_checkpoints_have_other_names(model: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(model.path / "model.safetensors")
    older = {
        name.replace("vision_tower.", "vision_tower.vision_model."): tensor
        for name, tensor in tensors.items()
    }
    save_file(older, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert "vision_tower.vision_model.encoder.layers.0" in built.encoders[0].program_text


def test_newer_checkpoints_have_other_names(model: MediaTestModel, tmp_path: Path) -> None:
    """All parts are behind `model.`, with or without `vision_model.` in the tower's names."""
    tensors = load_file(model.path / "model.safetensors")
    for tower in ("vision_tower.", "vision_tower.vision_model."):
        newer = {
            newer_name(name).replace("vision_tower.", tower): tensor
            for name, tensor in tensors.items()
        }
        assert {name.split(".")[0] for name in newer} == {"model", "lm_head"}
        save_file(newer, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
        built = build(ModelSource.open(tmp_path), BuildOptions())
        assert f"model.{tower}encoder.layers.0" in built.encoders[0].program_text
        assert "model.language_model.norm.weight" in built.program_text


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, prompt: list[int], images: list[np.ndarray]) -> None:
            model.check_refused(llm, prompt, images, message)

        refuse("1 placeholders .token 3. for 2 images", IMAGE, [image(1), image(2)])
        refuse("1 placeholders .token 3. for 0 images", IMAGE, [])
        refuse(r"image 0: .* must be \[3, 24, 24\], got \[3, 8\]", IMAGE, [np.zeros((3, 8))])
        refuse("image 0 has pixels that are not finite", IMAGE, [image(1) * np.nan])
        with pytest.raises(EngineError, match="images of 2 prompts, but 1"):
            model.generate(llm, [IMAGE], [[image(1)], [image(1)]])
        # The engine checks requests that do not come from `generate`.
        sampling = _native.SamplingParams(temperature=0.0, max_tokens=1)
        status_error = llm._loaded.core.bindings.status_error

        def submit(num_tokens: int, features: np.ndarray | None) -> None:
            prompt = np.full(40, 3, np.int32)
            item = _native.MediaItem("a", 0, num_tokens, features)
            llm._engine.submit(99, prompt, sampling, media=[item])

        good = np.zeros((9, 192), np.float32)
        for num_tokens, features, message in (
            (9, None, "has no features"),
            (10, np.zeros((10, 192), np.float32), "features of 10 rows of 192 channels, but this"),
            (8, good, "has 8 tokens, but an item of this model takes the place of 9"),
        ):
            with pytest.raises(status_error, match=message):
                submit(num_tokens, features)
        # The engine still works.
        (output,) = model.generate(llm, [IMAGE + text(1, 3)], [[image(1)]])
        model.check(output, [image(1)])


def test_a_model_without_an_encoder_refuses_images(tmp_path: Path) -> None:
    other = image_model(tmp_path, make("llama", tmp_path))
    with other.llm() as llm, pytest.raises(EngineError, match="this model takes no images"):
        other.generate(llm, [text(1, 3)], [[image(1)]])


def test_ranks_get_the_embeddings_of_images(model: MediaTestModel) -> None:
    """Rank 0 encodes; a prompt is longer than a step, and steps of text come between."""
    prompts = [
        text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 20),
        text(5, 30),
        text(6, 7) + IMAGE + IMAGE,
    ]
    images = [[image(1), image(2)], [], [image(2), image(1)]]
    with model.llm(tensor_parallel_size=2, max_num_batched_tokens=17) as llm:
        for output, own in zip(model.generate(llm, prompts, images), images, strict=True):
            model.check(output, own)
        (again,) = model.generate(llm, [text(9, 4) + IMAGE], [[image(3)]])
        model.check(again, [image(3)])


def test_ranks_and_stages_of_text(model: MediaTestModel) -> None:
    model.check_divided()
