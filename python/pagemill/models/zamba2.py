"""Zamba2: Mamba-2 layers, some of which first add the result of a transformer block that reads the
embeddings as well. Few such blocks take turns, each with low-rank adapters for every place.

Weights: `model.layers.<i>.{input_layernorm, mamba.*}` (`layers.state_space`), or with a block
`model.layers.<i>.{mamba_decoder.*, linear}`; the blocks in the layers that have them first, as
`shared_transformer.{input_layernorm, pre_ff_layernorm, self_attn.{q,k,v,o}_proj,
feed_forward.{gate_up,down}_proj}` with `self_attn.linear_{q,k,v}_adapter_list.<place>` and
`feed_forward.gate_up_proj_adapter_list.<place>`; `model.{embed_tokens,final_layernorm}`.

Steps are not clamped. `transformers` takes `time_step_min` for a lower limit, in prompts and not in
generated tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill import ops
from pagemill.layers import attention
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear, row_parallel
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import stack
from pagemill.layers.state_space import MixerShape, mixer
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import (
    Defaults,
    Renamed,
    activation,
    as_list,
    flag,
    positive_int,
    refuse,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.state_space_keys import check_mixer
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_MIXERS, _HYBRID = ("linear_attention", "mamba"), "hybrid"
_MIXER_NORM_EPS = 1e-5  # independent of rms_norm_eps


class Zamba2Model(Decoder):
    """One Zamba2 model."""

    names = DecoderNames(norm="model.final_layernorm")

    def __init__(self, config: Config) -> None:
        refuse(config, "use_long_context")
        hidden, heads = (
            positive_int(config, key) for key in ("hidden_size", "num_attention_heads")
        )
        # Blocks read two vectors of the hidden size.
        sizes = {"head_dim": 2 * hidden // heads, "intermediate_size": 4 * hidden}
        renamed = Renamed(config, {"head_dim": "attention_head_dim"})
        super().__init__(Defaults(renamed, sizes), tied_by_default=True, eps=("rms_norm_eps", 1e-5))
        self.activation = activation(config, "hidden_act", "gelu")
        self.attention_scale = (self.sizes.head_dim / 2) ** -0.5
        if not flag(config, "use_mem_rope", False):
            self.rotary = (None,) * self.sizes.layers
        self._places = _read_places(config, self.sizes.layers)
        self._blocks = positive_int(config, "num_mem_blocks", 1)
        self._bias = flag(config, "add_bias_linear", False)
        self._rank = positive_int(config, "adapter_rank", 128)
        self._adapts_attention = flag(config, "use_shared_attention_adapter", False)
        self._mixer = _read_mixer(config, hidden, bias=self._bias)
        if self._adapts_attention and self.sizes.kv_heads != self.sizes.heads:
            raise ModelConfigError(
                f"num_key_value_heads={self.sizes.kv_heads} with use_shared_attention_adapter is"
                " not supported by this family"
            )

    def hidden_by(
        self, weights: Weights, inputs: StepInputs, rotary: Sequence[Rotary | None]
    ) -> Tensor:
        embedded = self.embed(weights, inputs)

        def layer(i: int, x: Tensor) -> Tensor:
            prefix, y = self.prefix(i), x
            if i in self._places:
                both = ops.concat(x, embedded)
                added = self._block(weights, i, both, rotary[i])
                y = ops.add(x, linear(weights, f"{prefix}.linear", added, (x.width,)))
                prefix = f"{prefix}.mamba_decoder"
            y = self.norm(weights, f"{prefix}.input_layernorm", y)
            mixed = mixer(weights, f"{prefix}.mamba", y, self._mixer, _MIXER_NORM_EPS, i)
            return ops.add(x, mixed)

        return self.norm(
            weights, self.names.norm, stack(weights, embedded, self.sizes.layers, layer)
        )

    def _block(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """x [T, 2 H] -> [T, H]: the block whose turn it is."""
        place = self._places.index(layer)
        name = f"{self.prefix(self._places[place % self._blocks])}.shared_transformer"
        x = self.norm(weights, f"{name}.input_layernorm", x)
        y = self._attend(weights, f"{name}.self_attn", x, (layer, place), rotary)
        y = self.norm(weights, f"{name}.pre_ff_layernorm", y)
        return self._mlp(weights, f"{name}.feed_forward", y, place)

    def _attend(
        self,
        weights: Weights,
        name: str,
        x: Tensor,
        at: tuple[int, int],
        rotary: Rotary | None,
    ) -> Tensor:
        """x [T, 2 H] -> [T, H], for a layer, which is this place of blocks."""
        sizes, (layer, place), out = self.sizes, at, f"{name}.o_proj"
        shape = attention.divide(weights, sizes.attention(scale=self.attention_scale), out)

        def project(what: str, heads: int) -> Tensor:
            rows = shape.features(heads)
            row_shape = (rows.size // sizes.head_dim, sizes.head_dim)
            y = linear(weights, f"{name}.{what}_proj", x, row_shape, rows=rows)
            if not self._adapts_attention:
                return y
            adapter = f"{name}.linear_{what}_adapter_list.{place}"
            return ops.add(y, self._adapt(weights, adapter, x, row_shape, rows))

        q, k, v = (project(what, n) for what, n in zip("qkv", _heads(shape), strict=True))
        if rotary is not None:
            q, k = rotary(q, k)
        y = attention.attend(q, k, v, shape, f"kv{layer}", weights.kv_scales(name))
        return attention.output(weights, out, y, shape, sizes.hidden_size)

    def _mlp(self, weights: Weights, name: str, x: Tensor, place: int) -> Tensor:
        size, down = self.sizes.intermediate_size, f"{name}.down_proj"
        part = weights.shard.part(size, weights.block_elements(f"{down}.weight"))

        def project(index: int) -> Tensor:
            rows = Part(index * size + part.begin, index * size + part.end, 2 * size)
            fused, row_shape = f"{name}.gate_up_proj", (part.size,)
            y = linear(weights, fused, x, row_shape, bias=self._bias, rows=rows)
            return ops.add(
                y, self._adapt(weights, f"{fused}_adapter_list.{place}", x, row_shape, rows)
            )

        y = ops.gated_activation(project(0), project(1), self.activation)
        return row_parallel(weights, down, y, x.width, columns=part, bias=self._bias)

    def _adapt(
        self, weights: Weights, name: str, x: Tensor, row_shape: Sequence[int], rows: Part
    ) -> Tensor:
        """Some rows of the adapter's result."""
        low = linear(weights, f"{name}.0", x, (self._rank,))
        return linear(weights, f"{name}.1", low, row_shape, rows=rows)


def _heads(shape: attention.AttentionShape) -> tuple[int, int, int]:
    return shape.heads, shape.kv_heads, shape.kv_heads


def _read_places(config: Config, layers: int) -> list[int]:
    """The layers with a block."""
    types = as_list(config.get("layers_block_type")) or []
    if len(types) != layers or not all(kind in (*_MIXERS, _HYBRID) for kind in types):
        raise ModelConfigError(
            f"layers_block_type must list {layers} layers, linear_attention or hybrid, it is"
            f" {shown(config.get('layers_block_type'))}"
        )
    return [layer for layer, kind in enumerate(types) if kind == _HYBRID]


def _read_mixer(config: Config, hidden_size: int, *, bias: bool) -> MixerShape:
    inner = positive_int(config, "mamba_expand", 2) * hidden_size
    heads = positive_int(config, "n_mamba_heads", 8)
    head_dim = positive_int(config, "mamba_headdim", inner // heads)
    if heads * head_dim != inner:
        raise ModelConfigError(f"{inner} features do not make {heads} heads of {head_dim}")
    shape = MixerShape(
        heads,
        head_dim,
        positive_int(config, "mamba_ngroups", 1),
        states=positive_int(config, "mamba_d_state", 64),
        taps=positive_int(config, "mamba_d_conv", 4),
        bias=bias,
        output_bias=bias,
        conv_bias=True,
    )
    check_mixer(config, shape, "mamba_hidden_act")
    return shape
