"""Ouro: Llama with norms in front of and behind each branch, whose layers run `total_ut_steps`
times, each time behind the last norm. All steps are taken: none ends early.

Weights as Llama's, plus `input_layernorm_2` and `post_attention_layernorm_2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import layer_loops, sliding_windows
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class OuroModel(Decoder):
    """One Ouro model. A layer of each step counts as one of its own, with its own cache."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.early_exit_gate\..*": "no step ends early",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._stored = self.sizes.layers
        steps = layer_loops(config, "total_ut_steps", 4, self._stored)
        self.attention_parts = AttentionParts()
        self.windows = tuple(sliding_windows(config, self._stored)) * steps
        self.rotary = tuple(self.rotary) * steps
        self.sizes = replace(self.sizes, layers=steps * self._stored)

    def prefix(self, layer: int) -> str:
        return super().prefix(layer % self._stored)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        if layer and layer % self._stored == 0:
            x = self.norm(weights, self.names.norm, x)
        y = self.norm(weights, f"{prefix}.input_layernorm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.input_layernorm_2", y))
        y = self.norm(weights, f"{prefix}.post_attention_layernorm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm_2", y))
