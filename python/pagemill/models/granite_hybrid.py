"""Granite 4 (`GraniteMoeHybridForCausalLM`): Mamba-2 layers with some of attention between them,
each followed by a feed-forward layer, which may have experts beside it.

Weights: `model.layers.<i>.{input_layernorm, post_attention_layernorm, shared_mlp.{input_linear,
output_linear}}`, either `self_attn.{q,k,v,o}_proj` or `mamba.*` (`layers.state_space`), and with
experts `block_sparse_moe.{router.layer, input_linear, output_linear}`; `model.{embed_tokens,norm}`,
`lm_head` unless tied. input_linear holds the rows of gate and up.
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import decoder, mlp, norm
from pagemill.layers.base import Weights
from pagemill.layers.moe import Experts, packed_moe
from pagemill.layers.rotary import Rotary, bind_rotary
from pagemill.layers.state_space import MixerShape, mixer
from pagemill.models import causal_lm
from pagemill.models.base import (
    IGNORED_IN_DECODERS,
    Config,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import (
    DecoderSizes,
    flag,
    layer_types,
    make_rotary_table,
    number,
    positive_int,
    read_routing,
)
from pagemill.models.state_space_keys import check_mixer
from pagemill.ops.trace import Tensor

# Names of older and newer checkpoints.
_MIXERS = ("mamba", "linear_attention")
_ATTENTIONS = ("attention", "full_attention")


class GraniteHybridModel:
    """One Granite 4 model."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        self._sizes = sizes = DecoderSizes.read(config, tied_by_default=False)
        types = layer_types(config, sizes.layers, _MIXERS + _ATTENTIONS)
        types = types or (_MIXERS[0],) * sizes.layers
        self._is_mixer = tuple(kind in _MIXERS for kind in types)
        self._mixer = _read_mixer(config, sizes.hidden_size)
        self._shared_size = positive_int(config, "shared_intermediate_size", 1024)
        self._experts = _read_experts(config, sizes.intermediate_size)
        self._attention_bias = flag(config, "attention_bias", False)
        self._attention_scale = number(config, "attention_multiplier", 1.0)
        self._embedding_scale = number(config, "embedding_multiplier", 1.0)
        self._residual_scale = number(config, "residual_multiplier", 1.0)
        self._logits_divisor = number(config, "logits_scaling", 1.0, least=1e-6)
        rotates = config.get("position_embedding_type") == "rope"
        self._rotary = make_rotary_table(config, sizes.head_dim) if rotates else None

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return self._sizes.traits

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        rotary = None
        if self._rotary is not None:
            rotary = bind_rotary(
                weights, "inv_freq", self._rotary, inputs.positions, interleaved=False
            )
        return causal_lm.hidden(
            weights,
            inputs,
            self._sizes,
            lambda i, x: self._layer(weights, i, x, rotary),
            scale=self._embedding_scale,
        )

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        scaled = ops.scale(rows, 1 / self._logits_divisor)
        return causal_lm.logits(weights, scaled, self._sizes)

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        sizes, prefix = self._sizes, f"model.layers.{layer}"
        normed = norm.rms_norm(weights, f"{prefix}.input_layernorm", x, sizes.rms_norm_eps)
        if self._is_mixer[layer]:
            eps = sizes.rms_norm_eps
            mixed = mixer(weights, f"{prefix}.mamba", normed, self._mixer, eps, layer)
        else:
            mixed = decoder.rotary_attention(
                weights,
                f"{prefix}.self_attn",
                normed,
                sizes.attention(scale=self._attention_scale),
                rotary,
                f"kv{layer}",
                bias=self._attention_bias,
                output_bias=self._attention_bias,
            )
        x = ops.add(x, ops.scale(mixed, self._residual_scale))
        normed = norm.rms_norm(weights, f"{prefix}.post_attention_layernorm", x, sizes.rms_norm_eps)
        y = self._feed_forward(weights, prefix, normed)
        return ops.add(x, ops.scale(y, self._residual_scale))

    def _feed_forward(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        kind = ops.ActivationKind.SILU
        y = mlp.packed_gated_mlp(weights, f"{prefix}.shared_mlp", x, self._shared_size, kind)
        if self._experts is None:
            return y
        return ops.add(y, packed_moe(weights, f"{prefix}.block_sparse_moe", x, self._experts))


def _read_experts(config: Config, intermediate: int) -> Experts | None:
    if not config.get("num_local_experts"):
        return None
    count = positive_int(config, "num_local_experts")
    routing = read_routing(config, count, 2, renormalize=True)
    return Experts(count, intermediate, ops.ActivationKind.SILU, routing)


def _read_mixer(config: Config, hidden_size: int) -> MixerShape:
    heads = positive_int(config, "mamba_n_heads", 128)
    inner = positive_int(config, "mamba_expand", 2) * hidden_size
    automatic = config.get("mamba_d_head") in (None, "auto")
    head_dim = inner // heads if automatic else positive_int(config, "mamba_d_head")
    if heads * head_dim != inner:
        raise ModelConfigError(f"{inner} features do not make {heads} heads of {head_dim}")
    shape = MixerShape(
        heads,
        head_dim,
        positive_int(config, "mamba_n_groups", 1),
        states=positive_int(config, "mamba_d_state", 256),
        taps=positive_int(config, "mamba_d_conv", 4),
        bias=flag(config, "mamba_proj_bias", False),
        conv_bias=flag(config, "mamba_conv_bias", True),
    )
    check_mixer(config, shape)
    return shape
