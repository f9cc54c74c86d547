"""Images in tiles through the engine: the tokens of InternVL are those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import (
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    QianfanOCRConfig,
    QianfanOCRForConditionalGeneration,
    Qwen3Config,
)

from tests.media.media_model import (
    MediaTestModel,
    encoded,
    encoder_outputs,
    media_prompts,
    newer_name,
    text,
)
from tests.parity.tiny_models import (
    INTERNVL_PLACEHOLDER,
    INTERNVL_TILE,
    INTERNVL_WORDS,
    TEXT_SIZES,
    internvl,
    make,
    save,
)

_FILE = "model.safetensors"
IMAGE = [INTERNVL_PLACEHOLDER]
START, END = 4, 5
TILE_TOKENS = 4


def image(seed: int, tiles: int = 0) -> np.ndarray:
    """Tiles; or without a number of them, pixels."""
    shape = (tiles, *INTERNVL_TILE) if tiles else INTERNVL_TILE
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


ONE, FEW, MANY = image(1), image(2, 3), image(3, 5)


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        tiles = [each.reshape(-1, *INTERNVL_TILE) for each in images]
        pixels = torch.tensor(np.concatenate(tiles)) if tiles else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    return MediaTestModel(path, logits, INTERNVL_WORDS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("internvl")
    return image_model(path, make("internvl", path))


PROMPTS = media_prompts(IMAGE)
IMAGES = [[ONE, FEW], [MANY], []]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 1 + 3 + 5, "each tile is an item"


def test_tokens_around_an_image(model: MediaTestModel) -> None:
    with model.llm() as llm:
        for own, tiles in ((ONE, 1), (FEW, 3)):
            (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[own]])
            expected = [START, *IMAGE * (tiles * TILE_TOKENS), END]
            assert output.prompt_token_ids == [20, *expected, 21]


def test_tokens_around_an_image_need_a_tokenizer(model: MediaTestModel) -> None:
    with model.llm(skip_tokenizer_init=True) as llm:
        with pytest.raises(EngineError, match="leave out skip_tokenizer_init") as refused:
            model.generate(llm, [[20, *IMAGE, 21]], [[FEW]])
        assert refused.value.code == "INVALID_ARGUMENT"
        model.generate(llm, [[20, 21]], [[]])


@pytest.mark.parametrize("step", [5, 10, 17])
def test_steps_may_end_inside_a_tile(model: MediaTestModel, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [FEW, MANY]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_prefixes_are_those_of_equal_images(model: MediaTestModel) -> None:
    prompt = text(1, 10) + IMAGE + text(2, 40)
    with model.llm() as llm:
        cached = []
        for own in (MANY, MANY[::-1].copy(), MANY):
            (output,) = model.generate(llm, [prompt], [[own]])
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached[:2] == [0, 0] and cached[2] >= 64
        assert encoded(llm) == 5, "equal tiles are encoded once, in any order"


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "norms of queries and keys": {"use_qk_norm": True, "attention_bias": False},
    "norms by the root mean square": {"norm_type": "rms_norm", "layer_norm_eps": 1e-3},
    "last norm": {"use_mean_pooling": False},
    "inner layer": {"layer": -2, "use_mean_pooling": False},
    "no positions": {"use_absolute_position_embeddings": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_encoders_of_both_executors(variant: str, tmp_path: Path) -> None:

    torch.manual_seed(0)
    reference = save(internvl(**VARIANTS[variant]), tmp_path)
    with torch.inference_mode():
        rows = reference.get_image_features(torch.tensor(FEW)).pooler_output
        expected = rows.reshape(-1, rows.shape[-1]).numpy()
    (encoder,) = build(ModelSource.open(tmp_path), BuildOptions()).encoders
    assert encoder.layout is not None
    parts = encoder.layout(PreparedMedia("image", FEW))
    items = [encoder.features(part) for part in parts if isinstance(part, PreparedMedia)]
    for found in encoder_outputs(encoder, items):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


_TEXTS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**TEXT_SIZES),
    "qwen3": Qwen3Config(**TEXT_SIZES, head_dim=20, tie_word_embeddings=False),
}


@pytest.mark.parametrize("kind", sorted(_TEXTS))
def test_other_language_models(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = image_model(tmp_path, save(internvl(_TEXTS[kind]), tmp_path))
    model.check_all(PROMPTS, IMAGES)


def test_qianfan_ocr(tmp_path: Path) -> None:
    torch.manual_seed(0)
    written = internvl(_TEXTS["qwen3"], attention_bias=True).config.to_dict()
    config = QianfanOCRConfig(
        vision_config=written["vision_config"] | {"model_type": "qianfan_ocr_vision"},
        text_config=written["text_config"],
        image_token_id=INTERNVL_PLACEHOLDER,
    )
    model = image_model(tmp_path, save(QianfanOCRForConditionalGeneration(config), tmp_path))
    # `transformers` writes names as they were published, but those of these layers.
    tensors = load_file(tmp_path / _FILE)
    wrong, right = "language_model.model.encoder.", "language_model.model."
    named = {name.replace(wrong, right): value for name, value in tensors.items()}
    assert named.keys() != tensors.keys() and "vision_model.encoder.layers.0.ls1" in named
    save_file(named, tmp_path / _FILE)
    model.check_all(PROMPTS, IMAGES)


def test_newer_checkpoints_have_other_names(model: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(model.path / "model.safetensors")
    assert "language_model.model.norm.weight" in tensors
    newer = {newer_name(name): tensor for name, tensor in tensors.items()}
    save_file(newer, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert "model.vision_tower." in built.encoders[0].program_text
    assert "model.language_model.norm.weight" in built.program_text


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, *images: Any) -> None:
            model.check_refused(llm, IMAGE, images, message)

        refuse(
            r"image 0: an image must be \[3, 16, 16\], or tiles .* got \[3, 16, 8\]", ONE[..., :8]
        )
        refuse(r"got \[0, 3, 16, 16\]", FEW[:0])
        refuse("an array of tiles, without a grid", (FEW, (1, 1, 2)))
        refuse("image 0 has pixels that are not finite", FEW * np.nan)
        (output,) = model.generate(llm, [IMAGE + text(1, 3)], [[FEW]])
        model.check(output, [FEW])


def test_ranks_get_the_embeddings_of_tiles(model: MediaTestModel) -> None:
    with model.llm(tensor_parallel_size=2, max_num_batched_tokens=13) as llm:
        for output, own in zip(model.generate(llm, PROMPTS, IMAGES), IMAGES, strict=True):
            model.check(output, own)


def test_ranks_and_stages_of_text(model: MediaTestModel) -> None:
    model.check_divided()
