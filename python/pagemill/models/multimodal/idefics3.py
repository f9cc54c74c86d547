"""Idefics3 and SmolVLM: SigLIP's vision tower, squares of patches merged by a linear layer, Llama.

Weights: `model.vision_model.` (siglip_vision.py), `model.connector.modality_projection.proj`,
`model.text_model.` and `lm_head` (llama.py).

An image is divided into tiles of the tower's size, and the whole image, resized to one tile, comes
behind them. Each tile attends to itself alone; texts between tiles say where each one lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import (
    Config,
    EncoderInputs,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import inner_config, positive_int, token_id
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part
from pagemill.models.vision.patch_grid import PatchGrid
from pagemill.models.vision.siglip_vision import SiglipVisionTower
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

# Defaults of the configuration's class: published checkpoints leave them out.
_VISION_DEFAULTS = {
    "hidden_size": 1152,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 32,
}
AROUND = "<fake_token_around_image>"
"""In front of a tile."""
WHOLE = "<global-img>"
"""Behind `AROUND`, of the whole image."""


class Idefics3Model(WithDecoder):
    """One model of Idefics3 or SmolVLM: a `TiledModel` (base.py). A subclass changes `texts`, the
    families of its decoder, and `towers`, the types of its tower."""

    texts: ClassVar[Sequence[str]] = ("llama",)
    towers: ClassVar[Sequence[str]] = ("idefics3", "idefics3_vision", "smolvlm_vision")
    ignored: Mapping[str, str] = {}

    def __init__(self, config: Config) -> None:
        self._text = decoder_part(config, self.texts)
        self.ignored = self._text.ignored
        self._merge = positive_int(config, "scale_factor", 2)
        vision = inner_config(config, "vision_config")
        kind = vision.get("model_type", self.towers[0])
        if kind not in self.towers:
            raise ModelConfigError(
                f"a vision tower of type {shown(kind)} in this architecture is not supported;"
                f" known: {', '.join(self.towers)}"
            )
        self._tower = SiglipVisionTower({**_VISION_DEFAULTS, **vision}, merge=self._merge)
        self._placeholder = token_id(config, "image_token_id", self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        width = self._text.traits.hidden_size
        media = self._tower.grid.media_traits(width=width, placeholder=self._placeholder)
        return replace(self._text.traits, media=media)

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
        return image_parts(self._tower.grid, image)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.grid.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower = weights.within("model.vision_model.")
        x = self._tower.hidden(tower, inputs.media, inputs.positions, (self._tower.layers,))
        x = self._tower.post_norm(tower, x)
        x = ops.select_rows(x, inputs.media.tokens, count=self._merge**2)
        width = self._text.traits.hidden_size
        return linear(weights, "model.connector.modality_projection.proj", x, (width,))

    def named(self, weights: Weights) -> Weights:
        return weights.within("text_model.", behind="model.")


def image_parts(grid: PatchGrid, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
    """The tiles of an image, and the texts that say where each lies (`TiledModel.layout`)."""
    tile_rows, whole = grid.tile_rows(image)
    if not tile_rows:
        return AROUND + WHOLE, whole, AROUND
    return *tile_parts(tile_rows), f"\n\n{AROUND}{WHOLE}", whole, AROUND


def tile_parts(tile_rows: Sequence[Sequence[PreparedMedia]]) -> list[PreparedMedia | str]:
    """Tiles, with where each one lies in front of it; rows are lines."""
    parts: list[PreparedMedia | str] = []
    before = ""
    for row, tiles in enumerate(tile_rows, 1):
        for column, tile in enumerate(tiles, 1):
            parts += f"{before}{AROUND}<row_{row}_col_{column}>", tile
            before = ""
        before = "\n"
    return parts
