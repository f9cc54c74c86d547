"""InternVL as published with its own code: tensors and keys by other names make the same model."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.internvl_chat import InternVlChatModel
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from tests.media.media_model import MediaTestModel, text
from tests.parity.tiny_models import (
    INTERNVL_PLACEHOLDER,
    INTERNVL_TILE,
    INTERNVL_WORDS,
    TEXT_SIZES,
    internvl,
    save,
)

IMAGE = [INTERNVL_PLACEHOLDER]
# Of what `transformers` writes, and what replaces it.
_PUBLISHED = (
    (r"vision_tower\.", "vision_model."),
    (r"embeddings\.cls_token", "embeddings.class_embedding"),
    (r"embeddings\.position_embeddings", "embeddings.position_embedding"),
    (r"embeddings\.patch_embeddings\.projection", "embeddings.patch_embedding"),
    (r"encoder\.layer\.", "encoder.layers."),
    (r"attention\.projection_layer", "attn.proj"),
    (r"(encoder\.layers\.\d+)\.attention\.", r"\1.attn."),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"lambda_(\d)", r"ls\1"),
    (r"multi_modal_projector\.layer_norm", "mlp1.0"),
    (r"multi_modal_projector\.linear_1", "mlp1.1"),
    (r"multi_modal_projector\.linear_2", "mlp1.3"),
)
_INTERNLM2 = (
    (r"model\.embed_tokens", "model.tok_embeddings"),
    (r"language_model\.lm_head", "language_model.output"),
    (r"self_attn\.o_proj", "attention.wo"),
    (r"self_attn\.", "attention."),
    (r"input_layernorm", "attention_norm"),
    (r"post_attention_layernorm", "ffn_norm"),
    (r"mlp\.gate_proj", "feed_forward.w1"),
    (r"mlp\.up_proj", "feed_forward.w3"),
    (r"mlp\.down_proj", "feed_forward.w2"),
)
_TEXTS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**TEXT_SIZES),
    "qwen2": Qwen2Config(**TEXT_SIZES, tie_word_embeddings=False),
    "qwen3": Qwen3Config(**TEXT_SIZES, head_dim=20, tie_word_embeddings=False),
}
_VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "norms of queries and keys": {"use_qk_norm": True, "attention_bias": False},
    "norms by the root mean square": {"norm_type": "rms_norm"},
}


def _publish(path: Path) -> None:
    """Rewrites a checkpoint in the layout of the model's own code."""
    tensors = load_file(path / "model.safetensors")
    published: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        for pattern, replacement in _PUBLISHED:
            name = re.sub(pattern, replacement, name)
        published[name] = tensor
    for name in [name for name in published if ".attn.q_proj." in name]:
        parts = [published.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        published[name.replace("q_proj", "qkv")] = torch.cat(parts).contiguous()
    save_file(published, path / "model.safetensors")
    written = json.loads((path / "config.json").read_text())
    vision = dict(written["vision_config"]) | {"model_type": "intern_vit_6b"}
    vision["qkv_bias"] = vision.pop("attention_bias")
    vision["qk_normalization"] = vision.pop("use_qk_norm")
    (vision["image_size"],) = set(vision["image_size"])
    (vision["patch_size"],) = set(vision["patch_size"])
    config = {
        "architectures": ["InternVLChatModel"],
        "model_type": "internvl_chat",
        "llm_config": written["text_config"],
        "vision_config": vision | {"image_size": 2 * vision["image_size"]},
        "force_image_size": vision["image_size"],
        "downsample_ratio": 0.5,
        "ps_version": "v2",
        "select_layer": -1,
        "dynamic_image_size": True,
        "max_dynamic_patch": 6,
        "use_thumbnail": True,
    }
    (path / "config.json").write_text(json.dumps(config))


def _as_internlm2(path: Path) -> None:
    """Rewrites a published checkpoint of Llama: q, k and v are one matrix, KV head by KV head."""
    tensors = load_file(path / "model.safetensors")
    config = json.loads((path / "config.json").read_text())
    text_config = config["llm_config"]
    heads, kv_heads = text_config["num_attention_heads"], text_config["num_key_value_heads"]
    dim = text_config["hidden_size"] // heads
    published: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        for pattern, replacement in _INTERNLM2:
            name = re.sub(pattern, replacement, name)
        published[name] = tensor
    for name in [name for name in published if ".q_proj." in name]:
        parts = [published.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        groups = [part.reshape(kv_heads, -1, dim, part.shape[1]) for part in parts]
        fused = torch.cat(groups, 1).reshape(-1, parts[0].shape[1]).contiguous()
        published[name.replace("q_proj", "wqkv")] = fused
    save_file(published, path / "model.safetensors")
    config["llm_config"] = text_config | {"model_type": "internlm2", "bias": False}
    (path / "config.json").write_text(json.dumps(config))


def _model(path: Path, kind: str = "qwen2", **changes: Any) -> MediaTestModel:
    torch.manual_seed(0)
    text_config = _TEXTS["llama" if kind == "internlm2" else kind]
    reference = save(internvl(text_config, **changes), path)
    _publish(path)
    if kind == "internlm2":
        _as_internlm2(path)

    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        tiles = [each.reshape(-1, *INTERNVL_TILE) for each in images]
        pixels = torch.tensor(np.concatenate(tiles)) if tiles else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    return MediaTestModel(path, logits, INTERNVL_WORDS)


def image(seed: int, tiles: int) -> np.ndarray:
    shape = (tiles, *INTERNVL_TILE)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


PROMPTS = [text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2), IMAGE + text(4, 4), text(5, 30)]
IMAGES = [[image(1, 1), image(2, 3)], [image(3, 5)], []]


@pytest.mark.parametrize("kind", [*sorted(_TEXTS), "internlm2"])
def test_language_models(kind: str, tmp_path: Path) -> None:
    model = _model(tmp_path, kind)
    model.check_all(PROMPTS, IMAGES)


@pytest.mark.parametrize("executor", ["native", "torch"])
@pytest.mark.parametrize("variant", _VARIANTS)
def test_towers(variant: str, executor: str, tmp_path: Path) -> None:
    model = _model(tmp_path, **_VARIANTS[variant])
    with model.llm(executor=executor) as llm:
        (output,) = model.generate(llm, PROMPTS[1:2], IMAGES[1:2], logprobs=0)
        model.check(output, IMAGES[1])


@pytest.mark.parametrize("written", ["<image>", "<IMG_CONTEXT>"])
def test_templates_write_a_placeholder(written: str, tmp_path: Path) -> None:
    template = (
        "{% for part in messages[0].content %}{% if part.type == 'image' %}"
        f"{written}{{% else %}}{{{{ part.text }}}}{{% endif %}}{{% endfor %}}"
    )
    parts = [{"type": "image", "image": image(1, 2)}, {"type": "text", "text": "t20"}]
    with _model(tmp_path).llm(chat_template=template) as llm:
        (output,) = llm.chat([{"role": "user", "content": parts}], max_tokens=1)
    assert output.prompt_token_ids == [4, *IMAGE * 8, 5, 20]


def test_images_are_cut_as_the_model_says(tmp_path: Path) -> None:
    """By its own settings, whatever preprocessor_config.json has."""
    model = _model(tmp_path)
    settings = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 448}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    colors = np.random.default_rng(6).integers(0, 256, (16, 32, 3), np.uint8)
    Image.fromarray(colors).save(tmp_path / "wide.png")
    with model.llm() as llm:
        (output,) = model.generate(llm, [IMAGE + text(1, 3)], [[tmp_path / "wide.png"]])
        assert output.prompt_token_ids.count(INTERNVL_PLACEHOLDER) == 4 * (2 + 1)


def test_language_model_only(tmp_path: Path) -> None:
    _model(tmp_path).check_language_model_only("vision_tower.", image(1, 1))


def test_ranks_and_stages_of_text(tmp_path: Path) -> None:
    _model(tmp_path).check_divided()


def test_other_settings_are_refused(tmp_path: Path) -> None:
    _model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"image_token_id": 3}
    InternVlChatModel.from_config(config)
    for key, value, message in (
        ("ps_version", "v1", "ps_version is 'v1'; known: v2"),
        ("pad2square", True, "pad2square is True"),
        ("vision_config", {"model_type": "radio"}, "'radio' .* known: intern_vit_6b"),
        ("llm_config", {"model_type": "internlm3"}, "'internlm3' .* known: llama"),
        ("image_token_id", None, "no image_token_id"),
    ):
        with pytest.raises(ModelConfigError, match=message):
            InternVlChatModel.from_config(config | {key: value})


def test_sizes_that_lie_are_refused(tmp_path: Path) -> None:
    """Before anything is allocated from them."""
    _model(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config["llm_config"]["head_dim"] = 2**31 - 1
    file.write_text(json.dumps(config))
    with pytest.raises(WeightsError, match="head_dim is 2147483647, but the largest dimension"):
        build(ModelSource.open(tmp_path), BuildOptions())


def test_a_tokenizer_without_the_token_is_refused(tmp_path: Path) -> None:
    model = _model(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text().replace("<IMG_CONTEXT>", "<other>"))
    with pytest.raises(ModelConfigError, match="no token <IMG_CONTEXT>"), model.llm():
        pass
