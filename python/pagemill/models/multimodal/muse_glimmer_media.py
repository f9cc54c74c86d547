"""Muse Glimmer for images and videos: its vision tower, squares of patches merged in an adapter, a
projection, and the decoder.

Weights: `vision_tower.` (muse_glimmer_vision.py), `vision_adapter.{fc1, fc2}`, `vision_projection`
and `language_model.` (muse_glimmer.py), all behind `model.`, with `lm_head` beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.media_rows import side_by_side
from pagemill.models.base import Config, EncoderInputs, MediaPart, ModelConfigError
from pagemill.models.config_keys import activation, inner_config, positive_int
from pagemill.models.multimodal.decoder_part import decoder_part
from pagemill.models.multimodal.grid_media import GridMediaModel, placeholders_of
from pagemill.models.multimodal.language_part import MuseGlimmerLanguagePart
from pagemill.models.vision.muse_glimmer_vision import MuseGlimmerVisionTower
from pagemill.models.vision.video_frames import seconds_of_items
from pagemill.ops.shard import Stripe
from pagemill.ops.trace import Tensor

_START, _END = "<|image_start|>", "<|image_end|>"
_VIDEO_ENDS = ("<|vid_start|>", "<|vid_end|>")
_SEPARATOR = "<|vid_frame_separator|>"


class MuseGlimmerMediaModel(GridMediaModel):
    """One Muse Glimmer model: a `TiledModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        text = decoder_part(config, ("muse_glimmer_text",))
        tower = MuseGlimmerVisionTower(inner_config(config, "vision_config"))
        super().__init__(text, tower, placeholders_of(config, text.traits.vocab_size))
        self._merged = positive_int(config, "out_hidden_size", 6144)
        if self._merged != tower.merge**2 * tower.hidden_size:
            raise ModelConfigError(
                f"out_hidden_size is {self._merged}, but {tower.merge**2} patches have"
                f" {tower.hidden_size} features each"
            )
        self._projected = positive_int(config, "projector_hidden_size", 4096)
        self._activation = activation(config, "projector_hidden_act", "gelu")

    @classmethod
    def from_config(cls, config: Config) -> Self | MuseGlimmerLanguagePart:
        """A configuration without a tower is that of the text alone."""
        if config.get("vision_config") is None:
            return MuseGlimmerLanguagePart(config)
        return cls(config)

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        if media.kind == "video":
            return super().layout(media)
        return _START, media, _END

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        """Each has in front of it when its first frame is."""
        first, last = _VIDEO_ENDS
        parts: list[MediaPart] = [first]
        for item, seconds in zip(items, seconds_of_items(times, self._tower.frames), strict=True):
            parts += [f"Time: {seconds[0]:.1f}s", item._replace(kind="video"), _SEPARATOR]
        return [*parts[:-1], last]

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        weights = weights.within("model.")
        x = self._tower.hidden(weights.within("vision_tower."), inputs)
        count = self._tower.merge**2
        merged = ops.select_rows(x, inputs.media.tokens, count=count)
        # The adapter reads the first feature of all patches, then the second, and so on.
        shape = (self._projected, self._merged)
        products = [
            ops.linear(
                patch,
                weights.column_stripe("vision_adapter.fc1.weight", shape, Stripe(index, count)),
            )
            for index, patch in enumerate(side_by_side(merged, self._tower.hidden_size))
        ]
        x = ops.activation(reduce(ops.add, products), self._activation)
        x = linear(weights, "vision_adapter.fc2", x, (self._projected,))
        x = ops.activation(x, self._activation)
        x = linear(weights, "vision_projection", x, (self._text.traits.hidden_size,))
        eps = self._text.sizes.norm_eps
        return norm.rms_norm(weights, "perception_emb_norm", x, eps, weight=False)
