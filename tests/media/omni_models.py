"""Tiny thinkers of Qwen2.5-Omni and Qwen3-Omni, which take images, videos and audio, and their
references in `transformers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    PreTrainedModel,
    Qwen2_5OmniThinkerConfig,
    Qwen2_5OmniThinkerForConditionalGeneration,
    Qwen3OmniMoeThinkerConfig,
    Qwen3OmniMoeThinkerForConditionalGeneration,
    WhisperFeatureExtractor,
)

from tests.media.media_model import MediaTestModel
from tests.media.qwen_vl_models import TEXT, TEXT_3, VISION, VISION_3, Patches
from tests.media.video_models import Video
from tests.parity.tiny_models import save

IMAGE_ID, VIDEO_ID, AUDIO_ID = 3, 4, 9
_START, _END = 5, 6
_AUDIO_START, _AUDIO_END = 7, 8
IMAGE, VIDEO = [_START, IMAGE_ID, _END], [_START, VIDEO_ID, _END]
AUDIO = [_AUDIO_START, AUDIO_ID, _AUDIO_END]
WINDOW = 6
"""Vectors of a part of Qwen2.5-Omni's audio, of two log-mel frames each."""
BINS = 16
_AUDIO: dict[str, Any] = {
    "num_mel_bins": BINS,
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "max_source_positions": 40,
    "output_dim": TEXT["hidden_size"],
}
_TOKENS = {
    "vision_start_token_id": _START,
    "audio_start_token_id": _AUDIO_START,
    "audio_end_token_id": _AUDIO_END,
}
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)


def _qwen2_5_omni() -> PreTrainedModel:
    config = Qwen2_5OmniThinkerConfig(
        text_config=TEXT | {"layer_types": ["full_attention"] * TEXT["num_hidden_layers"]},
        vision_config=VISION | {"window_size": 24, "fullatt_block_indexes": [1]},
        audio_config=_AUDIO | {"n_window": WINDOW},
        image_token_index=IMAGE_ID,
        video_token_index=VIDEO_ID,
        audio_token_index=AUDIO_ID,
        position_id_per_seconds=13,
        seconds_per_chunk=3,
        **_TOKENS,
    )
    config._attn_implementation = "eager"
    return Qwen2_5OmniThinkerForConditionalGeneration(config)


def _qwen3_omni() -> PreTrainedModel:
    experts = {"moe_intermediate_size": 24, "num_experts": 5, "num_experts_per_tok": 2}
    config = Qwen3OmniMoeThinkerConfig(
        text_config=TEXT_3 | experts,
        vision_config=VISION_3,
        audio_config=_AUDIO | {"downsample_hidden_size": 4},
        image_token_id=IMAGE_ID,
        video_token_id=VIDEO_ID,
        audio_token_id=AUDIO_ID,
        position_id_per_seconds=13,
        **_TOKENS,
    )
    config._attn_implementation = "eager"
    return Qwen3OmniMoeThinkerForConditionalGeneration(config)


MAKERS: Mapping[str, Callable[[], PreTrainedModel]] = {
    "qwen2_5_omni": _qwen2_5_omni,
    "qwen3_omni": _qwen3_omni,
}


def omni_model(
    family: str, path: Path, words: Mapping[int, str] | None = None, seed: int = 0
) -> MediaTestModel:
    """The model of `MAKERS`, saved at `path`; `words` as those of `MediaTestModel`."""
    torch.manual_seed(seed)
    reference = save(MAKERS[family](), path)

    def logits(ids: list[int], media: Sequence[Patches | Video | np.ndarray]) -> torch.Tensor:
        row, inputs = torch.tensor([ids]), dict[str, Any]()
        sounds = [item for item in media if isinstance(item, np.ndarray)]
        seen = [item for item in media if not isinstance(item, np.ndarray)]
        heard = [item for item in seen if len(item) == 4]  # with sound
        sounds += [item[3] for item in heard]
        for kind, pixels, lengths in (("image", "", (2,)), ("video", "_videos", (3, 4))):
            own = [item for item in seen if len(item) in lengths]
            if own:
                values = np.concatenate([item[0] for item in own])
                inputs[f"pixel_values{pixels}"] = torch.tensor(values)
                inputs[f"{kind}_grid_thw"] = torch.tensor([item[1] for item in own])
        seqlens = dict[str, Any]()
        if sounds:
            inputs |= _audio_inputs(sounds)
            seqlens["audio_seqlens"] = inputs["feature_attention_mask"].sum(-1)
        positions, _ = reference.get_rope_index(
            row,
            inputs.get("image_grid_thw"),
            inputs.get("video_grid_thw"),
            torch.ones_like(row),
            use_audio_in_video=bool(heard),
            second_per_grids=torch.tensor([2 / item[2].rate for item in seen if len(item) > 2]),
            **seqlens,
        )
        positions = _with_ends_of_sound(positions, ids)
        with torch.inference_mode():
            # Qwen3-Omni's may be fractions there.
            found = reference(row, position_ids=positions.floor(), use_cache=False, **inputs)
        return found.logits[0]

    return MediaTestModel(path, logits, words)


def _with_ends_of_sound(positions: torch.Tensor, ids: list[int]) -> torch.Tensor:
    """`positions` [3, 1, tokens], where tokens at both ends of a video and of its sound have the
    same one, with one for each of them."""
    pairs = list(zip(ids, ids[1:], strict=False))
    behind = [at + 1 for at, pair in enumerate(pairs) if pair == (_START, _AUDIO_START)]
    behind += [at + 1 for at, pair in enumerate(pairs) if pair == (_AUDIO_END, _END)]
    shifts = torch.zeros(len(ids))
    for at in behind:
        shifts[at:] += 1
    return positions + shifts


def _audio_inputs(sounds: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    longest = max(map(len, sounds))
    found = _EXTRACTOR(
        list(sounds),
        sampling_rate=16000,
        return_tensors="pt",
        max_length=longest,
        return_attention_mask=True,
    )
    return {
        "input_features": found["input_features"],
        "feature_attention_mask": found["attention_mask"],
    }
