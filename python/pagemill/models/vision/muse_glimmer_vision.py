"""Muse Glimmer's vision transformer: images of any size, with learned embeddings of places that are
interpolated, heads turned by row and column, and layers that attend within windows of the image.

Weights: `patch_embedder.{patch_embedding, position_embedding_table}`, `ln_pre`, in layer i
`layers.<i>.{norm1, attn.{q_proj, k_proj, v_proj, proj}, norm2, mlp.{fc1, fc2}}`, and `ln_post`; the
first two have no biases.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import FULL, Defaults, activation, layer_types, positive_int
from pagemill.models.vision.grid_rotary import COLUMN, ROW, grid_rotary
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.place_embeddings import PlaceTable, faded_shares, place_embeddings
from pagemill.ops.trace import Tensor

_EPS = 1e-5
_MLP = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
_WINDOWS = "window_attention"
# Those of the configuration's class.
_DEFAULTS = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 50,
    "num_attention_heads": 16,
    "patch_size": 14,
    "patch_temporal": 2,
    "merge_size": 2,
    "pos_emb_height": 32,
    "pos_emb_width": 32,
}


class MuseGlimmerVisionTower(GridVisionTower):
    """One tower. What a model merges is what `hidden` returns. Windows have as many patches in a
    row as the table of places."""

    kinds = ("muse_glimmer_vision",)
    width_key = "hidden_size"
    qkv = ("q_proj", "k_proj", "v_proj")
    row_by_row = True

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        sizes = {
            "depth": config["num_hidden_layers"],
            "num_heads": config["num_attention_heads"],
            "spatial_merge_size": config["merge_size"],
            "temporal_patch_size": config["patch_temporal"],
        }
        super().__init__({**config, **sizes})
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "gelu")
        height, width = (positive_int(config, f"pos_emb_{side}") for side in ("height", "width"))
        self.place_table = PlaceTable.of(height**2, "the square of pos_emb_height,", faded_shares)
        if height != width or height % self.merge:
            raise ModelConfigError(
                f"pos_emb_height is {height} and pos_emb_width {width}; they must be equal, and"
                f" whole squares of {self.merge} patches"
            )
        self.window = height // self.merge
        self._types = layer_types(config, self.layers, (_WINDOWS, FULL)) or self._default_types

    @property
    def _default_types(self) -> list[str]:
        """Every fourth layer, and the last one, attend to the whole image."""
        full = [layer for layer in range(self.layers) if layer % 4 == 3] + [self.layers - 1]
        return [FULL if layer in full else _WINDOWS for layer in range(self.layers)]

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [T, hidden], normalized; they are not merged."""
        patches, places = ops.split(inputs.media.rows, self.channels - self.place_channels)
        x = linear(weights, "patch_embedder.patch_embedding", patches, (self.hidden_size,))
        name = "patch_embedder.position_embedding_table"
        x = ops.add(x, place_embeddings(weights, name, places, self.hidden_size))
        x = norm.layer_norm(weights, "ln_pre", x, _EPS)
        rotary = self.rotary(weights, inputs)
        for layer, kind in enumerate(self._types):
            x = self._layer(weights, f"layers.{layer}", x, rotary, kind)
        return norm.layer_norm(weights, "ln_post", x, _EPS)

    def rotary(self, weights: Weights, inputs: EncoderInputs) -> Rotary:
        """Half of the pairs rotate by the column, half by the row."""
        assert inputs.grid_positions is not None
        by = {COLUMN: self._frequencies, ROW: self._frequencies}
        return grid_rotary(weights, inputs.grid_positions, by)

    def _layer(self, weights: Weights, prefix: str, x: Tensor, rotary: Rotary, kind: str) -> Tensor:
        y = norm.layer_norm(weights, f"{prefix}.norm1", x, _EPS)
        q, k, v = self.project(weights, f"{prefix}.attn", y)
        window = self.window * self.merge if kind == _WINDOWS else 0
        y = attention.attend_both_ways(*rotary(q, k), v, self.shape, grid_window=window)
        x = ops.add(x, linear(weights, f"{prefix}.attn.proj", y, (self.hidden_size,), bias=True))
        y = norm.layer_norm(weights, f"{prefix}.norm2", x, _EPS)
        y = mlp(weights, f"{prefix}.mlp", y, self._intermediate, self._activation, _MLP)
        return ops.add(x, y)
