"""StableLM: Llama with layer norms, and rotary pairs on a part of each head.

Weights as Llama's; norms have biases. With norms of queries and keys (12B) those of each head are
tensors of their own, `self_attn.{q,k}_layernorm.norms.<head>`, without biases.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.models.base import Config
from pagemill.models.config_keys import Renamed, flag
from pagemill.models.decoder import Decoder

# Keys of the first checkpoints.
_FIRST_KEYS = {"layer_norm_eps": "norm_eps", "partial_rotary_factor": "rope_pct"}


class StableLmModel(Decoder):
    """One StableLM model."""

    def __init__(self, config: Config) -> None:
        if "norm_eps" in config:
            config = Renamed(config, _FIRST_KEYS)
        super().__init__(config, eps=("layer_norm_eps", 1e-5))
        self.layer_norms = True
        names = ("q_layernorm.norms", "k_layernorm.norms")
        by = QkNorm(self.sizes.norm_eps, names=names, mean=True, each=True, apart=True)
        self.attention_parts = AttentionParts(
            bias=flag(config, "use_qkv_bias", False),
            qk_norm=by if flag(config, "qk_layernorm", False) else None,
        )
        self.parallel = flag(config, "use_parallel_residual", False)
