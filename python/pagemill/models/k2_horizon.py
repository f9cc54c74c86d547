"""K2 Horizon (dense): Llama whose norms divide a vector into groups, each normalized by itself.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import positive_int, refuse, window_or_full
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class K2HorizonModel(Decoder):
    """One dense K2 Horizon model."""

    def __init__(self, config: Config) -> None:
        refuse(config, "attention_gate_func", "mova_num_experts", "num_experts", "query_key_norm")
        super().__init__(config)
        hidden, dim = self.sizes.hidden_size, self.sizes.head_dim
        if positive_int(config, "rope_head_dim", dim) != dim:
            raise ModelConfigError("rope_head_dim must be head_dim in this family")
        self._groups = positive_int(config, "layernorm_num_groups", 1)
        if hidden % self._groups:
            raise ModelConfigError(
                f"layernorm_num_groups={self._groups} does not divide hidden_size={hidden}"
            )
        self.windows = (window_or_full(config),) * self.sizes.layers

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        width, weight = x.width, weights.vector(f"{name}.weight", x.width)
        shape = (self._groups, width // self._groups)
        x = ops.concat(*ops.split(x, width // 2), row_shape=shape)
        return ops.rms_norm(x, weight, eps=self.sizes.norm_eps, row_shape=(width,))
