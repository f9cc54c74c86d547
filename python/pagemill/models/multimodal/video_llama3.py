"""VideoLLaMA 3: SigLIP's tower for images of any size, a projector of two linear layers, and Qwen2.

Weights: `model.vision_model.` (video_llama3_vision.py), `model.projector.readout.{0,2}`, and
Qwen2's with `language_model.` behind `model.`: images and frames have an encoder each, of the same
weights.

Squares of patches of a frame are averaged, and those that are much as in the frame before it have
no token: a frame has at least one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from pagemill import ops
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, MediaPart, ModelTraits
from pagemill.models.config_keys import Defaults, inner_config, token_id
from pagemill.models.multimodal.decoder_part import decoder_part
from pagemill.models.multimodal.grid_media import GridMediaModel
from pagemill.models.multimodal.two_encoders import TwoEncoders, encoder_of
from pagemill.models.vision.patch_grid import averaged_patches
from pagemill.models.vision.video_llama3_vision import VideoLlama3VisionTower
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_LEAST_CHANGE = 0.1 / 255  # of a square's normalized pixels, on average
# Those of the configuration's class.
_TOKENS = {"image_token_id": 151655, "video_token_id": 151656}


class VideoLlama3Model(TwoEncoders):
    """One VideoLLaMA 3 model: an `EncodersModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _TOKENS)
        images = VideoLlama3Images(config)
        super().__init__(images, encoder_of(VideoLlama3Frames(config)))
        self.ignored = images.ignored

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)


class VideoLlama3Images(GridMediaModel):
    """The model with its encoder of images. A subclass reads another `kind`, of which it averages
    `merge` x `merge` patches."""

    kind: ClassVar[MediaKind] = "image"
    merge: ClassVar[int] = 1

    def __init__(self, config: Config) -> None:
        text = decoder_part(config, ("qwen2",))
        tower = VideoLlama3VisionTower(inner_config(config, "vision_config"), merge=self.merge)
        token = token_id(config, f"{self.kind}_token_id", text.traits.vocab_size)
        super().__init__(text, tower, {self.kind: token})

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts, count = weights.within("model."), self.merge**2
        x = self._tower.hidden(parts.within("vision_model."), inputs)
        x = averaged_patches(ops.select_rows(x, inputs.media.tokens, count=count), count)
        projector = parts.within("projector.readout.")
        width = self._text.traits.hidden_size
        x = ops.activation(linear(projector, "0", x, (width,), bias=True), ActivationKind.GELU)
        return linear(projector, "2", x, (width,), bias=True)


class VideoLlama3Frames(VideoLlama3Images):
    """Its encoder of frames: a `TiledModel` (base.py)."""

    kind = "video"
    merge = 2

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        return replace(traits, media=replace(traits.media, placed=True))

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        """Each frame has in front of it when it is."""
        parts: list[MediaPart] = []
        before: PreparedMedia | None = None
        for item, seconds in zip(items, times.seconds, strict=True):
            comma = "," if before is not None else ""
            parts += f"{comma}Time {seconds:.1f}s:", self._frame(item, before)
            before = item
        return parts

    def _frame(self, item: PreparedMedia, before: PreparedMedia | None) -> MediaFeatures:
        """A frame, without tokens for the squares that the one `before` it has, too."""
        kept = np.arange(len(item.values) // self.merge**2, dtype=np.int32)
        found = self.features(item)
        if before is not None:
            change = np.abs(item.values - before.values).reshape(len(kept), -1).mean(1)
            changed = kept[change > _LEAST_CHANGE]
            kept = changed if len(changed) else kept[:1]
        assert found.positions is not None
        positions = GridPositions.in_order(found.positions.rows, len(kept))
        return MediaFeatures(found.rows, len(kept), positions, placement=kept)
