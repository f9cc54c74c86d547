"""Command R (`CohereForCausalLM`): both branches read one layer norm without bias; interleaved
rotary pairs, scaled logits.

Weights as Llama's, without `post_attention_layernorm`; the head is tied.
"""

from __future__ import annotations

from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config
from pagemill.models.config_keys import number, refuse
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class CohereModel(Decoder):
    """One Command R model."""

    def __init__(self, config: Config) -> None:
        refuse(config, "use_qk_norm")
        super().__init__(config, tied_by_default=True, eps=("layer_norm_eps", 1e-5))
        self.parallel = True
        self.interleaved = True
        self.logits_scale = number(config, "logit_scale", 0.0625)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.layer_norm(weights, name, x, self.sizes.norm_eps, bias=False)
