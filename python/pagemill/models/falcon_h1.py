"""Falcon-H1: Llama whose layers have an attention and a Mamba-2 mixer side by side, with a factor
for every branch and for what each projection yields.

Weights: `model.layers.<i>.{input_layernorm, self_attn.{q,k,v,o}_proj, pre_ff_layernorm,
feed_forward.{gate,up,down}_proj}` and `mamba.*` (`layers.state_space`; without a norm unless
`mamba_rms_norm`); `model.{embed_tokens,final_layernorm}`, `lm_head` unless tied.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary
from pagemill.layers.state_space import Gating, MixerScales, MixerShape, mixer
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, number, numbers, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.state_space_keys import read_mixer
from pagemill.ops.trace import Tensor


class FalconH1Model(Decoder):
    """One Falcon-H1 model."""

    names = DecoderNames(
        norm="model.final_layernorm",
        feed_forward_norm="pre_ff_layernorm",
        feed_forward="feed_forward",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.embedding_scale = number(config, "embedding_multiplier", 1.0)
        self.logits_scale = number(config, "lm_head_multiplier", 1.0)
        # Factors of keys are factors of scores.
        key_scale = number(config, "key_multiplier", 1.0)
        self.attention_scale = self.sizes.head_dim**-0.5 * key_scale
        gate_scale, self._down_scale = numbers(config, "mlp_multipliers", 2)
        self.mlp_parts = replace(self.mlp_parts, gate_scale=gate_scale)
        self._attention_scales = (
            number(config, "attention_in_multiplier", 1.0),
            number(config, "attention_out_multiplier", 1.0),
        )
        self._mixer_scales = (
            number(config, "ssm_in_multiplier", 1.0),
            number(config, "ssm_out_multiplier", 1.0),
        )
        self._mixer = _read_mixer(config, self.sizes.hidden_size)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        into, out = self._attention_scales
        attended = super().attention(weights, layer, ops.scale(x, into), rotary)
        return ops.add(ops.scale(attended, out), self._mix(weights, layer, x))

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        return ops.scale(super().feed_forward(weights, layer, x), self._down_scale)

    def _mix(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        into, out = self._mixer_scales
        name, eps = f"{self.prefix(layer)}.mamba", self.sizes.norm_eps
        return ops.scale(mixer(weights, name, ops.scale(x, into), self._mixer, eps, layer), out)


def _read_mixer(config: Config, hidden_size: int) -> MixerShape:
    if config.get("mamba_d_ssm") is None:
        inner = positive_int(config, "mamba_expand", 2) * hidden_size
    else:
        inner = positive_int(config, "mamba_d_ssm")
    gating = Gating.NO_NORM
    if flag(config, "mamba_rms_norm", False):
        before = flag(config, "mamba_norm_before_gate", True)
        gating = Gating.NORM_BEFORE if before else Gating.NORM_BEHIND
    return replace(
        read_mixer(config, inner),
        output_bias=flag(config, "projectors_bias", False),
        gating=gating,
        scales=MixerScales(*numbers(config, "ssm_multipliers", 5)),
    )
