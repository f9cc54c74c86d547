"""nanochat: norms without weights, also of the embeddings and of rotated q and k, squared ReLU
without gates, bounded logits; rotary angles are negative.

Weights as Llama's, without norms, with `mlp.{fc1,fc2}`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import RotaryTable
from pagemill.models.base import Config, StepInputs
from pagemill.models.config_keys import activation, number
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class NanochatModel(Decoder):
    """One nanochat model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.rotary = [_turned_back(table) for table in self.rotary]
        qk_norm = QkNorm(self.sizes.norm_eps, weight=False, rotated=True)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False)
        self.activation = activation(config, "hidden_act", "relu2")
        self.logits_cap = number(config, "final_logit_softcapping", 15.0)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self.norm(weights, "", super().embed(weights, inputs))

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.rms_norm(weights, name, x, self.sizes.norm_eps, weight=False)


def _turned_back(table: RotaryTable | None) -> RotaryTable | None:
    if table is None:
        return None
    return replace(table, inv_freq=tuple(-frequency for frequency in table.inv_freq))
