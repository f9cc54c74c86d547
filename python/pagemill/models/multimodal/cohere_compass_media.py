"""North with images and videos: Qwen3-VL's vision tower, and North's layers, of which each kind has
rotary parameters of its own, in positions of three dimensions, or none.

Weights: as Qwen3-VL's.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.models.base import Config
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Defaults,
    layer_types,
    rope_parameters,
)
from pagemill.models.multimodal.language_part import CohereCompassLanguagePart
from pagemill.models.multimodal.mrope import dims_of_pairs
from pagemill.models.multimodal.qwen3_vl import Qwen3VlModel
from pagemill.models.vision.qwen3_vl_vision import Qwen3VlVisionTower

# Those of the model's rotary embedding.
_SECTIONS = {"mrope_section": [24, 20, 20]}


class CohereCompassVisionTower(Qwen3VlVisionTower):
    """Its tower."""

    kinds = ("cohere_compass_vision",)


class CohereCompassMediaModel(Qwen3VlModel):
    """One North model."""

    tower = CohereCompassVisionTower
    part = CohereCompassLanguagePart
    video_ends = ("<|VISION_START|>", "<|VISION_END|>")

    def dims_of_layers(self, text: Config) -> Sequence[Sequence[int]]:
        tables = self._text.rotary
        types = layer_types(text, len(tables), (SLIDING, FULL)) or (FULL,) * len(tables)
        return [
            () if table is None else _dims(rope_parameters(text, kind), len(table.inv_freq))
            for table, kind in zip(tables, types, strict=True)
        ]


def _dims(rope: Config, pairs: int) -> Sequence[int]:
    sections = Defaults(rope, _SECTIONS)
    return dims_of_pairs({"rope_parameters": {**sections, "mrope_interleaved": True}}, pairs)
