"""Tiny models of Gemma 4 and Gemma 4 12B, and what `transformers` makes of images, videos and
audio."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pagemill.inputs.prepared_media import FrameTimes
from transformers import (
    Gemma4AudioFeatureExtractor,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Gemma4UnifiedConfig,
    Gemma4UnifiedForConditionalGeneration,
    PreTrainedModel,
)

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_decoders import SLIDING_WINDOW
from tests.parity.tiny_models import TEXT_SIZES

PLACEHOLDER, START, END, VIDEO = 3, 4, 5, 7
AUDIO, AUDIO_START, AUDIO_END = 6, 8, 9
_WORDS = {
    PLACEHOLDER: "<|image|>",
    START: "<|image>",
    END: "<image|>",
    VIDEO: "<|video|>",
    AUDIO: "<|audio|>",
    AUDIO_START: "<|audio>",
    AUDIO_END: "<audio|>",
    200: "00:00 ",
    201: "01:01 ",
    202: " 00:00 ",
    203: " 00:01 ",
    204: " 01:02 ",
}
Patches = tuple[np.ndarray, tuple[int, int, int]]
Video = tuple[np.ndarray, tuple[int, int, int], FrameTimes]


PATCH, SIDE = 4, 3  # pixels of a patch, and patches of a square that makes a token
_PLACES = 96

_TEXT = TEXT_SIZES | {
    "head_dim": 16,
    "num_hidden_layers": 6,
    "global_head_dim": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": SLIDING_WINDOW,
    "final_logit_softcapping": 3.0,
}
# An embedding of each token for each layer, and layers that share caches.
_SMALL: dict[str, Any] = {
    "hidden_size_per_layer_input": 12,
    "vocab_size_per_layer_input": 257,
    "num_kv_shared_layers": 2,
}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "small": (_SMALL, {"use_clipped_linears": True}),
    # Tokens of an image see each other in windowed layers.
    "large": (
        {"hidden_size_per_layer_input": 0, "use_bidirectional_attention": "vision"},
        {"standardize": True, "num_key_value_heads": 1},
    ),
    # Bounds are infinite, as those of a model that has not been trained.
    "both": (_SMALL | {"use_bidirectional_attention": "vision"}, {"use_clipped_linears": True}),
}


BINS, WINDOW = 16, 4  # of log-mel, and vectors that one attends to
_EXTRACTOR = Gemma4AudioFeatureExtractor(feature_size=BINS)
_AUDIO: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "subsampling_conv_channels": [BINS, 6],
    "conv_kernel_size": 3,
    "attention_chunk_size": WINDOW,
    "attention_context_left": WINDOW + 1,
    "attention_logit_cap": 0.5,
    "residual_weight": 0.75,
    "output_proj_dims": 40,
    "rms_norm_eps": 1e-3,
}


def gemma4(kind: str, audio: dict[str, Any] | None = None) -> PreTrainedModel:
    """`audio` are changes of the configuration of its encoder of audio; None: it has none."""
    text_changes, vision_changes = KINDS[kind]
    vision: dict[str, Any] = {
        "hidden_size": 48,
        "intermediate_size": 72,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "head_dim": 16,
        "patch_size": PATCH,
        "pooling_kernel_size": SIDE,
        "position_embedding_size": _PLACES,
    }
    config = Gemma4Config(
        text_config=_TEXT | text_changes,
        vision_config=vision | vision_changes,
        audio_config=None if audio is None else _AUDIO | audio,
        image_token_id=PLACEHOLDER,
        boi_token_id=START,
        eoi_token_id=END,
        audio_token_id=AUDIO,
        video_token_id=VIDEO,
    )
    config._attn_implementation = "eager"
    model = Gemma4ForConditionalGeneration(config)
    if audio is not None:
        _randomize_audio(model.model.audio_tower)
    tower = model.model.vision_tower
    torch.nn.init.normal_(tower.patch_embedder.position_embedding_table)
    for name, buffer in tower.named_buffers():
        if name.rpartition(".")[2].startswith("std_"):
            torch.nn.init.normal_(buffer)
        if kind == "small" and name.endswith("_min"):
            buffer.fill_(-0.75)
        if kind == "small" and name.endswith("_max") and "q_proj" not in name:
            buffer.fill_(0.5)
    return model


def _randomize_audio(tower: PreTrainedModel) -> None:
    for layer in tower.layers:
        torch.nn.init.normal_(layer.self_attn.per_dim_scale)
        torch.nn.init.normal_(layer.self_attn.relative_k_proj.weight, std=0.3)
        for of in "qk":
            torch.nn.init.normal_(getattr(layer.self_attn, f"{of}_proj").linear.weight, std=0.3)
    for name, buffer in tower.named_buffers():
        if name.endswith("_min"):
            buffer.fill_(-1.5)
        if name.endswith("_max") and "q_proj" not in name:
            buffer.fill_(1.25)


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches; a ninth as many tokens."""
    values = np.random.default_rng(seed).random(size=(height * width, 3 * PATCH**2))
    return values.astype(np.float32), (1, height, width)


UNIFIED_PLACES = 48


def gemma4_unified() -> PreTrainedModel:
    config = Gemma4UnifiedConfig(
        text_config=TEXT_SIZES
        | {
            "head_dim": 16,
            "global_head_dim": 32,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": SLIDING_WINDOW,
            "num_global_key_value_heads": 2,
        },
        vision_config={
            "patch_size": PATCH,
            "pooling_kernel_size": SIDE,
            "mm_embed_dim": 40,
            "mm_posemb_size": UNIFIED_PLACES,
            "output_proj_dims": 40,
            "rms_norm_eps": 1e-3,
        },
        audio_config=None,
        image_token_id=PLACEHOLDER,
        boi_token_id=START,
        eoi_token_id=END,
        audio_token_id=6,
        video_token_id=7,
    )
    config._attn_implementation = "eager"
    model = Gemma4UnifiedForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.embed_vision.pos_embedding)
    return model


def unified_image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches, and as many tokens."""
    values = np.random.default_rng(seed).random(size=(height * width, 3 * (PATCH * SIDE) ** 2))
    return values.astype(np.float32), (1, height, width)


def inputs(images: Sequence[Patches]) -> dict[str, torch.Tensor]:
    """Patches and their columns and rows, padded to those of the largest image."""
    most = max(len(patches) for patches, _ in images)
    values = torch.zeros(len(images), most, images[0][0].shape[1])
    places = torch.full((len(images), most, 2), -1)
    for index, (patches, (_, height, width)) in enumerate(images):
        values[index, : len(patches)] = torch.tensor(patches)
        rows, columns = np.divmod(np.arange(height * width), width)
        places[index, : len(patches)] = torch.tensor(np.stack([columns, rows], 1))
    return {"pixel_values": values, "image_position_ids": places}


def log_mel(audios: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    """Of the feature extractor, padded to the longest."""
    return dict(_EXTRACTOR(list(audios), sampling_rate=16000, return_tensors="pt"))


def _video_inputs(videos: Sequence[Video]) -> dict[str, torch.Tensor]:
    frames = [
        (values, (1, height, width))
        for all_values, (time, height, width), _ in videos
        for values in np.split(all_values, time)
    ]
    found = inputs(frames)
    return {
        "pixel_values_videos": found["pixel_values"],
        "video_position_ids": found["image_position_ids"],
        "num_frames_per_video": torch.tensor([grid[0] for _, grid, _ in videos]),
    }


class Gemma4TestModel(MediaTestModel):
    def __init__(self, path: Path, reference: PreTrainedModel) -> None:
        def logits(ids: list[int], media: Sequence[Patches | Video | np.ndarray]) -> torch.Tensor:
            given = torch.tensor([ids])
            types = (given == PLACEHOLDER) + 2 * (given == VIDEO)
            sounds = [each for each in media if isinstance(each, np.ndarray)]
            others = [each for each in media if isinstance(each, tuple)]
            images = [each for each in others if len(each) == 2]
            videos = [each for each in others if len(each) == 3]
            own = inputs(images) if images else {}
            own |= _video_inputs(videos) if videos else {}
            own |= log_mel(sounds) if sounds else {}
            # Those of `generate`: `forward` of Gemma 4 12B makes others, of full layers, too.
            masks = reference.create_masks_for_generate(
                reference.config,
                inputs_embeds=torch.zeros(1, len(ids), 1),
                attention_mask=None,
                past_key_values=None,
                position_ids=None,
                mm_token_type_ids=types,
            )
            with torch.inference_mode():
                found = reference(given, attention_mask=masks, use_cache=False, **own)
            return found.logits[0]

        super().__init__(path, logits, _WORDS)
        self.transformer = reference
