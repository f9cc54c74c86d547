"""MoonViT, the vision transformer of Kimi-VL and Kimi K2.5: images of any size, with learned
embeddings of places that are interpolated, and heads turned by column and row.

Weights: `patch_embed.{proj, pos_emb}`, `encoder.blocks.<i>.{norm0, wqkv, wo, norm1, mlp.{fc0,
fc1}}` and `encoder.final_layernorm`, all but `pos_emb` with biases.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary, RotaryTable, bind_grid_rotary
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import Defaults, positive_int, square_side
from pagemill.models.vision.grid_rotary import COLUMN, ROW
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.place_embeddings import PlaceTable, cubic_shares, place_embeddings
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_EPS = 1e-5
_MLP = MlpParts(up=("fc0",), down="fc1", gated=False, bias=True)
# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "patch_size": 14,
    "init_pos_emb_height": 64,
    "init_pos_emb_width": 64,
    "merge_kernel_size": [2, 2],
}


class MoonVitTower(GridVisionTower):
    """One tower. What a model merges is what `hidden` returns."""

    kinds = ("moonvit", "kimi_k25")
    width_key = "hidden_size"
    row_by_row = True

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        sizes = {
            "depth": config["num_hidden_layers"],
            "num_heads": config["num_attention_heads"],
            "spatial_merge_size": square_side(config, "merge_kernel_size"),
            "temporal_patch_size": 1,
        }
        super().__init__({**config, **sizes})
        self._intermediate = positive_int(config, "intermediate_size")
        height, width = (
            positive_int(config, f"init_pos_emb_{side}") for side in ("height", "width")
        )
        if height != width:
            raise ModelConfigError(
                f"init_pos_emb_height is {height} and init_pos_emb_width {width}; they must be"
                " equal"
            )
        self.place_table = PlaceTable.of(
            height**2, "the square of init_pos_emb_height,", cubic_shares
        )

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [T, hidden], normalized; they are not merged."""
        x, places = self.embed(weights, inputs, bias=True)
        assert places is not None
        name = "patch_embed.pos_emb"
        x = ops.add(x, place_embeddings(weights, name, places, self.hidden_size))
        rotary = self.rotary(weights, inputs)
        for layer in range(self.layers):
            x = self._layer(weights, f"encoder.blocks.{layer}", x, rotary)
        return norm.layer_norm(weights, "encoder.final_layernorm", x, _EPS)

    def rotary(self, weights: Weights, inputs: EncoderInputs) -> Rotary:
        """Each frequency turns two pairs, one by the column and one by the row; a pair is two
        features that follow each other."""
        assert inputs.grid_positions is not None
        table = RotaryTable(tuple(f for each in self._frequencies for f in (each, each)))
        dims = (COLUMN, ROW) * len(self._frequencies)
        positions = inputs.grid_positions
        return bind_grid_rotary(weights, "inv_freq", table, dims, positions, interleaved=True)

    def _layer(self, weights: Weights, prefix: str, x: Tensor, rotary: Rotary) -> Tensor:
        y = norm.layer_norm(weights, f"{prefix}.norm0", x, _EPS)
        q, k, v = attention.project_qkv(weights, [f"{prefix}.wqkv"], y, self.shape, bias=True)
        y = attention.attend_both_ways(*rotary(q, k), v, self.shape)
        x = ops.add(x, linear(weights, f"{prefix}.wo", y, (self.hidden_size,), bias=True))
        y = norm.layer_norm(weights, f"{prefix}.norm1", x, _EPS)
        kind = ActivationKind.GELU_TANH
        return ops.add(x, mlp(weights, f"{prefix}.mlp", y, self._intermediate, kind, _MLP))
