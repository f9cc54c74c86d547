"""DeepSeek-OCR through the engine: whole images, and tiles of another size whose rows go across
tiles, give the tokens of `transformers`, which has it as Unlimited-OCR, with windows of text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.deepseek_ocr import DeepseekOcrModel
from safetensors.torch import load_file, save_file
from transformers import UnlimitedOcrConfig, UnlimitedOcrForConditionalGeneration

from tests.media.media_model import MediaTestModel, encoded, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
WHOLE, TILE = (3, 128, 128), (3, 80, 80)
SIDE, TILE_SIDE = 16, 10
TOKENS = SIDE * (SIDE + 1) + 1
_SAM = {"global_attn_indexes": [1], "downsample_channels": [12, 32], "patch_size": 2}
_SAM_SIZES = {
    "hidden_size": 16,
    "output_channels": 8,
    "mlp_dim": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": WHOLE[1],
}
_CLIP = {"image_size": 32, "patch_size": 4}
_CLIP_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_EXPERTS: dict[str, Any] = {
    "num_key_value_heads": TEXT_SIZES["num_attention_heads"],
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}
_LEARNED = ("rel_pos", "pos_embed", "newline", "separator", "class_embed", "position_embed")
Pair = tuple[np.ndarray, tuple[int, int, int]]


def configuration() -> dict[str, Any]:
    """In the layout of the published model."""
    sizes = {"width": 16, "layers": 2, "heads": 2, "output_channels": 8}
    return {
        "architectures": ["DeepseekOCRForCausalLM"],
        "model_type": "deepseek_vl_v2",
        "image_token_id": PLACEHOLDER,
        "language_config": TEXT_SIZES
        | _EXPERTS
        | {"first_k_dense_replace": 1, "use_mla": False, "topk_method": "greedy"},
        "vision_config": {
            "image_size": WHOLE[1],
            "width": {
                "sam_vit_b": _SAM | sizes,
                "clip-l-14-224": _CLIP | {"width": 32, "layers": 2, "heads": 4},
            },
        },
    }


def deepseek_ocr(path: Path) -> Any:
    """The reference, whose checkpoint at `path` is that of the published model."""
    layers = TEXT_SIZES["num_hidden_layers"]
    config = UnlimitedOcrConfig(
        vision_config={"sam_config": _SAM | _SAM_SIZES, "encoder_config": _CLIP | _CLIP_SIZES},
        text_config=TEXT_SIZES
        | _EXPERTS
        | {
            "layer_types": ["full_attention"] * layers,
            "mlp_layer_types": ["dense"] + ["sparse"] * (layers - 1),
        },
        image_token_id=PLACEHOLDER,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = UnlimitedOcrForConditionalGeneration(config)
    for name, weight in model.named_parameters():
        if any(part in name for part in _LEARNED):
            torch.nn.init.normal_(weight, std=0.5)
        elif "vision_tower" in name or "projector" in name:
            torch.nn.init.normal_(weight, mean=float("norm" in name or "layrnorm" in name), std=0.1)
    reference = save(model, path)
    (path / "config.json").write_text(json.dumps(configuration()))
    return reference


def image(seed: int, shape: tuple[int, ...] = WHOLE) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def tiled(seed: int, rows: int, columns: int) -> Pair:
    tiles = image(seed, (rows * columns, *TILE))
    pixels = np.concatenate([tiles.reshape(-1), image(seed).reshape(-1)])
    return pixels, (1, rows, columns)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("deepseek_ocr")
    reference = deepseek_ocr(path)

    def logits(ids: list[int], images: Sequence[np.ndarray | Pair]) -> torch.Tensor:
        whole, local, grids = [], [], []
        for each in images:
            pixels, grid = (each, (1, 0, 0)) if isinstance(each, np.ndarray) else each
            grids.append(grid)
            size = int(np.prod(WHOLE))
            whole.append(pixels.reshape(-1)[-size:].reshape(WHOLE))
            local.append(pixels.reshape(-1)[:-size].reshape(-1, *TILE))
        given: dict[str, Any] = {}
        if images:
            given["pixel_values"] = torch.tensor(np.stack(whole))
            given["num_local_patches"] = [rows * columns for _, rows, columns in grids]
            given["patches_grid"] = [[columns, rows] for _, rows, columns in grids]
        if any(map(len, local)):
            given["pixel_values_local"] = torch.tensor(np.concatenate(local))
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **given, use_cache=False).logits[0]

    return MediaTestModel(path, logits)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(model: MediaTestModel, executor: str) -> None:
    a, b = image(1), tiled(2, 2, 3)
    prompts = [text(1, 3) + IMAGE + text(2, 5), text(3, 4) + IMAGE + text(4, 4), text(5, 30)]
    images: list[list[Any]] = [[a], [b], []]
    with model.llm(executor=executor, max_model_len=1100, max_num_batched_tokens=300) as llm:
        outputs = model.generate(llm, prompts, images, logprobs=0)
        of_tiles = 2 * TILE_SIDE * (3 * TILE_SIDE + 1)
        for output, own, count in zip(outputs, images, (TOKENS, of_tiles + TOKENS, 0), strict=True):
            assert output.prompt_token_ids.count(PLACEHOLDER) == count
            model.check(output, own)
        assert encoded(llm) == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (image(1)[:, 8:], r"must be \[3, 128, 128\]"),
        ((tiled(1, 1, 2)[0], (1, 1, 3)), r"an image of 1 x 1 x 3 tiles must be \[106752\]"),
        ((tiled(1, 1, 2)[0], (1, 0, 3)), "an image of 1 x 0 x 3 tiles"),
    ],
)
def test_images_that_do_not_fit_are_refused(
    model: MediaTestModel, given: np.ndarray | Pair, message: str
) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match=message):
        model.generate(llm, [IMAGE], [[given]])


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("language_config", {"use_mla": True}, "use_mla false"),
        ("language_config", {"topk_method": "group_limited_greedy"}, "'greedy'"),
        ("vision_config", {"image_size": 124}, "which must be a multiple of 4"),
        ("vision_config", {"width": {"sam_vit_b": {}}}, "clip-l-14-224 to be an object"),
        (
            "vision_config",
            {"width": {"sam_vit_b": _SAM, "clip-l-14-224": {"width": 64}}},
            "the second is 64",
        ),
        (
            "vision_config",
            {"width": {"sam_vit_b": _SAM, "clip-l-14-224": {"width": 32, "image_size": 2**31 - 1}}},
            "may have 4194304 shares",
        ),
    ],
)
def test_unknown_models_are_refused(part: str, changes: dict[str, Any], message: str) -> None:
    config = configuration()
    config[part] |= changes
    with pytest.raises(ModelConfigError, match=message):
        DeepseekOcrModel.from_config(config)


def test_the_published_checkpoint_has_patches_of_clip(
    model: MediaTestModel, tmp_path: Path
) -> None:
    """Which nothing reads."""
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((model.path / name).read_bytes())
    tensors = load_file(model.path / "model.safetensors")
    assert "model.vision_model.transformer.layers.1.self_attn.qkv_proj.weight" in tensors
    tensors["model.vision_model.embeddings.patch_embedding.weight"] = torch.zeros(32, 3, 4, 4)
    save_file(tensors, tmp_path / "model.safetensors")
    published = MediaTestModel(tmp_path, model.reference)
    with published.llm(max_model_len=300, max_num_batched_tokens=300) as llm:
        (output,) = published.generate(llm, [IMAGE + text(1, 3)], [[image(1)]], logprobs=0)
        published.check(output, [image(1)])


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("sam_model.", image(1))
