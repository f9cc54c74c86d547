"""Layers of BART's kind: attention among tokens, in decoders also to an encoder's rows, and a
feed-forward part; each is added to what it reads, with a layer norm in front of it or behind.

Weights of a layer: `{self_attn, encoder_attn}.{q,k,v,out}_proj`, `fc1`, `fc2`, and the norms
`self_attn_layer_norm`, `encoder_attn_layer_norm` and `final_layer_norm`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.cross_attention import DecoderRows, attend
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.ops.trace import Tensor

EPS = 1e-5  # of all norms; not in configurations
_MLP = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)


@dataclass(frozen=True, slots=True)
class LayerForm:
    """What all layers of a stack have in common. `shape` is that of this rank's heads; `norm_first`
    puts norms in front of the parts; `key_bias`: keys have biases, as queries and values do."""

    shape: AttentionShape
    intermediate_size: int
    activation: ops.ActivationKind
    norm_first: bool
    key_bias: bool = True

    @property
    def heads(self) -> tuple[int, int]:
        """The shape of a row of queries, keys or values."""
        features = self.shape.features(self.shape.heads).size
        return features // self.shape.head_dim, self.shape.head_dim


class _Layer:
    """One layer, whose weights have `prefix` in front of their names."""

    def __init__(self, weights: Weights, prefix: str, form: LayerForm) -> None:
        self._weights, self._prefix, self._form = weights, prefix, form

    def added(self, x: Tensor, norm_name: str, part: Callable[[Tensor], Tensor]) -> Tensor:
        """x [N, H] plus what `part` makes of it; before or after that it is normalized."""
        name = f"{self._prefix}.{norm_name}"
        if self._form.norm_first:
            return ops.add(x, part(norm.layer_norm(self._weights, name, x, EPS)))
        return norm.layer_norm(self._weights, name, ops.add(x, part(x)), EPS)

    def project(self, name: str, x: Tensor) -> Tensor:
        """x [N, H] -> queries, keys or values [N, heads, head_dim]."""
        form = self._form
        bias = form.key_bias or not name.endswith("k_proj")
        rows = form.shape.features(form.shape.heads)
        name = f"{self._prefix}.{name}"
        return linear(self._weights, name, x, form.heads, bias=bias, rows=rows)

    def output(self, name: str, attended: Tensor, width: int) -> Tensor:
        """attended [N, heads * head_dim] -> [N, width]."""
        name = f"{self._prefix}.{name}"
        return attention.output(self._weights, name, attended, self._form.shape, width, bias=True)

    def feed_forward(self, x: Tensor) -> Tensor:
        form = self._form
        return mlp(self._weights, self._prefix, x, form.intermediate_size, form.activation, _MLP)


def encoder_layer(weights: Weights, prefix: str, x: Tensor, form: LayerForm) -> Tensor:
    """x [T, H], texts each of one request -> [T, H]."""
    layer = _Layer(weights, prefix, form)

    def attended(y: Tensor) -> Tensor:
        q, k, v = (layer.project(f"self_attn.{which}_proj", y) for which in "qkv")
        y = attention.attend_both_ways(q, k, v, form.shape)
        return layer.output("self_attn.out_proj", y, x.width)

    x = layer.added(x, "self_attn_layer_norm", attended)
    return layer.added(x, "final_layer_norm", layer.feed_forward)


def decoder_layer(
    weights: Weights,
    prefix: str,
    cache_name: str,
    x: Tensor,
    encoded: Tensor,
    rows: DecoderRows,
    form: LayerForm,
    observe: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """x [text_rows, H], encoded [media_rows, H] -> [text_rows, H]. `observe` gets what the cross
    attention reads of the text, [text_rows, H]."""
    layer = _Layer(weights, prefix, form)
    cache = weights.trace.cache(cache_name, weights.trace.kv_group(), form.heads)
    scale = form.shape.scale

    def among_text(y: Tensor) -> Tensor:
        keys, values = (
            rows.joined(
                layer.project(f"self_attn.{which}_proj", y),
                layer.project(f"encoder_attn.{which}_proj", encoded),
            )
            for which in "kv"
        )
        ops.kv_write(keys, values, cache)
        q = layer.project("self_attn.q_proj", y)
        return layer.output("self_attn.out_proj", attend(rows, q, cache, scale), x.width)

    def to_encoded(y: Tensor) -> Tensor:
        if observe is not None:
            observe(y)
        q = layer.project("encoder_attn.q_proj", y)
        y = attend(rows, q, cache, scale, cross=True)
        return layer.output("encoder_attn.out_proj", y, x.width)

    x = layer.added(x, "self_attn_layer_norm", among_text)
    x = layer.added(x, "encoder_attn_layer_norm", to_encoded)
    return layer.added(x, "final_layer_norm", layer.feed_forward)
