"""A tiny Phi-4 multimodal model, images for it, and what `transformers` makes of these."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    Phi4MultimodalConfig,
    Phi4MultimodalFeatureExtractor,
    Phi4MultimodalForCausalLM,
    PreTrainedModel,
)

from tests.media.audio_models import AudioModel
from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

PLACEHOLDER, AUDIO_PLACEHOLDER = 3, 4
BINS = 9
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
        "num_blocks": 2,
        "num_attention_heads": 2,
        "ext_pw_out_channel": 16,
        "depthwise_separable_out_channel": 16,
        "input_size": BINS,
        "nemo_conv_channels": 8,
        "audio_token_id": AUDIO_PLACEHOLDER,
    }
    config = Phi4MultimodalConfig(
        vocab_size=257,
        hidden_size=96,
        intermediate_size=136,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=1024,
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
    encoder = model.model.embed_tokens_extend.audio_embed.encoder
    encoder.encoder_embedding.global_mean.normal_(5)
    encoder.encoder_embedding.global_invstd.uniform_(0.1, 0.5)
    for layer in encoder.encoders:
        torch.nn.init.normal_(layer.conv.glu.b1)
        torch.nn.init.normal_(layer.conv.glu.b2)
    return model


def phi4_multimodal(path: Path, **changes: Any) -> tuple[PreTrainedModel, MediaTestModel]:
    """The reference, and the model at `path`; `changes` are fields of its tower's configuration."""
    torch.manual_seed(0)
    reference = save(_tiny(**changes), path)
    return reference, _with_images(path, reference)


def _with_images(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[Tiles]) -> torch.Tensor:
        with torch.inference_mode():
            inputs = _inputs(images) if images else {}
            return reference(torch.tensor([ids]), **inputs, use_cache=False).logits[0]

    return MediaTestModel(path, logits)


def log_mel(samples: np.ndarray) -> torch.Tensor:
    """Of the feature extractor, [frames, BINS]."""
    extractor = Phi4MultimodalFeatureExtractor(feature_size=BINS)
    found = extractor(samples, sampling_rate=16000, return_tensors="pt")
    return found["audio_input_features"][0]


def phi4_audio(path: Path) -> MediaTestModel:
    """The model at `path`, whose media are audio."""
    torch.manual_seed(0)
    return _with_audio(path, save(_tiny(), path))


def phi4_with_both(path: Path) -> tuple[PreTrainedModel, MediaTestModel, MediaTestModel]:
    """The reference, and the model at `path`: its media are images, and they are audio."""
    torch.manual_seed(0)
    reference = save(_tiny(), path)
    return reference, _with_images(path, reference), _with_audio(path, reference)


def _with_audio(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    embed = reference.model.embed_tokens_extend.audio_embed

    def sound(samples: np.ndarray) -> torch.Tensor:
        # Alone: audio that fills up others of a batch would be seen.
        x = embed.encoder(log_mel(samples)[None], None)[0]
        return embed.down_proj_for_speech(torch.nn.functional.gelu(embed.up_proj_for_speech(x)))

    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            embedded = reference.get_input_embeddings()(prompt)
            if audios:
                found = torch.cat([sound(each) for each in audios])
                embedded[prompt == AUDIO_PLACEHOLDER] = found
            return reference(inputs_embeds=embedded, use_cache=False).logits[0]

    return AudioModel(path, logits)
