"""What Gemma 4 12B has in place of a vision transformer: a linear layer of large patches of images
of any size, and learned embeddings of their columns and rows, between norms.

Weights: `patch_ln1`, `patch_dense`, `patch_ln2`, `pos_norm`, all with biases, and `pos_embedding`
[places, 2, hidden], of columns and rows in turn.

A patch has its colors pixel by pixel; patches come row by row.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import Defaults, epsilon, positive_int
from pagemill.models.vision.grid_vision import GridPatches
from pagemill.models.vision.place_embeddings import share_products
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_KIND = "gemma4_unified_vision"
_EPS = 1e-5
_AXES = 2
_DIGIT = 32
_MAX_PLACES = 2048
# Those of the configuration's class: published checkpoints leave them out.
_DEFAULTS = {
    "patch_size": 16,
    "pooling_kernel_size": 3,
    "mm_embed_dim": 3840,
    "mm_posemb_size": 1120,
}


class Gemma4UnifiedVisionEmbedder(GridPatches):
    """One embedder."""

    turns = False

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        if config.get("model_type", _KIND) != _KIND:
            raise ModelConfigError(
                f"an embedder of images of type {shown(config['model_type'])} is not supported;"
                f" known: {_KIND}"
            )
        side = positive_int(config, "patch_size") * positive_int(config, "pooling_kernel_size")
        super().__init__(patch=side, merge=1, colors=3, frames=1)
        self._hidden = positive_int(config, "mm_embed_dim")
        self._eps = epsilon(config, "rms_norm_eps", 1e-6)
        self._table = positive_int(config, "mm_posemb_size")
        self._digits = _AXES * min(self._table, _MAX_PLACES) // _DIGIT
        if not self._digits:
            raise ModelConfigError(
                f"mm_posemb_size is {self._table}; it must be at least {_DIGIT // _AXES}"
            )

    @property
    def place_channels(self) -> int:
        return _AXES * (self._digits + _DIGIT)

    def places(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        """Of the column's embedding, and of the row's, two digits of its number, each a 1 among
        zeros."""
        most = self._digits * _DIGIT // _AXES
        if max(height, width) > most:
            raise ValueError(f"an image has at most {most} patches in a row or a column")
        rows, columns = _AXES * cells.T
        digits = [
            (place[:, None] == np.arange(count))
            for number in (columns, rows + 1)
            for place, count in ((number // _DIGIT, self._digits), (number % _DIGIT, _DIGIT))
        ]
        return np.concatenate(digits, 1, dtype=np.float32)

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [media_rows, hidden]."""
        patches, places = ops.split(inputs.media.rows, self._patch_elements)
        x = norm.layer_norm(weights, "patch_ln1", patches, _EPS)
        x = linear(weights, "patch_dense", x, (self._hidden,), bias=True)
        x = norm.layer_norm(weights, "patch_ln2", x, _EPS)
        x = norm.layer_norm(weights, "pos_norm", ops.add(x, self._placed(weights, places)), _EPS)
        x = norm.rms_norm(weights, "", x, self._eps, weight=False)
        return ops.select_rows(x, inputs.media.tokens)

    def _placed(self, weights: Weights, places: Tensor) -> Tensor:
        """The learned embedding of each patch's column plus that of its row, [T, hidden]."""
        axes = ops.split(places, places.width // _AXES)
        numbers = ops.add(*(share_products(weights, axis, self._digits) for axis in axes))
        total = _AXES * self._table
        table = weights.turned_matrix(
            "pos_embedding",
            (self._hidden, total),
            columns=Part(0, self._digits * _DIGIT, total),
            stored=(self._table, _AXES, self._hidden),
        )
        return ops.linear(numbers, table)
