"""Cohere's models with images, Command A Vision and Aya Vision: SigLIP's vision tower, squares of
patches merged in front of a gated projector, and Command R.

Weights: `vision_tower.` or `vision_tower.vision_model.` (siglip_vision.py),
`multi_modal_projector.{layernorm, linear_1, linear_2}`, of which Aya Vision alone has the first,
and `language_model.` (cohere2.py, cohere.py). All may be behind `model.`.

An image is divided into tiles of the tower's size, and if there are several, the whole image,
resized to one tile, comes behind them. Each tile attends to itself alone.
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
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import Defaults, epsilon, inner_config, positive_int, token_id
from pagemill.models.multimodal.decoder_part import (
    WithDecoder,
    decoder_part,
    ignored_in_part,
    parts_weights,
    tower_weights,
)
from pagemill.models.vision.siglip_vision import SiglipVisionTower
from pagemill.models.vision.vision_layers import feature_depths
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_TEXTS = ("cohere", "cohere2")
_TOWER = "siglip_vision_model"
_TOWER_NAME = r"(model\.)?vision_tower\.(vision_model\.)?"
_START, _END = "<|START_OF_IMG|>", "<|END_OF_IMG|>"
_BEHIND_TILE = "<|IMG_LINE_BREAK|>"
_TILE, _WHOLE = "TILE", "TILE_GLOBAL"
# Those of the configuration's classes: published checkpoints may leave them out.
_VISION_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}


class Cohere2VisionModel(WithDecoder):
    """One Command A Vision model: a `TiledModel` (base.py)."""

    placeholder_key = "image_token_id"

    def __init__(self, config: Config) -> None:
        config = Defaults(config, {"tie_word_embeddings": True})
        self._text = decoder_part(config, _TEXTS)
        self._merge = positive_int(config, "downsample_factor", 2)
        vision = Defaults(inner_config(config, "vision_config"), _VISION_DEFAULTS)
        kind = vision.get("model_type", _TOWER)
        if kind != _TOWER:
            raise ModelConfigError(
                f"a vision tower of type {shown(kind)} in this architecture is not supported;"
                f" known: {_TOWER}"
            )
        self._tower = SiglipVisionTower(vision, merge=self._merge)
        self._gated, rest = divmod(self._projected(config), 2)
        if rest:
            raise ModelConfigError(
                f"alignment_intermediate_size is {2 * self._gated + 1}, of which a half cannot gate"
                " the other"
            )
        self._placeholder = token_id(config, self.placeholder_key, self._text.traits.vocab_size)
        self.ignored = {
            rf"{_TOWER_NAME}head\..*": "the vectors of all patches are used",
            **ignored_in_part(self._text),
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        width = self._text.traits.hidden_size
        media = self._tower.grid.media_traits(width=width, placeholder=self._placeholder)
        return replace(self._text.traits, media=media)

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
        parts: list[PreparedMedia | str] = [_START]
        for tile in self._tower.grid.tiles(image):
            parts += tile, _BEHIND_TILE
        return *parts, _END

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.grid.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = parts_weights(weights, "multi_modal_projector.linear_1.weight")
        tower = tower_weights(parts, "vision_tower")
        x = self._patches(tower, inputs)
        x = ops.select_rows(x, inputs.media.tokens, count=self._merge**2)
        return self._project(parts.within("multi_modal_projector."), x)

    def _projected(self, config: Config) -> int:
        """The width of the projector's first layer."""
        return positive_int(config, "alignment_intermediate_size", 36864)

    def _patches(self, tower: Weights, inputs: EncoderInputs) -> Tensor:
        """The vectors of all patches, [T, hidden]."""
        x = self._tower.hidden(tower, inputs.media, inputs.positions, (self._tower.layers,))
        return self._tower.post_norm(tower, x)

    def _project(self, weights: Weights, x: Tensor) -> Tensor:
        """Merged patches [M, squares * hidden] -> embeddings [M, width]."""
        x = linear(weights, "linear_1", x, (2 * self._gated,), bias=True)
        x, gate = ops.split(x, self._gated)
        x = ops.gated_activation(gate, x, ActivationKind.SILU)
        return linear(weights, "linear_2", x, (self._text.traits.hidden_size,), bias=True)


class AyaVisionModel(Cohere2VisionModel):
    """One Aya Vision model."""

    placeholder_key = "image_token_index"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        strategy = config.get("vision_feature_select_strategy", "full")
        if strategy != "full":
            raise ModelConfigError(
                f"vision_feature_select_strategy is {shown(strategy)}, but the vision tower has no"
                " class token: it must be 'full'"
            )
        depths = feature_depths(config, (-1,), self._tower.layers)
        if len(depths) != 1:
            raise ModelConfigError("vision_feature_layer must be one layer in this architecture")
        self._depth = depths[0]
        self._eps = epsilon(config, "adapter_layer_norm_eps", 1e-6)
        unread, why = self._tower.unread
        self.ignored = {rf"{_TOWER_NAME}{unread}\..*": why, **self.ignored}

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
        *tiles, whole = self._tower.grid.tiles(image)
        parts: list[PreparedMedia | str] = [_START]
        for number, tile in enumerate(tiles, 1):
            parts += f"{_TILE}_{number}", tile
        return *parts, _WHOLE, whole, _END

    def _projected(self, config: Config) -> int:
        return positive_int(config, "alignment_intermediate_size", self._text.traits.hidden_size)

    def _patches(self, tower: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(tower, inputs.media, inputs.positions, (self._depth,))
        self._tower.claim_rest(tower, self._depth)
        return x

    def _project(self, weights: Weights, x: Tensor) -> Tensor:
        return super()._project(weights, norm.layer_norm(weights, "layernorm", x, self._eps))
