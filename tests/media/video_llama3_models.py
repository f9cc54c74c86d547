"""A tiny model of VideoLLaMA 3, and what `transformers` makes of its images and videos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from pagemill.inputs.prepared_media import FrameTimes
from transformers import (
    Qwen2Config,
    VideoLlama3Config,
    VideoLlama3ForConditionalGeneration,
    VideoLlama3VisionConfig,
)

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import TEXT_SIZES, save

IMAGE, VIDEO = 3, 4
CHANNELS = 3 * 4 * 4
MERGE = 2  # of videos
Patches = tuple[np.ndarray, tuple[int, int, int]]
Video = tuple[np.ndarray, tuple[int, int, int], FrameTimes]


def kept_tokens(video: Video) -> torch.Tensor:
    """Which squares of a video's frames have tokens, [time * squares], by the rule of
    `VideoLlama3VideoProcessor` (which needs torchvision): those that differ from the frame before,
    and at least the first one."""
    values, (time, height, width), _ = video
    squares = torch.tensor(values).reshape(time, height * width // MERGE**2, -1)
    mask = torch.ones(squares.shape[:2], dtype=torch.bool)
    mask[1:] = (squares[1:] - squares[:-1]).abs().mean(-1) * 255 > 0.1
    mask[:, 0] |= ~mask.any(1)
    return mask.flatten()


def video_llama3(path: Path, words: Mapping[int, str] | None = None) -> MediaTestModel:
    """The model, saved at `path`; see `MediaTestModel`."""
    torch.manual_seed(0)
    vision = VideoLlama3VisionConfig(
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=2,
        num_attention_heads=4,
        patch_size=4,
    )
    config = VideoLlama3Config(
        vision_config=vision,
        text_config=Qwen2Config(**TEXT_SIZES, tie_word_embeddings=False),
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    config._attn_implementation = "eager"
    reference = save(VideoLlama3ForConditionalGeneration(config), path)

    def logits(ids: list[int], media: Sequence[Patches | Video]) -> torch.Tensor:
        images, videos = ([m for m in media if len(m) == length] for length in (2, 3))
        inputs: dict[str, torch.Tensor] = {}
        for own, name, kind, merge in (
            (images, "pixel_values", "image", 1),
            (videos, "pixel_values_videos", "video", MERGE),
        ):
            if own:
                inputs[name] = torch.tensor(np.concatenate([m[0] for m in own]))
                inputs[f"{kind}_grid_thw"] = torch.tensor([m[1] for m in own])
                inputs[f"{kind}_merge_sizes"] = torch.full((len(own),), merge)
        if videos:
            masks = [kept_tokens(m) for m in videos if len(m) == 3]
            inputs["video_compression_mask"] = torch.cat(masks)
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **inputs, use_cache=False).logits[0]

    return MediaTestModel(path, logits, words)
