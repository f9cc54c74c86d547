"""Granite 4 Vision: SigLIP's tower, of which several layers are read by projectors of their own
(window_queries.py), and Granite. What a projector leaves is added in front of a layer of the text;
tokens of images have no other embeddings.

Weights: `vision_tower.` as LLaVA's, `layerwise_projectors.<i>` in the order of
`deepstack_layer_map`, `spatial_projectors.<i>`, of one corner of squares each, `image_newline`, and
`language_model.` (granite.py). All may be behind `model.`, with `lm_head` beside it.

Images come in tiles, as LLaVA-Next's, of which each 2 x 2 patches have a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Self

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.media_rows import side_by_side
from pagemill.models.base import Config, EncoderInputs, ModelConfigError, ModelTraits
from pagemill.models.config_keys import as_list, inner_config
from pagemill.models.multimodal.decoder_part import parts_weights, tower_weights
from pagemill.models.multimodal.llava_next import LlavaNextModel
from pagemill.models.vision.siglip_vision import SiglipVisionTower, tower_config
from pagemill.models.vision.window_queries import MERGE, WindowQueries, squares_of_window
from pagemill.ops.concat import MAX_INPUTS
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_CORNERS = MERGE**2
_DEFAULT_TARGETS = [12, 15, 18, 21]


class _Projector(NamedTuple):
    """Its name, the depth in the tower that it reads, and the corner if it reads one."""

    name: str
    depth: int
    corner: int | None = None


class Granite4VisionModel(LlavaNextModel):
    """One Granite 4 Vision model."""

    texts = ("granite4_vision_text",)

    def __init__(self, config: Config) -> None:
        vision = tower_config(config)
        super().__init__(config)
        side = squares_of_window(config, "downsample_rate")
        self._tower = SiglipVisionTower(vision, merge=MERGE, window=side)
        self._queries = WindowQueries(
            {"layer_norm_eps": 1e-12, **inner_config(config, "qformer_config")},
            hidden=self._tower.hidden_size,
            grid=self._tower.grid,
            side=side,
        )
        self._projectors = _projectors(config, self._tower.layers)
        layers = sorted(self._projectors)
        if layers[-1] >= self._text.sizes.layers:
            raise ModelConfigError(
                f"deepstack_layer_map and spatial_target_layers have layer {layers[-1]}, but the"
                f" language model has {self._text.sizes.layers}"
            )
        self._text.scales_media = False
        self._text.added_behind = [layer - 1 for layer in layers if layer > 0]

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def _tokens(self) -> int:
        return self._tower.grid.tokens

    @property
    def _slots(self) -> int:
        """Embeddings of the text's width that a row has: that of the token, and those that are
        added."""
        return 1 + len([layer for layer in self._projectors if layer > 0])

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        width = self._slots * self._text.traits.hidden_size
        return replace(traits, media=replace(traits.media, width=width))

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = self._parts(weights)
        tower = tower_weights(parts, "vision_tower")
        depths = sorted({each.depth for each in self._projectors.values()})
        states = self._tower.hidden(tower, inputs.media, inputs.positions, depths)
        self._tower.claim_rest(tower, depths[-1])
        by_depth = dict(zip(depths, side_by_side(states, self._tower.hidden_size), strict=True))
        places = self._queries.places(weights, inputs)
        width = self._text.traits.hidden_size
        projected: dict[int, Tensor] = {}
        for layer in sorted(self._projectors):
            name, depth, corner = self._projectors[layer]
            projected[layer] = self._queries(
                parts.within(f"{name}."),
                by_depth[depth],
                places,
                inputs.media.tokens,
                width,
                corner=corner,
            )
        slots = list(projected.values())
        if 0 not in projected:
            slots.insert(0, ops.scale(slots[0], 0.0))
        return ops.concat_all(slots)

    def row_end(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        row = super().row_end(weights, inputs)
        first = row if 0 in self._projectors else ops.scale(row, 0.0)
        return ops.concat_all([first, *[row] * (self._slots - 1)])

    def _parts(self, weights: Weights) -> Weights:
        return parts_weights(weights, "image_newline")


def _projectors(config: Config, layers: int) -> Mapping[int, _Projector]:
    """Those of each layer of the text.

    Raises:
        ModelConfigError: they are not listed, or two are of one layer.
    """

    def depth(value: object) -> int:
        if type(value) is not int or not -layers - 1 <= value <= layers:
            raise ModelConfigError(f"the tower has {layers} layers, and none is {shown(value)}")
        return value if value >= 0 else layers + 1 + value

    key = "deepstack_layer_map"
    pairs = [as_list(pair) or [] for pair in (as_list(config.get(key)) or [])[: MAX_INPUTS + 1]]
    targets = as_list(config.get("spatial_target_layers", _DEFAULT_TARGETS)) or []
    listed = [pair[1] for pair in pairs if len(pair) == 2] + targets
    valid = all(type(layer) is int and layer >= 0 for layer in listed)
    if not valid or len(set(listed)) != len(pairs) + _CORNERS or not 0 < len(pairs) <= MAX_INPUTS:
        raise ModelConfigError(
            f"{key} must list 1 to {MAX_INPUTS} pairs of a layer of the tower and one of the text,"
            f" and spatial_target_layers {_CORNERS} others of the text"
        )
    found = {
        pair[1]: _Projector(f"layerwise_projectors.{index}", depth(pair[0]))
        for index, pair in enumerate(pairs)
    }
    spatial = depth(config.get("spatial_vision_layer", -1))
    for corner, layer in enumerate(targets):
        found[layer] = _Projector(f"spatial_projectors.{corner}", spatial, corner)
    return found
