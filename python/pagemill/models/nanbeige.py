"""Nanbeige 4.2: Llama whose layers run `num_loops` times, each time behind the last norm unless
`skip_loop_final_norm`.

Weights as Llama's.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, layer_loops, refuse
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor

# What the configuration's class knows, too.
_OTHERS = (
    "emb_neighbor_num",
    "enable_depth_attention",
    "enable_double_loop_split",
    "enable_hyper_connection",
    "enable_mhc",
    "insert_ngram_layer_idx",
    "loop_middle_layers",
    "loop_share_kv",
    "ngram_insert_all_layers",
    "qk_layernorm",
)


class NanbeigeModel(Decoder):
    """One Nanbeige model. A layer of each loop counts as one of its own, with its own cache."""

    def __init__(self, config: Config) -> None:
        refuse(config, *_OTHERS)
        super().__init__(config)
        self._stored = self.sizes.layers
        loops = layer_loops(config, "num_loops", 1, self._stored)
        self.windows = tuple(self.windows) * loops
        self.rotary = tuple(self.rotary) * loops
        self.sizes = replace(self.sizes, layers=loops * self._stored)
        self._norms_loops = not flag(config, "skip_loop_final_norm", False)

    def prefix(self, layer: int) -> str:
        return super().prefix(layer % self._stored)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if self._norms_loops and layer and layer % self._stored == 0:
            x = self.norm(weights, self.names.norm, x)
        return super().layer(weights, layer, x, rotary)
