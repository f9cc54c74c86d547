"""LLaVA-NeXT-Video: LLaVA-Next, and frames of videos, each of one tile, whose patches are averaged
two by two in front of the projector.

Weights as LLaVA-Next's: images and frames have an encoder each, of the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelEncoder,
)
from pagemill.models.config_keys import Defaults
from pagemill.models.multimodal.llava import LlavaModel
from pagemill.models.multimodal.llava_next import LlavaNextModel
from pagemill.models.multimodal.two_encoders import TwoEncoders
from pagemill.models.vision.patch_grid import averaged_patches
from pagemill.models.vision.video_frames import frames_of
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_MERGE = 2
_KNOWN: Config = {"spatial_pool_mode": "average", "spatial_pool_stride": _MERGE}
# Those of the configuration's class.
_TOKENS = {"image_token_index": 32001, "video_token_index": 32000}


class LlavaNextVideoModel(TwoEncoders):
    """One LLaVA-NeXT-Video model: an `EncodersModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _TOKENS)
        images, frames = LlavaNextModel(config), FrameEncoder(config)
        super().__init__(images, ModelEncoder(frames.media, frames))
        self.ignored = images.ignored

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)


class FrameEncoder(LlavaModel):
    """That of frames: a `TiledModel` (base.py)."""

    texts = LlavaNextModel.texts
    kind = "video"
    merge = _MERGE

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        for key, known in _KNOWN.items():
            if config.get(key, known) != known:
                raise ModelConfigError(f"{key} is {shown(config[key])}; known: {known}")

    @property
    def media(self) -> MediaTraits:
        """What it takes."""
        return self._tower.grid.media_traits(
            width=self._text.traits.hidden_size,
            placeholder=self._placeholder,
            class_tokens=self._tower.class_tokens,
            kind=self.kind,
        )

    def layout(self, video: PreparedMedia) -> Sequence[MediaFeatures]:
        grid = self._tower.grid
        frames = frames_of(video, grid.image_shape)
        return [MediaFeatures(grid.patches(frame), grid.tokens) for frame in frames]

    def selected(self, x: Tensor, inputs: EncoderInputs) -> Tensor:
        squares = ops.select_rows(x, inputs.media.tokens, count=self.merge**2)
        return averaged_patches(squares, self.merge**2)
