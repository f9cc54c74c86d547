"""InternVL as published with its own code, 2 to 3.5: the model of internvl.py, described by other
keys.

Weights: those of internvl.py by the names of weights/published_names.py; q, k and v of the tower
are one matrix.
"""

from __future__ import annotations

from typing import Any

from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import flag, inner_config, positive_int
from pagemill.models.multimodal.internvl import InternVlModel
from pagemill.weights.json_file import shown

_TOWER = "intern_vit_6b"
# What a setting that changes how images are read must be.
_KNOWN: Config = {"ps_version": "v2", "pad2square": False}
_VISION_KEYS = (
    "hidden_act",
    "hidden_size",
    "image_size",
    "intermediate_size",
    "layer_norm_eps",
    "norm_type",
    "num_attention_heads",
    "num_channels",
    "num_hidden_layers",
    "patch_size",
)


class InternVlChatModel(InternVlModel):
    """One InternVL model. It takes no videos: a prompt has their frames as images."""

    texts = (*InternVlModel.texts, "internlm2")

    def __init__(self, config: Config) -> None:
        super().__init__(_described(config))


def _described(config: Config) -> Config:
    """The configuration as `transformers` writes it."""
    for key, known in _KNOWN.items():
        if config.get(key, known) != known:
            raise ModelConfigError(f"{key} is {shown(config[key])}; known: {known}")
    if config.get("image_token_id") is None:  # see weights/beside_config.py
        raise ModelConfigError(
            "the configuration has no image_token_id, and tokenizer.json no token <IMG_CONTEXT>"
        )
    text = inner_config(config, "llm_config")
    return {
        "text_config": text,
        "tie_word_embeddings": flag(text, "tie_word_embeddings", False),
        "vision_config": _tower(config),
        "vision_feature_layer": config.get("select_layer", -1),
        "downsample_ratio": config.get("downsample_ratio"),
        "image_token_id": config["image_token_id"],
    }


def _tower(config: Config) -> dict[str, Any]:
    vision = inner_config(config, "vision_config")
    kind = vision.get("model_type", _TOWER)
    if kind != _TOWER:
        raise ModelConfigError(
            f"a vision tower of type {shown(kind)} in this architecture is not supported; known:"
            f" {_TOWER}"
        )
    tower = {key: vision[key] for key in _VISION_KEYS if key in vision}
    if config.get("force_image_size") is not None:
        tower["image_size"] = positive_int(config, "force_image_size")
    return {
        **tower,
        "attention_bias": flag(vision, "qkv_bias", True),
        "use_qk_norm": flag(vision, "qk_normalization", False),
    }
