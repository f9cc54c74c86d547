"""Nemotron-H: layers of one norm and one branch each, a Mamba-2 mixer, an attention without
positions, a feed-forward layer or experts, none with gates.

Weights: `backbone.layers.<i>.{norm, mixer.*}`: of a mixer `layers.state_space`, of an attention
`{q,k,v,o}_proj`, of a feed-forward layer `{up,down}_proj`, of experts those of DeepSeek V3 without
gates, and `fc1_latent_proj` and `fc2_latent_proj` around the chosen ones if `moe_latent_size`;
`backbone.{embeddings,norm_f}`, `lm_head` unless tied; `mtp.layers.<i>` are those of a draft head.

Steps are not clamped, as `time_step_limit` says. `transformers` takes `time_step_min` for the
lower limit, in prompts and not in generated tokens.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.moe import Experts, chosen_experts, route
from pagemill.layers.rotary import Rotary
from pagemill.layers.state_space import MixerShape, mixer
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Defaults, activation, as_list, flag, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_grouped_routing
from pagemill.models.mtp_layer import NEMOTRON_MTP
from pagemill.models.state_space_keys import check_mixer
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_MIXER, _ATTENTION, _MLP, _EXPERTS = "mixer", "attention", "mlp", "experts"
# Names in `layers_block_type`, newer and older, and letters of `hybrid_override_pattern`.
_KINDS = {
    "linear_attention": _MIXER,
    "mamba": _MIXER,
    "M": _MIXER,
    "full_attention": _ATTENTION,
    "attention": _ATTENTION,
    "*": _ATTENTION,
    "mlp": _MLP,
    "-": _MLP,
    "moe": _EXPERTS,
    "E": _EXPERTS,
}


class NemotronHModel(Decoder):
    """One Nemotron-H model."""

    names = DecoderNames(
        embedding="backbone.embeddings",
        layers="backbone.layers",
        norm="backbone.norm_f",
        attention="mixer",
        feed_forward="mixer",
    )

    def __init__(self, config: Config) -> None:
        self._kinds = _read_kinds(config, "layers_block_type", "hybrid_override_pattern")
        self._mtp_kinds = _read_mtp_kinds(config)
        config = Defaults(config, {"num_hidden_layers": len(self._kinds)})
        super().__init__(config, eps=("layer_norm_epsilon", 1e-5))
        if self.sizes.layers != len(self._kinds):
            raise ModelConfigError(
                f"num_hidden_layers is {self.sizes.layers}, and {len(self._kinds)} are described"
            )
        self.ignored = {**self.ignored, r"mtp\..*": "drafts alone use it (mtp)"}
        self.rotary = (None,) * self.sizes.layers
        self.windows = (0,) * (self.sizes.layers + len(self._mtp_kinds))
        self.activation = activation(config, "mlp_hidden_act", "relu2")
        bias = flag(config, "mlp_bias", False)
        self.mlp_parts = MlpParts(up=("up_proj",), gated=False, bias=bias)
        self._mixer = _read_mixer(config) if _MIXER in self._kinds else None
        has_experts = _EXPERTS in (*self._kinds, *self._mtp_kinds)
        self._experts = _read_experts(config, self.activation) if has_experts else None
        latent = self._experts is not None and config.get("moe_latent_size") is not None
        self._latent = positive_int(config, "moe_latent_size") if latent else None
        last = max(len(self._mtp_kinds) - 1, 0)
        self.mtp = replace(NEMOTRON_MTP, norm=NEMOTRON_MTP.norm.format(last))

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        return self._layer(weights, layer, self._kinds[layer], x)

    def mtp_layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """Several layers of the model."""
        if _MIXER in self._mtp_kinds:
            raise ModelConfigError("mtp_layers_block_type: Mamba layers in it are not supported")
        for index, kind in enumerate(self._mtp_kinds):
            x = self._layer(weights, layer + index, kind, x)
        return x

    def _layer(self, weights: Weights, layer: int, kind: str, x: Tensor) -> Tensor:
        """A norm and the branch of this `kind`, which is added."""
        y = self.norm(weights, f"{self.prefix(layer)}.norm", x)
        return ops.add(x, self._branch(weights, layer, kind, y))

    def _branch(self, weights: Weights, layer: int, kind: str, x: Tensor) -> Tensor:
        prefix = f"{self.prefix(layer)}.mixer"
        if kind == _MIXER and self._mixer is not None:
            return mixer(weights, prefix, x, self._mixer, self.sizes.norm_eps, layer)
        if kind == _EXPERTS and self._experts is not None:
            return self._moe(weights, prefix, x, self._experts)
        if kind == _ATTENTION:
            return self.attention(weights, layer, x, None)
        return self.feed_forward(weights, layer, x)

    def _moe(self, weights: Weights, prefix: str, x: Tensor, experts: Experts) -> Tensor:
        """The chosen experts may read and write vectors of fewer features than x has."""
        bias = self.mlp_parts.bias
        y, chosen = x, route(weights, prefix, x, experts)
        if self._latent is not None:
            y = linear(weights, f"{prefix}.fc1_latent_proj", x, (self._latent,), bias=bias)
        y = chosen_experts(weights, prefix, y, chosen, experts)
        if self._latent is not None:
            y = linear(weights, f"{prefix}.fc2_latent_proj", y, (x.width,), bias=bias)
        name = f"{prefix}.shared_experts"
        shared = mlp(weights, name, x, experts.shared, experts.kind, self.mlp_parts)
        return ops.add(y, shared)


def _read_kinds(config: Config, key: str, pattern: str) -> list[str]:
    """What each layer is, as `key` lists or the letters of `pattern` say."""
    value: object = config.get(key) or config.get(pattern)
    entries = list(value) if isinstance(value, str) else as_list(value) or []
    known = [_KINDS[entry] for entry in entries if isinstance(entry, str) and entry in _KINDS]
    if not known or len(known) != len(entries):
        raise ModelConfigError(
            f"{key} must list layers, each one of linear_attention, full_attention, mlp and moe, or"
            f" {pattern} have a letter for each, M, *, - or E; it is {shown(value)}"
        )
    return known


def _read_mtp_kinds(config: Config) -> list[str]:
    """What the layers are that predict a further token; none if the model has none."""
    if not config.get("num_nextn_predict_layers"):
        return []
    default = Defaults(config, {"mtp_hybrid_override_pattern": "*E"})
    return _read_kinds(default, "mtp_layers_block_type", "mtp_hybrid_override_pattern")


def _read_mixer(config: Config) -> MixerShape:
    bias = flag(config, "use_bias", False)
    shape = MixerShape(
        heads=positive_int(config, "mamba_num_heads", 128),
        head_dim=positive_int(config, "mamba_head_dim", 64),
        groups=positive_int(config, "n_groups", 8),
        states=positive_int(config, "ssm_state_size", 128),
        taps=positive_int(config, "conv_kernel", 4),
        bias=bias,
        output_bias=bias,
        conv_bias=flag(config, "use_conv_bias", True),
    )
    check_mixer(config, shape, "mamba_hidden_act")
    return shape


def _read_experts(config: Config, kind: ops.ActivationKind) -> Experts:
    count = positive_int(config, "n_routed_experts", 8)
    return Experts(
        count,
        positive_int(config, "moe_intermediate_size"),
        kind,
        read_grouped_routing(config, count),
        gate=None,
        bias="gate.e_score_correction_bias",
        shared=positive_int(config, "moe_shared_expert_intermediate_size"),
    )
