"""Tiny encoders of images with decoders of text on disk, and what `transformers` makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    DeiTConfig,
    DonutSwinConfig,
    MBartConfig,
    PretrainedConfig,
    PreTrainedModel,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)
from transformers.models.trocr.modeling_trocr import TrOCRSinusoidalPositionalEmbedding

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

PLACEHOLDER, START = 3, 4
IMAGE = [PLACEHOLDER]
SIDE = 20  # in pixels, of images
POSITIONS = 60  # of the decoder
PATCHES = 9
_VISION: dict[str, Any] = {
    "hidden_size": 36,
    "intermediate_size": 52,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": SIDE,
    "patch_size": 6,  # two pixels of each row and column are not read
    "layer_norm_eps": 1e-3,
}
_WIDE: dict[str, Any] = _VISION | {"hidden_size": 48, "hidden_act": "relu"}
_TEXT: dict[str, Any] = {
    "vocab_size": 257,
    "d_model": 48,
    "decoder_layers": 3,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 72,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": PLACEHOLDER,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": START,
}
_SWIN: dict[str, Any] = {
    "image_size": [32, 48],
    "patch_size": 2,
    "embed_dim": 20,
    "depths": [2, 3],
    "num_heads": [2, 5],
    "window_size": 3,  # which divides neither 16 nor 8 rows
    "layer_norm_eps": 1e-3,
}
_NARROW: dict[str, Any] = _TEXT | {"d_model": 40}
_OTHER: dict[str, Any] = _SWIN | {"window_size": 4, "qkv_bias": False, "mlp_ratio": 2.5}
_WAVES: dict[str, Any] = {
    "use_learned_position_embeddings": False,
    "layernorm_embedding": False,
    "scale_embedding": True,
    "activation_function": "relu",
}
Parts = tuple[PretrainedConfig, PretrainedConfig]
MODELS: dict[str, Callable[[], Parts]] = {
    # Base models, and large ones, whose decoder is wider than the encoder.
    "trocr": lambda: (
        ViTConfig(**_VISION, qkv_bias=False),
        TrOCRConfig(**_TEXT, cross_attention_hidden_size=36),
    ),
    "trocr_waves": lambda: (
        ViTConfig(**_VISION),
        TrOCRConfig(**_TEXT, **_WAVES, cross_attention_hidden_size=36, tie_word_embeddings=False),
    ),
    # Small ones, whose encoder is DeiT.
    "trocr_deit": lambda: (DeiTConfig(**_VISION), TrOCRConfig(**_TEXT)),
    "mbart": lambda: (
        ViTConfig(**_WIDE),
        MBartConfig(**_TEXT, scale_embedding=True),
    ),
    "donut": lambda: (
        DonutSwinConfig(**_SWIN),
        MBartConfig(**_NARROW, scale_embedding=True),
    ),
    # Windows that divide all grids, and a decoder that is wider than the encoder.
    "donut_small": lambda: (
        DonutSwinConfig(**_OTHER),
        MBartConfig(**_TEXT),
    ),
}
TOKENS = {
    name: 8 * 12 if "donut" in name else PATCHES + (2 if name == "trocr_deit" else 1)
    for name in MODELS
}
SHAPES = {name: (3, 32, 48) if "donut" in name else (3, SIDE, SIDE) for name in MODELS}


def saved(path: Path, name: str) -> PreTrainedModel:
    """A checkpoint of random weights, and its reference."""
    torch.manual_seed(0)
    encoder, decoder = MODELS[name]()
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    made = VisionEncoderDecoderModel(config=config)
    with torch.no_grad():
        for key, parameter in made.named_parameters():
            if parameter.ndim > 1 or "bias" in key:
                parameter.normal_(std=0.2)
    reference = save(made, path)
    for module in reference.modules():
        if isinstance(module, TrOCRSinusoidalPositionalEmbedding):
            # The table that `from_pretrained` leaves empty; it is computed at first use.
            module.weights = None  # type: ignore[assignment]
    return reference


def model(path: Path, name: str) -> MediaTestModel:
    """A checkpoint of random weights, and the model that reads it."""
    return with_reference(path, saved(path, name), TOKENS[name])


def with_reference(path: Path, reference: PreTrainedModel, tokens: int) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        """The ids of a prompt begin with the tokens of its image."""
        assert ids[:tokens] == IMAGE * tokens and ids[tokens] != PLACEHOLDER
        with torch.inference_mode():
            rows = reference(
                pixel_values=torch.tensor(np.stack(images)),
                decoder_input_ids=torch.tensor([ids[tokens:]]),
                use_cache=False,
            ).logits[0]
        return torch.cat([torch.zeros(tokens, rows.shape[1]), rows])

    return MediaTestModel(path, logits)


def image(seed: int, name: str = "trocr") -> np.ndarray:
    """Pixels as the model of this name takes them."""
    shape = SHAPES[name]
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
