"""PLaMo 2: layers of Mamba-2 with some of attention between them, norms behind the branches whose
weights count from less than 1, and norms of each head of queries and keys.

Weights: `model.layers.layers.<i>.{pre_mixer_norm, post_mixer_norm, pre_mlp_norm, post_mlp_norm,
mlp.{gate_up_proj,down_proj}}`; of a layer of attention `mixer.{qkv_proj,q_weight,k_weight,o_proj}`,
of another `mixer.{in_proj,conv1d,bcdt_proj,dt_norm_weight,B_norm_weight,C_norm_weight,dt_proj,
dt_bias,A_log,D,out_proj}`, whose in_proj has the rows of gate and x head by head.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import divide_evenly, linear, row_parallel
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.layers.state_space import state_cache
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Renamed, flag, layer_numbers, number, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops import ActivationKind
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_BEHIND_MIXER = 5**-1  # of what others add to their weights, these norms add to theirs
_BEHIND_MLP = 5**-1.5
_QK_EPS = 1e-6


class Plamo2Model(Decoder):
    """One PLaMo 2 model."""

    names = DecoderNames(
        layers="model.layers.layers",
        attention_norm="pre_mixer_norm",
        attention="mixer",
        feed_forward_norm="pre_mlp_norm",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(
            Renamed(config, {"head_dim": "hidden_size_per_head"}, {"head_dim": 128}),
            tied_by_default=True,
        )
        self.norm_offset = number(config, "norm_weight_offset", 1.0)
        self.mlp_parts = MlpParts(up=("gate_up_proj",))
        layers = self.sizes.layers
        self._attentions = _attentions(config, layers)
        # A query sees so many tokens before it.
        window = positive_int(config, "attention_window_size", 2048)
        whole = layer_numbers(config, "full_attention_idx")
        self.windows = [0 if layer in whole else window + 1 for layer in range(layers)]
        self._heads = positive_int(config, "mamba_num_heads", 64)
        self._states = positive_int(config, "mamba_d_state", 64)
        self._taps = positive_int(config, "mamba_d_conv", 4)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix, eps = self.prefix(layer), self.sizes.norm_eps

        def norm_behind(name: str, y: Tensor, share: float) -> Tensor:
            offset = share * self.norm_offset
            return norm.rms_norm(weights, f"{prefix}.{name}", y, eps, weight_offset=offset)

        y = self.norm(weights, f"{prefix}.{self.names.attention_norm}", x)
        if layer in self._attentions:
            y = self.attention(weights, layer, y, rotary)
        else:
            y = self._mixer(weights, layer, y)
        x = ops.add(x, norm_behind("post_mixer_norm", y, _BEHIND_MIXER))
        y = self.norm(weights, f"{prefix}.{self.names.feed_forward_norm}", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, norm_behind("post_mlp_norm", y, _BEHIND_MLP))

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        prefix = f"{self.prefix(layer)}.mixer"
        out = f"{prefix}.o_proj"
        shape = attention.divide(weights, self.sizes.attention(window=self.windows[layer]), out)
        q, k, v = attention.project_qkv(weights, [f"{prefix}.qkv_proj"], x, shape)

        def normalize(y: Tensor, name: str, heads: int) -> Tensor:
            part = shape.features(heads)
            stored = (heads, shape.head_dim)
            weight = weights.vector(f"{prefix}.{name}", part.total, part=part, stored=stored)
            return ops.rms_norm(y, weight, eps=_QK_EPS)

        q = normalize(q, "q_weight", shape.heads)
        q, k = rotary(q, normalize(k, "k_weight", shape.kv_heads))
        attended = attention.attend(q, k, v, shape, f"kv{layer}", weights.kv_scales(prefix))
        return attention.output(weights, out, attended, shape, x.width)

    def _mixer(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        """x [T, H] -> [T, H]: Mamba-2 whose B, C and dt are made of what the convolution yields.
        Ranks divide the heads."""
        prefix, dim = f"{self.prefix(layer)}.mixer", self.sizes.head_dim
        own = self._own_heads(weights, prefix)
        heads, inner = own.size, own.times(dim)
        both = linear(weights, f"{prefix}.in_proj", x, (heads, 2 * dim), rows=own.times(2 * dim))
        gate, y = ops.split(both, dim, row_shapes=((1, inner.size), (inner.size,)))
        order = () if own.whole else inner.indices
        stored = (inner.total, 1, self._taps)
        taps = weights.small(f"{prefix}.conv1d.weight", stored, row_order=order)
        conv = state_cache(x.trace, f"conv{layer}", (self._taps - 1, inner.size))
        y = ops.causal_conv(y, taps, None, conv)
        b, c, dt = self._steps(weights, prefix, y, own)
        a_log, d, dt_bias = (
            weights.vector(f"{prefix}.{name}", self._heads, part=own)
            for name in ("A_log", "D", "dt_bias")
        )
        state = state_cache(x.trace, f"scan{layer}", (heads, self._states, dim))
        y = ops.state_space_scan(ops.concat(y, b, c), dt, a_log, d, dt_bias, state)
        y = ops.gated_activation(gate, y, ActivationKind.SILU)
        return row_parallel(weights, f"{prefix}.out_proj", y, x.width, columns=inner)

    def _own_heads(self, weights: Weights, prefix: str) -> Part:
        """The heads of this rank's mixer: all if the columns of a matrix do not divide evenly."""
        outs, dim = [f"{prefix}.{name}" for name in ("bcdt_proj", "out_proj")], self.sizes.head_dim
        return divide_evenly(weights, outs, self._heads, dim, "state-space layers, by heads")

    def _steps(
        self, weights: Weights, prefix: str, x: Tensor, own: Part
    ) -> tuple[Tensor, Tensor, Tensor]:
        """B and C [T, states] of the heads of all ranks, and dt [T, own heads]."""
        states, rank = self._states, max(64, self.sizes.hidden_size // 16)
        columns = own.times(self.sizes.head_dim)
        y = row_parallel(weights, f"{prefix}.bcdt_proj", x, 2 * states + rank, columns=columns)
        b, rest = ops.split(y, states)
        c, dt = ops.split(rest, states)
        b, c, dt = (
            ops.rms_norm(
                part,
                weights.vector(f"{prefix}.{name}_norm_weight", part.width),
                eps=self.sizes.norm_eps,
            )
            for name, part in (("B", b), ("C", c), ("dt", dt))
        )
        return b, c, linear(weights, f"{prefix}.dt_proj", dt, (own.size,), rows=own)


def _attentions(config: Config, layers: int) -> frozenset[int]:
    """The layers of attention: one in the middle of each `mamba_step`, or the last of fewer layers
    than that."""
    if not flag(config, "mamba_enabled", True):
        return frozenset(range(layers))
    step = positive_int(config, "mamba_step", 2)
    if step < 2:
        raise ModelConfigError("mamba_step must be at least 2")
    if layers <= step // 2:
        return frozenset({layers - 1})
    return frozenset(range(step // 2, layers, step))
