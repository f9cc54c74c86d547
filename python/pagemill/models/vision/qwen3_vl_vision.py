"""Qwen3-VL's vision transformer: learned embeddings of places, which fit an image of any size, and
results of several layers.

Weights: those of grid_vision.py, `patch_embed.proj.bias`, `pos_embed`, `blocks.<i>.{norm1, norm2,
mlp.{linear_fc1, linear_fc2}}`, `merger.{norm, linear_fc1, linear_fc2}` and the same in
`deepstack_merger_list.<i>`; Qwen3-Omni's mergers have other names.
"""

from __future__ import annotations

from typing import ClassVar

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, EncoderInputs
from pagemill.models.config_keys import Defaults, activation, positive_int
from pagemill.models.vision.deep_layers import deep_layers
from pagemill.models.vision.grid_vision import EPS, GridVisionTower
from pagemill.models.vision.place_embeddings import PlaceTable, linear_shares, place_embeddings
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_MLP = MlpParts(up=("linear_fc1",), down="linear_fc2", gated=False, bias=True)
# Those of the configuration's class.
_DEFAULTS = {"deepstack_visual_indexes": [8, 16, 24], "num_position_embeddings": 2304}


class Qwen3VlVisionTower(GridVisionTower):
    """One tower. Its results are the last layer's, and behind them those of `deep_layers`. A
    subclass names other modules: the norm and both linear layers of a merger, and the list of those
    of `deep_layers`."""

    kinds = ("qwen3_vl_vision", "qwen3_vl", "qwen3_vl_moe_vision", "qwen3_vl_moe")
    merger: ClassVar[tuple[str, str, str]] = ("norm", "linear_fc1", "linear_fc2")
    deep_mergers: ClassVar[str] = "deepstack_merger_list"

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        super().__init__(config)
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "gelu_pytorch_tanh")
        places = positive_int(config, "num_position_embeddings")
        self.place_table = PlaceTable.of(places, "num_position_embeddings", linear_shares)
        self.deep_layers = deep_layers(config, self.layers)

    @property
    def result_width(self) -> int:
        return self.width * (1 + len(self.deep_layers))

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x, places = self.embed(weights, inputs, bias=True)
        assert places is not None
        x = ops.add(x, place_embeddings(weights, "pos_embed", places, self.hidden_size))
        rotary, squares = self.rotary(weights, inputs), inputs.media.tokens
        results: list[Tensor] = []
        for layer in range(self.layers):
            x = self._layer(weights, layer, x, rotary)
            if layer in self.deep_layers:
                results.append(self._merge_deep(weights, len(results), x, squares))
        y = norm.layer_norm(weights, f"merger.{self.merger[0]}", x, EPS)
        y = ops.select_rows(y, squares, count=self.merge**2)
        y = self._project(weights, "merger", y)
        return ops.concat(y, *results) if results else y

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        prefix = f"blocks.{layer}"
        y = norm.layer_norm(weights, f"{prefix}.norm1", x, EPS)
        x = ops.add(x, self.attend(weights, layer, y, rotary))
        y = norm.layer_norm(weights, f"{prefix}.norm2", x, EPS)
        y = mlp(weights, f"{prefix}.mlp", y, self._intermediate, self._activation, _MLP)
        return ops.add(x, y)

    def _merge_deep(self, weights: Weights, index: int, x: Tensor, squares: Tensor) -> Tensor:
        """x [T, hidden] -> [media_rows, width]: squares are normalized as a whole."""
        name = f"{self.deep_mergers}.{index}"
        y = ops.select_rows(x, squares, count=self.merge**2)
        y = norm.layer_norm(weights, f"{name}.{self.merger[0]}", y, EPS)
        return self._project(weights, name, y)

    def _project(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        _, first, second = self.merger
        y = linear(weights, f"{name}.{first}", x, (x.width,), bias=True)
        y = ops.activation(y, ActivationKind.GELU)
        return linear(weights, f"{name}.{second}", y, (self.width,), bias=True)


class Qwen3OmniVisionTower(Qwen3VlVisionTower):
    """That of Qwen3-Omni."""

    kinds = ("qwen3_omni_moe_vision_encoder", "qwen3_omni_moe")
    merger = ("ln_q", "mlp.0", "mlp.2")
    deep_mergers = "merger_list"
