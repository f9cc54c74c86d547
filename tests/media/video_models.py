"""Tiny models of Qwen-VL and GLM-V with videos, and what `transformers` makes of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from pagemill.inputs.prepared_media import FrameTimes
from tokenizers import Tokenizer
from transformers import PreTrainedModel
from transformers.models.glm4v.processing_glm4v import Glm4vProcessor
from transformers.models.glm46v.processing_glm46v import Glm46VProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.video_utils import VideoMetadata

from tests.media.media_model import MediaTestModel, text
from tests.media.qwen_vl_models import CHANNELS, MAKERS, Patches
from tests.parity.tiny_models import QWEN2_VL_PLACEHOLDER, make, save

FAMILIES = (
    "cohere_compass",
    "exaone4_5",
    "glm46v",
    "glm4v",
    "glm4v_moe",
    "glm_ocr",
    "hyperclovax_vision_v2",
    "lfm3_vl",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
)
IMAGE, VIDEO = QWEN2_VL_PLACEHOLDER, 4
Video = tuple[np.ndarray, tuple[int, int, int], FrameTimes]
_VIDEO_START, _VIDEO_END = 7, 8  # GLM-V's, by its configuration
_QWEN3_WORDS = {4: "<|video_pad|>", 10: "<|vision_start|>", 11: "<|vision_end|>"} | {
    20 + tenth: f"<{tenth / 10:.1f} seconds>" for tenth in range(60)
}
_COHERE_WORDS = {number: word.upper() for number, word in _QWEN3_WORDS.items() if number < 20} | {
    number: word for number, word in _QWEN3_WORDS.items() if number >= 20
}
_GLM_WORDS = {
    5: "<|begin_of_image|>",
    6: "<|end_of_image|>",
    **{20 + second: str(second) for second in range(10)},
}
_GLM46_TIMES = {20 + tenth: f"{tenth / 10:.1f} seconds" for tenth in range(60)}
_TENTHS = ("glm46v", "glm_ocr")
_WORDS: Mapping[str, dict[int, str]] = {
    "cohere_compass": _COHERE_WORDS,
    "glm46v": _GLM_WORDS | _GLM46_TIMES | {IMAGE: "<|image|>"},
    "glm4v": _GLM_WORDS | {IMAGE: "<|image|>"},
    "glm4v_moe": _GLM_WORDS | {IMAGE: "<|image|>"},
    "glm_ocr": _GLM_WORDS | _GLM46_TIMES | {IMAGE: "<|image|>"},
    "lfm3_vl": _QWEN3_WORDS,
    "qwen3_5": _QWEN3_WORDS,
    "qwen3_5_moe": _QWEN3_WORDS,
    "qwen3_vl": _QWEN3_WORDS,
    "qwen3_vl_moe": _QWEN3_WORDS,
}


def text_without_meaning(seed: int, length: int) -> list[int]:
    """Text without tokens that mean something in videos."""
    return [100 + token % 150 for token in text(seed, length)]


def video(seed: int, time: int, height: int, width: int, rate: float = 2.0) -> Video:
    """A video of two frames for each of `time`, `rate` a second, of height x width patches."""
    values = np.random.default_rng(seed).normal(size=(time * height * width, CHANNELS))
    seconds = tuple(frame / rate for frame in range(2 * time))
    return values.astype(np.float32), (time, height, width), FrameTimes(seconds, rate)


def placeholder(family: str) -> list[int]:
    """What a chat template writes for a video."""
    if family.startswith("glm"):
        return [_VIDEO_START, VIDEO, _VIDEO_END]
    return [10, VIDEO, 11]


def expanded(model: MediaTestModel, family: str, item: Video) -> list[int]:
    """What becomes of `placeholder`, by the processor of `transformers`."""
    _, (time, height, width), times = item
    if not family.startswith(("cohere", "glm", "lfm3", "qwen3")):
        return [10, *[VIDEO] * (time * height * width // 4), 11]
    processor = Qwen3VLProcessor
    if family.startswith("glm"):
        processor = Glm46VProcessor if family in _TENTHS else Glm4vProcessor
    frames = list(range(len(times.seconds)))
    metadata = VideoMetadata(len(frames), fps=times.rate, frames_indices=frames)
    words = _WORDS[family]
    stub = SimpleNamespace(
        video_processor=SimpleNamespace(merge_size=2, temporal_patch_size=2),
        image_token="<|image|>",
        video_token=words.get(VIDEO),
        vision_start_token=words.get(10),
        vision_end_token=words.get(11),
    )
    for name in ("_calculate_timestamps", "replace_frame_token_id"):
        if hasattr(processor, name):
            setattr(stub, name, getattr(processor, name).__get__(stub))
    inputs = {"video_grid_thw": np.array([item[1]]), "video_metadata": [metadata]}
    written = processor.replace_video_token(stub, inputs, 0)
    tokenizer = Tokenizer.from_file(str(model.path / "tokenizer.json"))
    ids = tokenizer.encode(written, add_special_tokens=False).ids
    return [_VIDEO_START, *ids, _VIDEO_END] if family.startswith("glm") else ids


def video_model(family: str, path: Path) -> MediaTestModel:
    """The model, saved at `path`. Its media are videos; its reference takes images among them."""
    torch.manual_seed(0)
    made = make(family, path) if family == "qwen2_vl" else save(MAKERS[family](), path)
    model = MediaTestModel(path, Reference(made, family), _WORDS.get(family))
    model.argument = "videos"
    return model


class Reference:
    """Logits of token ids with images and videos, by `transformers`. `positions`: those of its
    tokens [3, tokens], in place of its own."""

    positions: torch.Tensor | None = None

    def __init__(self, model: PreTrainedModel, family: str) -> None:
        self._model, self._family = model, family

    def __call__(self, ids: list[int], media: Sequence[Patches | Video]) -> torch.Tensor:
        row = torch.tensor([ids])
        kinds = self._kinds(row)
        if self._family.startswith("glm") and len({len(m) for m in media}) == 2:
            # Of which `transformers` takes one kind: frames are images.
            media = [image for item in media for image in _images(item)]
            kinds = (row == IMAGE).int()
        arguments = {"pixel_values": [m for m in media if len(m) == 2]}
        arguments["pixel_values_videos"] = [m for m in media if len(m) == 3]
        inputs: dict[str, Any] = {}
        for name, own in arguments.items():
            if own:
                inputs[name] = torch.tensor(np.concatenate([m[0] for m in own]))
                kind = "video" if name.endswith("videos") else "image"
                inputs[f"{kind}_grid_thw"] = torch.tensor([m[1] for m in own])
        if self._family == "qwen2_5_vl":
            inputs["second_per_grid_ts"] = [2 / m[2].rate for m in media if len(m) == 3]
        if self.positions is not None:
            inputs["position_ids"] = self.positions[:, None, : len(ids)]
        # It keeps the position offset of the previous call.
        self._model.model.rope_deltas = None
        with torch.inference_mode():
            found = self._model(row, mm_token_type_ids=kinds, use_cache=False, **inputs)
            return found.logits[0]

    def _kinds(self, row: torch.Tensor) -> torch.Tensor:
        """1 for tokens of images, 2 for those of videos."""
        images = (row == IMAGE).int()
        if not self._family.startswith("glm"):
            return images + 2 * (row == VIDEO).int()
        inside = (row == _VIDEO_START).cumsum(1) > (row == _VIDEO_END).cumsum(1)
        return images * (1 + inside.int())


def _images(item: Patches | Video) -> list[Patches]:
    """What patches of a video span, as images."""
    values, (time, height, width), *_ = item
    return [(each, (1, height, width)) for each in np.split(values, time)]
