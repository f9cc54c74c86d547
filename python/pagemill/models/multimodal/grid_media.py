"""Models whose vision tower reads images of any size, and videos frame by frame, by a grid of
patches (grid_vision.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers.base import Weights
from pagemill.models.base import Config, EncoderInputs, MediaPart, ModelTraits
from pagemill.models.config_keys import token_id
from pagemill.models.decoder import Decoder
from pagemill.models.multimodal.decoder_part import WithDecoder, ignored_in_part
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.video_frames import split_video
from pagemill.ops.trace import Tensor


class GridMediaModel(WithDecoder):
    """A `TiledModel` (base.py). Tokens of images have the positions of text. A subclass has
    `embeddings`, and may change `features` and `video_layout`."""

    def __init__(
        self, text: Decoder, tower: GridVisionTower, placeholders: Mapping[MediaKind, int]
    ) -> None:
        self._text, self._tower, self._placeholders = text, tower, placeholders
        self.ignored = ignored_in_part(text)

    @property
    def traits(self) -> ModelTraits:
        text = self._text.traits
        media = self._tower.media_traits(width=text.hidden_size, placeholders=self._placeholders)
        return replace(text, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        found = self._tower.features(image)
        if found.positions is None:
            return found
        positions = GridPositions.in_order(found.positions.rows, found.tokens)
        return MediaFeatures(found.rows, found.tokens, positions, placement=found.placement)

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        if media.kind != "video":
            return [media]
        return self.video_layout(*split_video(self._tower, media))

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        """The parts of a video whose patches span the frames of each of `items`."""
        del times
        return [self.features(item) for item in items]

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        raise NotImplementedError


def placeholders_of(config: Config, vocab: int) -> dict[MediaKind, int]:
    """The tokens of images and, if the configuration has one, of videos.

    Raises:
        ModelConfigError: one is not a token, or there is none of images.
    """
    found: dict[MediaKind, int] = {"image": token_id(config, "image_token_id", vocab)}
    if config.get("video_token_id") is not None:
        found["video"] = token_id(config, "video_token_id", vocab)
    return found
