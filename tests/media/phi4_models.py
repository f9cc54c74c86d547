"""A tiny Phi-4 multimodal model, images for it, and what `transformers` makes of these."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Phi4MultimodalConfig, Phi4MultimodalForCausalLM, PreTrainedModel

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

PLACEHOLDER = 3
SIDE = 4  # patches in a row of a tile, of 4 x 4 pixels
TILE = (3, 4 * SIDE, 4 * SIDE)
Tiles = tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int, rows: int, columns: int) -> Tiles:
    """A picture of so many patches, in as many tiles as that takes, and the whole."""
    tiles = -(-rows // SIDE) * -(-columns // SIDE)
    pixels = np.random.default_rng(seed).normal(size=(1 + tiles, *TILE))
    return pixels.astype(np.float32), (1, rows, columns)


def _masks(grid: tuple[int, int, int]) -> np.ndarray:
    """Of the whole and of each tile, [1 + tiles, SIDE, SIDE]."""
    _, rows, columns = grid
    down, across = -(-rows // SIDE), -(-columns // SIDE)
    canvas = np.zeros((down * SIDE, across * SIDE))
    canvas[:rows, :columns] = 1
    tiles = canvas.reshape(down, SIDE, across, SIDE).transpose(0, 2, 1, 3)
    return np.concatenate([np.ones((1, SIDE, SIDE)), tiles.reshape(-1, SIDE, SIDE)])


def _inputs(images: Sequence[Tiles]) -> dict[str, torch.Tensor]:
    most = max(len(tiles) for tiles, _ in images)
    pixels = [np.pad(t, [(0, most - len(t))] + [(0, 0)] * 3) for t, _ in images]
    masks = [
        np.pad(own, [(0, most - len(own)), (0, 0), (0, 0)], constant_values=1)
        for own in (_masks(grid) for _, grid in images)
    ]
    sizes = [[-(-side // SIDE) * TILE[1] for side in grid[1:]] for _, grid in images]
    return {
        "image_pixel_values": torch.tensor(np.stack(pixels)),
        "image_attention_mask": torch.tensor(np.stack(masks)),
        "image_sizes": torch.tensor(sizes),
    }


def _tiny(**changes: Any) -> Phi4MultimodalForCausalLM:
    vision = {
        "hidden_size": 48,
        "intermediate_size": 72,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": TILE[1],
        "crop_size": TILE[1],
        "patch_size": 4,
        "image_token_id": PLACEHOLDER,
    }
    audio = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_blocks": 1,
        "num_attention_heads": 2,
        "ext_pw_out_channel": 16,
        "depthwise_separable_out_channel": 16,
        "input_size": 8,
        "nemo_conv_channels": 8,
        "audio_token_id": 4,
    }
    config = Phi4MultimodalConfig(
        vocab_size=257,
        hidden_size=96,
        intermediate_size=136,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        vision_config=vision | changes,
        audio_config=audio,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.75,
        },
    )
    config._attn_implementation = "eager"
    model = Phi4MultimodalForCausalLM(config)
    embed = model.model.embed_tokens_extend.image_embed
    for own in (embed.global_img_feature_extensor, embed.sub_img_feature_extensor):
        torch.nn.init.normal_(own)  # they begin with zeros
    return model


def phi4_multimodal(path: Path, **changes: Any) -> tuple[PreTrainedModel, MediaTestModel]:
    """The reference, and the model at `path`; `changes` are fields of its tower's configuration."""
    torch.manual_seed(0)
    reference = save(_tiny(**changes), path)

    def logits(ids: list[int], images: Sequence[Tiles]) -> torch.Tensor:
        with torch.inference_mode():
            inputs = _inputs(images) if images else {}
            return reference(torch.tensor([ids]), **inputs, use_cache=False).logits[0]

    return reference, MediaTestModel(path, logits)
