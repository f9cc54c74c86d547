"""Images of any size through the engine: the tokens of Kimi-VL and Kimi K2.5, whose checkpoints
have names of their own, are those of `transformers`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from safetensors.torch import save_file
from transformers import Kimi_K25Config, Kimi_K25ForConditionalGeneration, PreTrainedModel

from tests.media.media_model import MediaTestModel, media_prompts, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
HEADS, SIDE = 3, 6
Patches = tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches, row by row; a quarter as many tokens."""
    values = np.random.default_rng(seed).normal(size=(height * width, 3, 4, 4))
    return values.astype(np.float32), (1, height, width)


# Of more rows and columns than the 6 x 6 learned places, of fewer, and of as many.
LARGE, WIDE, SMALL, SQUARE = image(1, 8, 14), image(2, 4, 10), image(3, 2, 2), image(4, 6, 6)
PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 7) + IMAGE + text(7, 1) + IMAGE,
]
IMAGES = [[SQUARE, WIDE], [LARGE], [], [SMALL, WIDE]]


def kimi_k25() -> PreTrainedModel:
    text_config = TEXT_SIZES | {
        "model_type": "deepseek_v3",
        "num_key_value_heads": TEXT_SIZES["num_attention_heads"],
        "kv_lora_rank": 16,
        "q_lora_rank": 24,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "n_routed_experts": 6,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 0,
    }
    config = Kimi_K25Config(
        text_config=text_config,
        vision_config={
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "patch_size": 4,
            "pos_emb_height": SIDE,
            "pos_emb_width": SIDE,
        },
        projection_hidden_size=48,
        projection_layer_norm_eps=1e-3,
        image_token_id=PLACEHOLDER,
        video_token_id=4,
        tie_word_embeddings=False,
    )
    config._attn_implementation = "eager"
    return Kimi_K25ForConditionalGeneration(config)


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        with torch.inference_mode():
            return reference(
                torch.tensor([ids]),
                pixel_values=torch.tensor(np.concatenate([p for p, _ in images]))
                if images
                else None,
                image_grid_thw=torch.tensor([g for _, g in images]) if images else None,
                use_cache=False,
            ).logits[0]

    return MediaTestModel(path, logits)


_PUBLISHED = (
    (r"^model\.language_model\.", "language_model.model."),
    (r"^lm_head\.", "language_model.lm_head."),
    (r"^model\.vision_tower\.layers\.", "vision_tower.encoder.blocks."),
    (r"^model\.vision_tower\.final_", "vision_tower.encoder.final_"),
    (r"^model\.", ""),
    (r"pos_emb\.position_embeddings$", "pos_emb.weight"),
    (r"(blocks\.\d+)\.norm1\.", r"\1.norm0."),
    (r"(blocks\.\d+)\.norm2\.", r"\1.norm1."),
    (r"(blocks\.\d+\.mlp)\.fc1\.", r"\1.fc0."),
    (r"(blocks\.\d+\.mlp)\.fc2\.", r"\1.fc1."),
    (r"(blocks\.\d+)\.attn\.proj\.", r"\1.wo."),
    (r"^mm_projector\.in_proj\.", "mm_projector.proj.0."),
    (r"^mm_projector\.out_proj\.", "mm_projector.proj.2."),
)


def published(reference: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The tensors of `reference` as Kimi K2.5's checkpoints have them: queries, keys and values in
    one matrix, whose heads have pairs side by side."""
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in reference.state_dict().items():
        for pattern, other in _PUBLISHED:
            name = re.sub(pattern, other, name)
        tensors[name] = tensor.contiguous()
    for name in [name for name in tensors if ".attn.q_proj." in name]:
        q, k, v = (tensors.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv")
        tensors[name.replace("attn.q_proj", "wqkv")] = torch.cat([_paired(q), _paired(k), v])
    return _with_single_experts(tensors)


def _paired(rows: torch.Tensor) -> torch.Tensor:
    """The rows of each head, of which the first half pairs with the second, pair by pair."""
    heads = rows.reshape(HEADS, 2, -1, *rows.shape[1:])
    return heads.transpose(1, 2).reshape(rows.shape)


def _with_single_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        stem, _, part = name.rpartition(".")
        for expert, matrix in enumerate(tensor if stem.endswith(".experts") else ()):
            names = ["gate_proj", "up_proj"] if part == "gate_up_proj" else [part]
            for module, own in zip(names, matrix.chunk(len(names)), strict=True):
                found[f"{stem}.{expert}.{module}.weight"] = own.contiguous()
        if not stem.endswith(".experts"):
            found[name] = tensor
    return found


def k25_config(saved: dict[str, Any]) -> dict[str, Any]:
    """The configuration of Kimi K2.5's checkpoints."""
    vision = saved["vision_config"]
    sizes = "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": saved["text_config"],
        "tie_word_embeddings": False,
        "media_placeholder_token_id": PLACEHOLDER,
        "vision_config": {f"vt_{name}": vision[name] for name in sizes}
        | {
            "model_type": "",
            "patch_size": vision["patch_size"],
            "init_pos_emb_height": SIDE,
            "init_pos_emb_width": SIDE,
            "merge_kernel_size": [2, 2],
            "mm_projector_type": "patchmerger",
            "projector_hidden_act": "gelu",
            "projector_ln_eps": saved["projection_layer_norm_eps"],
        },
    }


def kimi_vl_config(saved: dict[str, Any]) -> dict[str, Any]:
    """The configuration of Kimi-VL's checkpoints."""
    config = k25_config(saved)
    vision = {name.removeprefix("vt_"): value for name, value in config["vision_config"].items()}
    return config | {
        "architectures": ["KimiVLForConditionalGeneration"],
        "model_type": "kimi_vl",
        "vision_config": vision | {"model_type": "moonvit"},
    }


def kimi_vl_name(name: str) -> str:
    """The name in Kimi-VL's checkpoints of a tensor of Kimi K2.5's."""
    name = name.replace("mm_projector.", "multi_modal_projector.")
    return name.replace("proj.0.", "linear_1.").replace("proj.2.", "linear_2.")


@pytest.fixture(scope="module", params=["kimi_k25", "kimi_vl"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MediaTestModel:
    path = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    reference = kimi_k25()
    save(reference, path)
    tensors = published(reference)
    save_file(tensors, path / "model.safetensors")
    # `transformers` reads the published names, too.
    loaded = type(reference).from_pretrained(path, dtype=torch.float32).eval()
    config = json.loads((path / "config.json").read_text())
    if request.param == "kimi_vl":
        tensors = {kimi_vl_name(name): tensor for name, tensor in tensors.items()}
        save_file(tensors, path / "model.safetensors")
    made = k25_config(config) if request.param == "kimi_k25" else kimi_vl_config(config)
    (path / "config.json").write_text(json.dumps(made))
    return image_model(path, loaded)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 4, "equal images are encoded once"


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:
        patches, _ = SQUARE
        for grid, why in (
            ((1, 6, 4), r"patches must be \[24, 48\], got \[36, 48\]"),
            ((1, 4, 9), "two multiples of 2"),
            ((2, 6, 6), "must be 1"),
        ):
            with pytest.raises(EngineError, match=why):
                model.generate(llm, [IMAGE], [[(patches, grid)]])
        with pytest.raises(EngineError, match="an image of this model has a grid"):
            model.generate(llm, [IMAGE], [[patches]])


@pytest.mark.parametrize("step", [36, 41])
def test_steps_may_end_inside_an_image(model: MediaTestModel, step: int) -> None:
    prompt = text(1, 20) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [LARGE, WIDE]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_tower.", SQUARE)
