"""Video-LLaVA: LLaVA with a vision tower of images and one of frames of videos. A frame keeps its
class token, an image does not.

Weights as LLaVA's, with `image_tower.` and `video_tower.` in place of `vision_tower.`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.models.base import Config
from pagemill.models.config_keys import Defaults
from pagemill.models.multimodal.llava import LlavaModel
from pagemill.models.multimodal.two_encoders import TwoEncoders, encoder_of
from pagemill.models.vision.video_frames import frames_of

# Those of the configuration's class.
_TOKENS = {"image_token_index": 32000, "video_token_index": 32001}


class VideoLlavaModel(TwoEncoders):
    """One Video-LLaVA model: an `EncodersModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _TOKENS)
        images, frames = _Images(config), _Frames(config)
        super().__init__(images, encoder_of(frames))
        self.ignored = {**images.ignored, **frames.ignored}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)


class _Images(LlavaModel):
    """That of images."""

    texts = ("llama",)
    tower_name = "image_tower"


class _Frames(LlavaModel):
    """That of frames: a `TiledModel` (base.py)."""

    texts = ("llama",)
    kind = "video"
    tower_name = "video_tower"

    def __init__(self, config: Config) -> None:
        super().__init__({**config, "vision_feature_select_strategy": "full"})

    def layout(self, video: PreparedMedia) -> Sequence[MediaFeatures]:
        grid = self._tower.grid
        frames = frames_of(video, grid.image_shape)
        return [MediaFeatures(grid.patches(frame), self._tokens) for frame in frames]
