"""MiniCPM-V 4.6 and MiniCPM-OCR: a vision tower that may merge patches between two of its layers,
an MLP that merges neighbors once more, and Qwen3.5 with positions of one dimension.

Weights: `vision_tower.` (minicpm_vision.py), `merger.mlp.0.{pre_norm,linear_1,linear_2}` and
`language_model.` (qwen3_next.py), all behind `model.`, with `lm_head` beside it.

A large image is divided into slices of one size, and the whole image, resized to a size of its own,
comes in front of them. Each attends to itself alone, and so does each frame of a video, which is
not divided. Images of a prompt are numbered, and so are videos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaPart,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import Defaults, inner_config, positive_int, square_side
from pagemill.models.multimodal.decoder_part import WithDecoder, ignored_in_part
from pagemill.models.multimodal.grid_media import placeholders_of
from pagemill.models.multimodal.language_part import Qwen35LanguagePart
from pagemill.models.vision.minicpm_vision import SQUARE, MiniCpmVisionTower
from pagemill.models.vision.slices import divided
from pagemill.models.vision.video_frames import split_video
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_EPS = 1e-6
_MODES = ("16x", "4x")  # how many patches make a token
# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {"insert_layer_id": 6, "merge_kernel_size": SQUARE, "merger_times": 1}


class MiniCpmVModel(WithDecoder):
    """One MiniCPM-V 4.6 model: a `TiledModel` (base.py)."""

    mode = "16x"

    def __init__(self, config: Config) -> None:
        config = Defaults(config, {**_DEFAULTS, "downsample_mode": self.mode})
        vision = Defaults(inner_config(config, "vision_config"), {"window_kernel_size": SQUARE})
        mode = config["downsample_mode"]
        if mode not in _MODES:
            raise ModelConfigError(f"downsample_mode is {shown(mode)}; known: {', '.join(_MODES)}")
        kernels = [(vision, "window_kernel_size"), (config, "merge_kernel_size")]
        if any(square_side(part, key) != SQUARE for part, key in kernels):
            raise ModelConfigError(
                f"window_kernel_size and merge_kernel_size must be {SQUARE} x {SQUARE}"
            )
        if positive_int(config, "merger_times") != 1:
            raise ModelConfigError(f"merger_times is {config['merger_times']}; known: 1")
        self._text = Qwen35LanguagePart(config).text
        self.ignored = ignored_in_part(self._text)
        behind = config["insert_layer_id"] if mode == "16x" else None
        if behind is None:
            why = "downsample_mode is 4x: patches are not merged between layers"
            self.ignored[r"model\.vision_tower\.vit_merger\..*"] = why
        elif type(behind) is not int:
            raise ModelConfigError(f"insert_layer_id is {shown(behind)}; it must be a layer")
        self._tower = MiniCpmVisionTower(vision, merge_behind=behind)
        self._placeholders = placeholders_of(config, self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        width = self._text.traits.hidden_size
        media = replace(
            self._tower.media_traits(width=width, placeholders=self._placeholders),
            number_ends=("<image_id>", "</image_id>"),
        )
        return replace(self._text.traits, media=media)

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        if media.kind == "video":
            frames, _ = split_video(self._tower, media)
            items = [frame._replace(kind="video") for frame in frames]
            return [part for item in items for part in ("<image>", item, "</image>")]
        whole, slice_rows = media, []
        if media.values.ndim != 2:
            slice_rows, whole = divided(media)
        parts: list[MediaPart] = ["<image>", whole, "</image>"]
        for row, slices in enumerate(slice_rows):
            before = "\n" if row else ""
            for each in slices:
                parts += f"{before}<slice>", each, "</slice>"
                before = ""
        return parts

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = weights.within("model.")
        x = self._tower.hidden(parts.within("vision_tower."), inputs)
        merger = parts.within("merger.mlp.0.")
        x = norm.layer_norm(merger, "pre_norm", x, _EPS)
        x = linear(merger, "linear_1", x, (x.width,), bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        return linear(merger, "linear_2", x, (self._text.traits.hidden_size,), bias=True)


class MiniCpmOcrModel(MiniCpmVModel):
    """One MiniCPM-OCR model."""

    mode = "4x"
