"""Granite Docling: Idefics3 with Granite, whose squares of patches have fixed embeddings of places,
and results of several layers of the tower that are added in the first layers of the decoder.

Weights: `model.vision_model.` (siglip_vision.py), `model.vision_model.connector.{ln_in, ln_mid,
mlp_fc2, ln_out}`, of squares `coarse.projection` and `coarse.deepstack_mergers.<i>.{layer_norm,
linear_1, linear_2}`, `model.text_model.` and `lm_head` (granite.py). Smaller squares, `fine.`, and
what chooses them for dense pages, `density_router.`, are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.media_rows import side_by_side
from pagemill.models.base import Config, EncoderInputs, MediaInputs, ModelConfigError, ModelTraits
from pagemill.models.config_keys import Defaults, inner_config
from pagemill.models.multimodal.idefics3 import Idefics3Model, image_parts, tile_parts
from pagemill.models.vision.deep_layers import deep_layers
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_EPS = 1e-5
_MAX_SQUARES = 64  # in a row of a tile
_SLOWEST = 10_000.0  # the wave length of the last feature of a place, over that of the first
# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {"image_token_id": 100337, "tie_word_embeddings": True}
_VISION = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "image_size": 512,
    "patch_size": 16,
    "scale_factor": 4,
    "deepstack_visual_indexes": [3, 7, 10],
}


class GraniteDoclingModel(Idefics3Model):
    """One Granite Docling model."""

    texts = ("granite_docling_text",)
    towers = ("granite_docling_vision",)

    def __init__(self, config: Config) -> None:
        vision = Defaults(inner_config(config, "vision_config"), _VISION)
        inner = {"vision_config": vision, "scale_factor": vision["scale_factor"]}
        super().__init__(Defaults({**config, **inner}, _DEFAULTS))
        self.ignored = {
            r"model\.vision_model\.connector\.fine\..*": "squares have one size",
            r"model\.density_router\..*": "squares have one size",
            r"mtp\..*": "further tokens are not predicted",
            **self.ignored,
        }
        self._deep_layers = deep_layers(vision, self._tower.layers)
        layers, width = self._text.sizes.layers, self._text.traits.hidden_size
        if len(self._deep_layers) > layers or width % 4:
            raise ModelConfigError(
                f"the language model has {layers} layers of {width} features: there must be one for"
                f" each of deepstack_visual_indexes, {len(self._deep_layers)}, and a multiple of 4"
            )
        if self._squares > _MAX_SQUARES:
            raise ModelConfigError(
                f"a tile has {self._squares} squares of patches in a row; at most {_MAX_SQUARES}"
                " are supported: see image_size, patch_size and scale_factor of vision_config"
            )

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        media = replace(
            traits.media,
            channels=self._tower.grid.channels + 2 * self._squares,
            width=traits.hidden_size * (1 + len(self._deep_layers)),
            joins_newlines=True,
        )
        return replace(traits, media=media)

    @property
    def _squares(self) -> int:
        """In a row of a tile."""
        return self._tower.grid.side // self._merge

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
        tile_rows, whole = self._tower.grid.tile_rows(image)
        if not tile_rows:
            return *tile_parts([[whole]]), "\n"
        return image_parts(self._tower.grid, image)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """Behind each patch are the column and the row of its square, each a 1 among zeros."""
        found = self._tower.grid.features(image)
        square = np.arange(len(found.rows)) // self._merge**2
        cells = square % self._squares, square // self._squares
        places = [cell[:, None] == np.arange(self._squares) for cell in cells]
        rows = np.concatenate([found.rows, *places], 1, dtype=np.float32)
        return MediaFeatures(rows, found.tokens)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower = weights.within("model.vision_model.")
        squares, hidden = inputs.media.tokens, self._tower.hidden_size
        patches, places = ops.split(inputs.media.rows, self._tower.grid.channels)
        depths = (self._tower.layers, *(layer + 1 for layer in self._deep_layers))
        x = self._tower.hidden(tower, MediaInputs(patches, squares), inputs.positions, depths)
        x, *deep = side_by_side(x, hidden)
        connector = tower.within("connector.")
        x = norm.layer_norm(connector, "ln_in", self._tower.post_norm(tower, x), _EPS)
        x = self._linear(connector, "coarse.projection", self._merged(x, squares))
        x = ops.add(x, self._placed(connector, ops.select_rows(places, squares)))
        x = ops.activation(norm.layer_norm(connector, "ln_mid", x, _EPS), ActivationKind.GELU)
        x = norm.layer_norm(connector, "ln_out", self._linear(connector, "mlp_fc2", x), _EPS)
        added = [
            self._merge_deep(connector, f"coarse.deepstack_mergers.{index}", each, squares)
            for index, each in enumerate(deep)
        ]
        return ops.concat(x, *added) if added else x

    def _merged(self, x: Tensor, squares: Tensor) -> Tensor:
        """x [T, hidden] -> the patches of each square side by side."""
        return ops.select_rows(x, squares, count=self._merge**2)

    def _merge_deep(self, weights: Weights, name: str, x: Tensor, squares: Tensor) -> Tensor:
        """x [T, hidden] -> [media_rows, width]."""
        x = norm.layer_norm(weights, f"{name}.layer_norm", self._merged(x, squares), _EPS)
        x = self._linear(weights, f"{name}.linear_1", x, bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        return self._linear(weights, f"{name}.linear_2", x, bias=True)

    def _linear(self, weights: Weights, name: str, x: Tensor, *, bias: bool = False) -> Tensor:
        return linear(weights, name, x, (self._text.traits.hidden_size,), bias=bias)

    def _placed(self, weights: Weights, places: Tensor) -> Tensor:
        """The embedding of each square's column, and then that of its row: sines, and cosines, of
        its number, at wave lengths of a geometric series."""
        quarter = self._text.traits.hidden_size // 4
        angles = np.outer(_SLOWEST ** -(np.arange(quarter) / quarter), np.arange(self._squares))
        axis = np.concatenate([np.sin(angles), np.cos(angles)])
        zeros = np.zeros_like(axis)
        table = np.block([[axis, zeros], [zeros, axis]])
        return ops.linear(places, weights.constant("places", table.tolist()))
