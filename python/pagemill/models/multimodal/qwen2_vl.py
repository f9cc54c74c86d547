"""Qwen2-VL and Qwen2.5-VL: a vision tower for images and videos of any size, and Qwen2 with
positions of three dimensions.

Weights: `visual.` (qwen2_vl_vision.py, qwen2_5_vl_vision.py), and Qwen2's; or all but the head
behind `model.`, Qwen2's with `language_model.` behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self, cast

from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.rotary import bind_grid_rotaries
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaPart,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import flag, inner_config, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.multimodal.grid_media import GridMediaModel, placeholders_of
from pagemill.models.multimodal.language_part import LanguagePart
from pagemill.models.multimodal.mrope import dims_of_pairs, without_sections
from pagemill.models.qwen2 import Qwen2Model
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.qwen2_5_vl_vision import Qwen25VlVisionTower
from pagemill.models.vision.qwen2_vl_vision import Qwen2VlVisionTower
from pagemill.models.vision.video_frames import in_time, positions_of_items
from pagemill.ops.trace import Tensor


class Qwen2VlModel(GridMediaModel):
    """One Qwen2-VL model. A subclass changes `tower`, and `part`, which knows its language models,
    and is what a configuration without a tower describes; and `video_layout`, or `video_times`,
    the positions in time of what patches span."""

    tower: ClassVar[type[GridVisionTower]] = Qwen2VlVisionTower
    part: ClassVar[type[LanguagePart] | None] = None
    video_ends: ClassVar[tuple[str, str] | None] = None

    def __init__(self, config: Config) -> None:
        text = _text_config(config)
        tied = flag(config, "tie_word_embeddings", flag(text, "tie_word_embeddings", False))
        decoder = _decoder(self.part, {**without_sections(text), "tie_word_embeddings": tied})
        tower = self.tower(inner_config(config, "vision_config"))
        tower.check_width(decoder.traits.hidden_size)
        super().__init__(decoder, tower, placeholders_of(config, decoder.traits.vocab_size))
        self.ignored = {**decoder.ignored, **self.ignored}
        self._dims = self.dims_of_layers(text)

    def dims_of_layers(self, text: Config) -> Sequence[Sequence[int]]:
        """The position dimension by which each pair of a layer's heads rotates."""
        table = self._text.rotary[0]
        assert table is not None
        return [dims_of_pairs(text, len(table.inv_freq))] * self._text.sizes.layers

    @classmethod
    def from_config(cls, config: Config) -> Self | LanguagePart:
        if cls.part is not None and config.get("vision_config") is None:
            return cls.part(config)
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        media = replace(
            traits.media,
            width=self._tower.result_width,
            token_grid=True,
            video_ends=self.video_ends,
        )
        return replace(traits, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image)

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        features = [self._tower.features(item) for item in items]
        return [*in_time(features, self.video_times(len(items), times))]

    def video_times(self, items: int, times: FrameTimes) -> list[int]:
        """The position in time of each of so many items."""
        del times
        return list(range(items))

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower = weights.within("model.visual.")
        if not tower.has("patch_embed.proj.weight"):
            tower = weights.within("visual.")
        return self._tower.hidden(tower, inputs)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        weights = self.named(weights)
        if inputs.grid_positions is None:  # text alone: a token's three positions are the same
            return self._text.hidden(weights, inputs)
        rotary = bind_grid_rotaries(
            weights,
            self._text.rotary,
            self._dims,
            inputs.grid_positions,
            interleaved=self._text.interleaved,
        )
        return self._text.hidden_by(weights, inputs, rotary)

    def named(self, weights: Weights) -> Weights:
        part = super().named(weights)
        return part if part.has(f"{self._text.names.embedding}.weight") else weights


class Qwen25VlModel(Qwen2VlModel):
    """One Qwen2.5-VL model."""

    tower = Qwen25VlVisionTower

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        vision = inner_config(config, "vision_config")
        self._positions_per_second = positive_int(vision, "tokens_per_second", 4)

    def video_times(self, items: int, times: FrameTimes) -> list[int]:
        return positions_of_items(items, times, self._tower.frames, self._positions_per_second)


def _text_config(config: Config) -> Config:
    """Older configurations have the language model's keys among their own."""
    text = config.get("text_config")
    return cast("Config", text) if isinstance(text, Mapping) else config


def _decoder(part: type[LanguagePart] | None, config: Config) -> Decoder:
    return Qwen2Model(config) if part is None else part({"text_config": config}).text
