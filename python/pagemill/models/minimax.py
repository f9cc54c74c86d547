"""MiniMax-Text-01 and M1: lightning attention in most layers, experts, and branches that are added,
with factors, to the norm in front of them.

Weights as Mixtral's; `self_attn` has those of `layers.lightning` in layers of lightning attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.lightning import LightningShape, lightning_attention
from pagemill.layers.moe import Experts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    Renamed,
    as_list,
    layer_types,
    number,
    positive_int,
    refuse,
    window_or_full,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_routing
from pagemill.ops.trace import Tensor

_LINEAR = "linear_attention"
_NORM_EPS = 1e-6  # of lightning attention; not in the configuration
# Keys of the first checkpoints.
_KEYS = {
    "full_attn_alpha_factor": "layernorm_full_attention_alpha",
    "full_attn_beta_factor": "layernorm_full_attention_beta",
    "linear_attn_alpha_factor": "layernorm_linear_attention_alpha",
    "linear_attn_beta_factor": "layernorm_linear_attention_beta",
    "mlp_alpha_factor": "layernorm_mlp_alpha",
    "mlp_beta_factor": "layernorm_mlp_beta",
}


@dataclass(frozen=True, slots=True)
class _Factors:
    """Of x, which a branch is added to, and of the branch."""

    x: float
    branch: float

    @classmethod
    def read(cls, config: Config, name: str) -> Self:
        alpha, beta = (number(config, f"{name}_{which}_factor", 1.0) for which in ("alpha", "beta"))
        return cls(alpha, beta)

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        return ops.add(ops.scale(x, self.x), ops.scale(branch, self.branch))


class MiniMaxModel(Decoder):
    """One MiniMax model with lightning attention."""

    names = DecoderNames(feed_forward="block_sparse_moe")
    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r".*\.self_attn\.(slope_rate|(query|key|diagonal)_decay)": "rates follow from the layer",
    }

    def __init__(self, config: Config) -> None:
        refuse(config, "shared_intermediate_size")
        if "attn_type_list" in config:
            config = Renamed(config, _KEYS)
        dim = positive_int(config, "rotary_dim") if "rotary_dim" in config else None
        super().__init__(config, rotary_dim=dim)
        if dim is not None and dim > self.sizes.head_dim:
            raise ModelConfigError(f"rotary_dim={dim} is more than head_dim={self.sizes.head_dim}")
        layers = self.sizes.layers
        self._types = _layer_types(config, layers)
        self.windows = (window_or_full(config),) * layers
        count = positive_int(config, "num_local_experts", 8)
        self.experts = Experts(
            count,
            self.sizes.intermediate_size,
            self.activation,
            read_routing(config, count, 2, renormalize=True),
            gate="w1",
            up="w3",
            down="w2",
        )
        self._factors = {
            FULL: _Factors.read(config, "full_attn"),
            _LINEAR: _Factors.read(config, "linear_attn"),
        }
        self._mlp_factors = _Factors.read(config, "mlp")

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix, kind = self.prefix(layer), self._types[layer]
        x = self.norm(weights, f"{prefix}.input_layernorm", x)
        if kind == FULL:
            y = self.attention(weights, layer, x, rotary)
        else:
            shape = self._lightning(layer)
            y = lightning_attention(weights, f"{prefix}.self_attn", x, shape, layer)
        x = self._factors[kind].add(x, y)
        x = self.norm(weights, f"{prefix}.post_attention_layernorm", x)
        return self._mlp_factors.add(x, self.feed_forward(weights, layer, x))

    def _lightning(self, layer: int) -> LightningShape:
        """Rates are ALiBi's slopes, and fall from layer to layer."""
        sizes = self.sizes
        factor = 1 - layer / (sizes.layers - 1 + 1e-5) + 1e-5
        slopes = (2.0 ** (-8 * (head + 1) / sizes.heads) for head in range(sizes.heads))
        rates = tuple(slope * factor for slope in slopes)
        return LightningShape(sizes.heads, sizes.head_dim, rates, self.activation, _NORM_EPS)


def _layer_types(config: Config, layers: int) -> tuple[str, ...]:
    """The kind of attention of each layer; in the first checkpoints 1 stands for full."""
    if "attn_type_list" not in config:
        types = layer_types(config, layers, (_LINEAR, FULL))
        return types or tuple(_LINEAR if layer % 2 else FULL for layer in range(layers))
    listed = as_list(config["attn_type_list"])
    if listed is None or len(listed) != layers or not set(listed) <= {0, 1}:
        raise ModelConfigError(f"attn_type_list must list 0 or 1 for each of {layers} layers")
    return tuple(FULL if kind else _LINEAR for kind in listed)
