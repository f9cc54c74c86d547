"""Images of several sizes through the engine: tokens of EXAONE 4.5, GLM-V, HyperCLOVA X Vision,
LFM3-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5 are those of `transformers`. What they share with Qwen2-VL
is in qwen2_vl_test.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.models.vision.qwen2_5_vl_vision import Qwen25VlVisionTower
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.media.media_model import MediaTestModel, media_prompts, text
from tests.media.qwen_vl_models import (
    CHANNELS,
    MAKERS,
    VISION,
    Patches,
    image,
    make_image_model,
    qwen2_5_vl,
)
from tests.parity.tiny_models import QWEN2_VL_PLACEHOLDER, save

IMAGE = [QWEN2_VL_PLACEHOLDER]
# One window of Qwen2.5-VL; two; parts of windows; 3 x 3 windows, of which the last are parts.
SQUARE, WIDE, SMALL, LARGE = image(1, 6, 6), image(2, 4, 10), image(4, 2, 2), image(5, 14, 16)


@pytest.fixture(scope="module", params=sorted(MAKERS))
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(family: str, tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return make_image_model(family, tmp_path_factory.mktemp(family))


def tower_of(family: str) -> str:
    """What the names of its weights have in front."""
    names = {"hyperclovax_vision_v2": "vision_model.", "lfm3_vl": "vision_tower."}
    return names.get(family, "visual.")


PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 7) + IMAGE + text(7, 1) + IMAGE + text(8, 1) + IMAGE,
]
IMAGES = [[SQUARE, WIDE], [LARGE], [], [SMALL, WIDE, SQUARE]]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    model.check_all(PROMPTS, IMAGES, executor=executor)


@pytest.mark.parametrize("step", [56, 57, 61])
def test_steps_may_end_inside_an_image(model: MediaTestModel, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [LARGE, WIDE]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_language_model_only(model: MediaTestModel, family: str) -> None:
    model.check_language_model_only(tower_of(family), SQUARE)


def test_ranks_and_stages_of_text(model: MediaTestModel) -> None:
    model.check_divided()


def test_ranks_get_embeddings_and_positions(model: MediaTestModel) -> None:
    model.check_all(PROMPTS, IMAGES, tensor_parallel_size=2)


def test_prefixes_are_those_of_equal_images(model: MediaTestModel) -> None:
    """Equal patches in another grid are another image."""
    prompt = text(1, 10) + IMAGE + text(2, 40)
    turned = (WIDE[0], (1, 10, 4))
    with model.llm() as llm:
        cached = []
        for own in (WIDE, turned, WIDE):
            (output,) = model.generate(llm, [prompt], [[own]])
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 48]


def run_encoder(
    path: Path, items: Sequence[MediaFeatures], executor: str, dtype: str = "f32"
) -> np.ndarray:
    """The embeddings of items, by the encoder of the checkpoint at `path`."""
    from pagemill import _native

    (encoder,) = build(ModelSource.open(path), BuildOptions()).encoders
    sizes = [len(item.rows) for item in items]
    tokens = np.arange(sum(sizes), dtype=np.int32)
    batch = {
        "token_ids": tokens * 0,
        "positions": np.concatenate([np.arange(size, dtype=np.int32) for size in sizes]),
        "query_start": np.cumsum([0, *sizes]).astype(np.int32),
        "seq_lens": np.array(sizes, np.int32),
        "logits_rows": tokens[:0],
        "media_rows": tokens[::4],
        "grid_positions": np.concatenate([i.positions.rows for i in items if i.positions]),
        "kv": [],
        "inputs": {"features": np.concatenate([item.rows for item in items])},
    }
    if executor == "torch":
        return TorchExecutor(encoder.program_text, TorchOptions())(batch)["embeddings"]
    options = _native.ExecutorOptions(activation_dtype=dtype)
    return _native.NativeExecutor(encoder.program_text, options)(batch)["embeddings"]


def features(path: Path, patches: Patches) -> MediaFeatures:
    (encoder,) = build(ModelSource.open(path), BuildOptions()).encoders
    return encoder.features(PreparedMedia("image", *patches))


def test_encoders_of_both_executors(model: MediaTestModel) -> None:
    items = [features(model.path, each) for each in (SQUARE, LARGE, SMALL)]
    native, by_torch = (run_encoder(model.path, items, name) for name in ("native", "torch"))
    assert len(native) == 9 + 56 + 1
    np.testing.assert_allclose(native, by_torch, rtol=0, atol=2e-5)


def _embeddings(path: Path, patches: Patches, dtype: str) -> np.ndarray:
    """Those of the tokens of an image, row by row."""
    item = features(path, patches)
    assert item.placement is not None
    return run_encoder(path, [item], "native", dtype)[item.placement]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "int8"])
def test_windows_do_not_see_each_other(dtype: str, tmp_path: Path) -> None:
    """Other windows have the same bits if one changes, however large its numbers are."""
    torch.manual_seed(0)
    save(qwen2_5_vl(full_layers=[]), tmp_path)
    patches, grid = LARGE
    changed = patches.copy()
    # In the last window of the second row of windows.
    square = 4 * 8 + 7
    changed[square * 4 : square * 4 + 4] *= 50
    before, after = (_embeddings(tmp_path, (each, grid), dtype) for each in (patches, changed))
    differs = np.any(before != after, axis=1).reshape(7, 8)
    expected = np.zeros((7, 8), bool)
    expected[3:6, 6:] = True
    np.testing.assert_array_equal(differs, expected)


def test_published_experts_are_transposed(tmp_path: Path) -> None:
    model = make_image_model("qwen3_vl_moe", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    turned = {
        name: tensor.mT.contiguous() if tensor.ndim == 3 and ".experts." in name else tensor
        for name, tensor in tensors.items()
    }
    assert any(turned[name] is not tensors[name] for name in tensors)
    save_file(turned, tmp_path / "model.safetensors")
    with model.llm() as llm:
        (output,) = model.generate(llm, [PROMPTS[0]], [IMAGES[0]], logprobs=0)
        model.check(output, IMAGES[0])


def test_patches_are_in_the_order_of_windows() -> None:
    """Windows of 2 x 2 squares in an image of 3 x 3: the last of each row and column are parts."""
    tower = Qwen25VlVisionTower(VISION | {"window_size": 16})
    patches = np.arange(36, dtype=np.float32)[:, None].repeat(CHANNELS, 1)
    item = tower.features(PreparedMedia("image", patches, (1, 6, 6)))
    order = [0, 1, 3, 4, 2, 5, 6, 7, 8]
    assert item.rows[::4, 0].tolist() == [4 * square for square in order]
    assert item.placement is not None
    assert [order[embedding] for embedding in item.placement] == list(range(9))
    assert item.positions is not None
    squares = [[0, 2 * (square // 3), 2 * (square % 3)] for square in order]
    assert item.positions.rows[::4].tolist() == squares


def test_a_layer_behind_the_others_may_stay_unread(tmp_path: Path) -> None:
    """Of GLM-OCR, to predict a further token."""
    model = make_image_model("glm_ocr", tmp_path)
    tensors = load_file(model.path / "model.safetensors")
    prefix = "model.language_model.layers."
    layers = {int(n.removeprefix(prefix).split(".")[0]) for n in tensors if n.startswith(prefix)}
    behind = {f"{prefix}{len(layers)}.eh_proj.weight": torch.zeros(4, 8)}
    save_file(tensors | behind, model.path / "model.safetensors")
    with model.llm() as llm:
        (output,) = model.generate(llm, [IMAGE + text(1, 4)], [[SMALL]], logprobs=0)
        model.check(output, [SMALL])


def test_newer_checkpoints_have_other_names(
    model: MediaTestModel, family: str, tmp_path: Path
) -> None:
    tensors = load_file(model.path / "model.safetensors")
    renamed = {_newer_name(name): tensor for name, tensor in tensors.items()}
    save_file(renamed, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert f" model.{tower_of(family)}" in built.encoders[0].program_text
    norm = "embedding_norm" if family == "lfm3_vl" else "norm"
    assert f" model.language_model.{norm}.weight" in built.program_text


def _newer_name(name: str) -> str:
    newer = (
        "lm_head.",
        "model.language_model.",
        "model.multi_modal_projector.",
        "model.vision_",
        "model.visual.",
    )
    if name.startswith(newer):
        return name
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.", 1)


def test_published_checkpoints_of_hyperclova_x_have_a_whole_model(tmp_path: Path) -> None:
    model = make_image_model("hyperclovax_vision_v2", tmp_path)
    tensors = load_file(model.path / "model.safetensors")
    prefix = "model.language_model."
    head = f"{prefix}lm_head."
    assert f"{head}weight" in tensors
    renamed = {
        name if name.startswith(head) else name.replace(prefix, f"{prefix}model."): tensor
        for name, tensor in tensors.items()
    }
    save_file(renamed, model.path / "model.safetensors")
    with model.llm() as llm:
        (output,) = model.generate(llm, [IMAGE + text(1, 4)], [[SMALL]], logprobs=0)
        model.check(output, [SMALL])


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, *images: object) -> None:
            model.check_refused(llm, IMAGE, images, message)

        refuse("image 0: an image of this model has a grid", SQUARE[0])
        refuse(r"got \[2, 6, 6\]", (SQUARE[0], (2, 6, 6)))
        refuse(r"patches must be \[24, 96\], got \[36, 96\]", (SQUARE[0], (1, 6, 4)))
        refuse("has pixels that are not finite", (SQUARE[0] * np.nan, (1, 6, 6)))
