"""Jamba: Mamba layers with some of attention between them, which have no positions, and experts in
some of the feed-forward layers.

Weights: `model.layers.<i>.{input_layernorm, pre_ff_layernorm}`, either `self_attn.{q,k,v,o}_proj`
or `mamba.*` (`layers.selective`), and `feed_forward.{gate,up,down}_proj`, or with experts
`feed_forward.{router, experts.<i>.{gate,up,down}_proj}`; `model.{embed_tokens,final_layernorm}`,
`lm_head` unless tied.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.moe import Experts
from pagemill.layers.rotary import Rotary
from pagemill.layers.selective import SelectiveShape, StepNorms, selective_mixer
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import flag, number, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_routing
from pagemill.models.state_space_keys import check_silu, step_rank
from pagemill.ops.trace import Tensor


class JambaModel(Decoder):
    """One Jamba model."""

    names = DecoderNames(
        norm="model.final_layernorm",
        feed_forward_norm="pre_ff_layernorm",
        feed_forward="feed_forward",
    )

    def __init__(self, config: Config) -> None:
        check_silu(config)
        super().__init__(config)
        sizes = self.sizes
        self.rotary = (None,) * sizes.layers
        self._attentions = _every(config, "attn_layer", (8, 4), sizes.layers)
        self._mixer = SelectiveShape(
            channels=positive_int(config, "mamba_expand", 2) * sizes.hidden_size,
            states=positive_int(config, "mamba_d_state", 16),
            rank=step_rank(config, "mamba_dt_rank", sizes.hidden_size),
            taps=positive_int(config, "mamba_d_conv", 4),
            bias=flag(config, "mamba_proj_bias", False),
            conv_bias=flag(config, "mamba_conv_bias", True),
            norms=StepNorms(sizes.norm_eps, weights=True),
        )
        count = positive_int(config, "num_experts", 16)
        routing = read_routing(config, count, min(2, count), renormalize=False)
        if count > 1:
            sparse = _every(config, "expert_layer", (2, 1), sizes.layers)
            self.is_sparse = [layer in sparse for layer in range(sizes.layers)]
            self.experts = Experts(
                count, sizes.intermediate_size, self.activation, routing, router="router"
            )

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if layer in self._attentions:
            return super().attention(weights, layer, x, rotary)
        return selective_mixer(weights, f"{self.prefix(layer)}.mamba", x, self._mixer, layer)


def _every(config: Config, name: str, default: tuple[int, int], layers: int) -> frozenset[int]:
    """The layers from `<name>_offset` on, `<name>_period` apart."""
    period = positive_int(config, f"{name}_period", default[0])
    offset = number(config, f"{name}_offset", default[1], least=0)
    if offset >= period:
        raise ModelConfigError(f"{name}_offset must be less than {name}_period, {period}")
    return frozenset(layer for layer in range(layers) if layer % period == offset)
