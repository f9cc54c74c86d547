"""Granite 4 (`GraniteMoeHybridForCausalLM`): Mamba-2 layers with some of attention between them,
each followed by a feed-forward layer, which may have experts beside it.

Weights: `model.layers.<i>.{input_layernorm, post_attention_layernorm, shared_mlp.{input_linear,
output_linear}}`, either `self_attn.{q,k,v,o}_proj` or `mamba.*` (`layers.state_space`), and with
experts `block_sparse_moe.{router.layer, input_linear, output_linear}`; `model.{embed_tokens,norm}`,
`lm_head` unless tied. input_linear holds the rows of gate and up.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.moe import Experts, moe, packed_moe
from pagemill.layers.rotary import Rotary
from pagemill.layers.state_space import mixer
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, layer_types, number, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.models.state_space_keys import read_mixer
from pagemill.ops.trace import Tensor

# Names of older and newer checkpoints.
_MIXERS = ("mamba", "linear_attention")
_ATTENTIONS = ("attention", "full_attention")


class GraniteHybridModel(Decoder):
    """One Granite 4 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        sizes = self.sizes
        types = layer_types(config, sizes.layers, _MIXERS + _ATTENTIONS)
        types = types or (_MIXERS[0],) * sizes.layers
        self._is_mixer = tuple(kind in _MIXERS for kind in types)
        inner = positive_int(config, "mamba_expand", 2) * sizes.hidden_size
        self._mixer = read_mixer(config, inner)
        self._shared_size = positive_int(config, "shared_intermediate_size", 1024)
        self._experts = _read_experts(config, sizes.intermediate_size)
        self._fused = flag(config, "gate_and_up_fused", True)
        if self._fused:
            self.mlp_parts = MlpParts(up=("input_linear",), down="output_linear")
        self.attention_scale = number(config, "attention_multiplier", 1.0)
        self.embedding_scale = number(config, "embedding_multiplier", 1.0)
        self.scales_media = True
        self.residual_scale = number(config, "residual_multiplier", 1.0)
        self.logits_scale = 1 / number(config, "logits_scaling", 1.0, least=1e-6)
        if config.get("position_embedding_type") != "rope":
            self.rotary = (None,) * sizes.layers

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if not self._is_mixer[layer]:
            return super().attention(weights, layer, x, rotary)
        name, eps = f"{self.prefix(layer)}.mamba", self.sizes.norm_eps
        return mixer(weights, name, x, self._mixer, eps, layer)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix, kind = self.prefix(layer), ops.ActivationKind.SILU
        name = f"{prefix}.shared_mlp"
        y = mlp(weights, name, x, self._shared_size, kind, self.mlp_parts)
        if self._experts is None:
            return y
        chosen = packed_moe if self._fused else moe
        return ops.add(y, chosen(weights, f"{prefix}.block_sparse_moe", x, self._experts))


def _read_experts(config: Config, intermediate: int) -> Experts | None:
    if not config.get("num_local_experts"):
        return None
    count = positive_int(config, "num_local_experts")
    routing = read_routing(config, count, 2, renormalize=True)
    return Experts(count, intermediate, ops.ActivationKind.SILU, routing)
