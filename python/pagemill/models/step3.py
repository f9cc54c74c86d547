"""Step 3, its text: queries by way of a narrow normalized vector, one KV head, and experts beside a
shared one in most layers.

Weights as Llama's, plus `self_attn.{inter_norm,wq}` behind `q_proj`; in layers with experts
`mlp.gate`, `mlp.experts` as stacks and `mlp.shared_experts`, of which published files have other
names (`weights.published_names`).
"""

from __future__ import annotations

from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.moe import Experts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import Defaults, flag, positive_int, refuse
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.models.step_keys import step_sparse_layers, with_other_names
from pagemill.ops.trace import Tensor


class Step3Model(Decoder):
    """One Step 3 model."""

    def __init__(self, config: Config) -> None:
        refuse(config, "attention_bias", "mlp_bias", "sliding_window")
        defaults = {"num_key_value_heads": 1, "head_dim": 256, "rope_theta": 5e5}
        config = Defaults(with_other_names(config), defaults)
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self._query_dim = positive_int(config, "share_q_dim", self.sizes.head_dim)
        self.is_sparse = step_sparse_layers(config, self.sizes.layers)
        count = positive_int(config, "n_routed_experts", 48)
        renormalize = flag(config, "norm_expert_weight", False)
        self.experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 5120),
            self.activation,
            read_routing(config, count, 3, renormalize=renormalize),
            shared=positive_int(config, "share_expert_dim", 5120),
        )

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        prefix = f"{self.prefix(layer)}.self_attn"
        out, dim = f"{prefix}.o_proj", self.sizes.head_dim
        shape = attention.divide(weights, self.sizes.attention(), out)

        def project(name: str, y: Tensor, heads: int) -> Tensor:
            rows = shape.features(heads)
            return linear(weights, f"{prefix}.{name}", y, (rows.size // dim, dim), rows=rows)

        narrow = linear(weights, f"{prefix}.q_proj", x, (self._query_dim,))
        narrow = norm.rms_norm(weights, f"{prefix}.inter_norm", narrow, self.sizes.norm_eps)
        q = project("wq", narrow, shape.heads)
        k, v = (project(name, x, shape.kv_heads) for name in ("k_proj", "v_proj"))
        q, k = rotary(q, k)
        attended = attention.attend(q, k, v, shape, f"kv{layer}", weights.kv_scales(prefix))
        return attention.output(weights, out, attended, shape, x.width)
