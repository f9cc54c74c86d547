"""Nemotron 3 Omni through the engine: images of any size give the tokens of `transformers`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.nemotron_omni import NemotronOmniModel
from pagemill.render.media.processors import open_processor
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText

from tests.media.media_model import MediaTestModel, encoded, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
WORDS = {5: "<img>", 6: "</img>"}
PATCH = 4
VISION: dict[str, Any] = {
    "model_type": "radio",
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "mlp_ratio": 1.5,
    "patch_size": PATCH,
    "max_img_size": 32 * PATCH,
    "video_temporal_patch_size": 2,
}
_TEXT = {
    key: value for key, value in TEXT_SIZES.items() if key not in ("hidden_act", "rms_norm_eps")
} | {
    "model_type": "nemotron_h",
    "num_hidden_layers": 4,
    "layers_block_type": ["full_attention", "linear_attention", "mlp", "linear_attention"],
    "mamba_num_heads": 6,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 16,
    "conv_kernel": 4,
    "chunk_size": 8,
    "eos_token_id": None,
    "bos_token_id": None,
}
Patches = tuple[np.ndarray, tuple[int, int, int]]


def configuration(**changes: Any) -> Any:
    config = CONFIG_MAPPING["nemotron_h_omni"](
        text_config=_TEXT | changes,
        vision_config=VISION,
        vision_hidden_size=48,
        projector_hidden_size=40,
        image_token_id=PLACEHOLDER,
    )
    config._attn_implementation = "eager"
    return config


def image(seed: int, rows: int, columns: int) -> Patches:
    values = np.random.default_rng(seed).normal(size=(rows * columns, 3 * PATCH**2))
    return values.astype(np.float32), (1, rows, columns)


def make(path: Path, **changes: Any) -> MediaTestModel:
    """Its checkpoint has the names, and lacks the parameters, of published ones."""
    torch.manual_seed(0)
    reference = AutoModelForImageTextToText.from_config(configuration(**changes))
    for name, weight in reference.named_parameters():
        if any(part in name for part in ("position_embedding", "cls_register", "bias")):
            torch.nn.init.normal_(weight, std=0.3)
        elif name.startswith(("vision_model.encoder", "multi_modal")) and weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.2)
    reference: Any = save(reference, path)
    file = path / "model.safetensors"
    left_out = ("lambda1", "vision_final_layernorm")
    for name, weight in reference.named_parameters():
        if any(part in name for part in left_out):
            torch.nn.init.constant_(weight, float(not name.endswith("bias")))
    tensors = load_file(file)
    save_file({n: t for n, t in tensors.items() if not any(p in n for p in left_out)}, file)

    def logits(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        pixels = {}
        if images:
            pixels["pixel_values"] = torch.tensor(np.concatenate([each for each, _ in images]))
            pixels["image_grid_hw"] = torch.tensor([grid[1:] for _, grid in images])
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **pixels, use_cache=False).logits[0]

    return MediaTestModel(path, logits, WORDS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return make(tmp_path_factory.mktemp("nemotron_omni"))


IMAGE = [PLACEHOLDER]
SQUARE, WIDE, LARGE = image(1, 6, 6), image(2, 4, 10), image(3, 40, 4)
PROMPTS = [text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2), IMAGE + text(4, 4), text(5, 30)]
IMAGES = [[SQUARE, WIDE], [LARGE], []]


def check(model: MediaTestModel, **options: Any) -> None:
    """All prompts through the engine."""
    with model.llm(**options) as llm:
        outputs = model.generate(llm, PROMPTS, IMAGES, logprobs=0)
        for output, own in zip(outputs, IMAGES, strict=True):
            model.check(output, own)
        assert encoded(llm) == 3


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    check(model, executor=executor)


def test_images_as_large_as_a_step(model: MediaTestModel, tmp_path: Path) -> None:
    """Of which the learned tokens take 3."""
    check(model, max_num_batched_tokens=43)
    settings = {"image_processor_type": "NemotronH_Omni_Reasoning_V3ImageProcessor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    _, grid = open_processor(tmp_path, 43)(Image.new("RGB", (4000, 400)))
    assert math.prod(grid) == 40 * 4


def test_the_tower_has_a_last_norm_beside_draft_layers(tmp_path: Path) -> None:
    check(make(tmp_path, num_nextn_predict_layers=1, mtp_layers_block_type=["full_attention"]))


def test_published_configurations_have_other_names(model: MediaTestModel, tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((model.path / name).read_bytes())
    config = json.loads((model.path / "config.json").read_text())
    config["img_context_token_id"] = config.pop("image_token_id")
    config["llm_config"] = config.pop("text_config")
    config["vit_hidden_size"] = config.pop("vision_hidden_size")
    config["vision_config"].pop("model_type")
    (tmp_path / "config.json").write_text(json.dumps(config))
    check(MediaTestModel(tmp_path, model.reference, WORDS))


def test_sound_and_videos_are_not_read(model: MediaTestModel, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((model.path / name).read_bytes())
    tensors = load_file(model.path / "model.safetensors")
    assert any("video_embedder" in name for name in tensors)
    assert any("radio_model.model.blocks.1.attn.qkv.weight" in name for name in tensors)
    beside = {"sound_projection.linear1.weight": torch.zeros(2, 2)}
    save_file(tensors | beside, tmp_path / "model.safetensors")
    check(MediaTestModel(tmp_path, model.reference, WORDS))


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("vision_config", {"use_swiglu_ffn": True}, "use_swiglu_ffn"),
        ("vision_config", {"max_img_size": 33 * PATCH}, "has 33 patches in a row"),
        ("vision_config", {"num_registers": 99}, "at most 64"),
        ("vision_config", {"hidden_size": 24}, "vision_hidden_size is 48"),
        ("text_config", {"model_type": "llama"}, "known: nemotron_h"),
    ],
)
def test_unknown_models_are_refused(part: str, changes: dict[str, Any], message: str) -> None:
    config = json.loads(configuration().to_json_string(use_diff=False))
    config[part] |= changes
    with pytest.raises(ModelConfigError, match=message):
        NemotronOmniModel.from_config(config)


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match="two multiples of 2"):
        model.generate(llm, [IMAGE], [[image(1, 3, 4)]])


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_model.", SQUARE)
