"""Layers of BART's kind: attention among tokens, in decoders also to an encoder's rows, and a
feed-forward part; each is added to what it reads, with a layer norm in front of it or behind.

Weights of a layer, by the names of `LayerNames`: `{self_attn, encoder_attn}.{q,k,v,out}_proj`,
`fc1`, `fc2`, and the norms `self_attn_layer_norm`, `encoder_attn_layer_norm` and
`final_layer_norm`.
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


@dataclass(frozen=True, slots=True)
class LayerNames:
    """What a family calls the parts of layers: the attention among tokens and that to an encoder's
    rows, their projections of queries, keys, values and results, the norms of these and of the
    feed-forward part, and its two linear layers."""

    own: str = "self_attn"
    cross: str = "encoder_attn"
    query: str = "q_proj"
    key: str = "k_proj"
    value: str = "v_proj"
    output: str = "out_proj"
    own_norm: str = "self_attn_layer_norm"
    cross_norm: str = "encoder_attn_layer_norm"
    last_norm: str = "final_layer_norm"
    feed_forward: tuple[str, str] = ("fc1", "fc2")


@dataclass(frozen=True, slots=True)
class LayerForm:
    """What all layers of a stack have in common. `shape` is that of this rank's heads; `norm_first`
    puts norms in front of the parts; `key_bias`: keys have biases, as queries and values do."""

    shape: AttentionShape
    intermediate_size: int
    activation: ops.ActivationKind
    norm_first: bool
    key_bias: bool = True
    names: LayerNames = LayerNames()

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

    def project(self, part: str, name: str, x: Tensor) -> Tensor:
        """x [N, H] -> queries, keys or values [N, heads, head_dim] of the attention `part`."""
        form = self._form
        bias = form.key_bias or name != form.names.key
        rows = form.shape.features(form.shape.heads)
        name = f"{self._prefix}.{part}.{name}"
        return linear(self._weights, name, x, form.heads, bias=bias, rows=rows)

    def output(self, part: str, attended: Tensor, width: int) -> Tensor:
        """attended [N, heads * head_dim] -> [N, width]."""
        name = f"{self._prefix}.{part}.{self._form.names.output}"
        return attention.output(self._weights, name, attended, self._form.shape, width, bias=True)

    def feed_forward(self, x: Tensor) -> Tensor:
        form, (up, down) = self._form, self._form.names.feed_forward
        parts = MlpParts(up=(up,), down=down, gated=False, bias=True)
        return mlp(self._weights, self._prefix, x, form.intermediate_size, form.activation, parts)


def encoder_layer(weights: Weights, prefix: str, x: Tensor, form: LayerForm) -> Tensor:
    """x [T, H], texts each of one request -> [T, H]."""
    layer, names = _Layer(weights, prefix, form), form.names

    def attended(y: Tensor) -> Tensor:
        parts = (names.query, names.key, names.value)
        q, k, v = (layer.project(names.own, part, y) for part in parts)
        y = attention.attend_both_ways(q, k, v, form.shape)
        return layer.output(names.own, y, x.width)

    x = layer.added(x, names.own_norm, attended)
    return layer.added(x, names.last_norm, layer.feed_forward)


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
    layer, names = _Layer(weights, prefix, form), form.names
    cache = weights.trace.cache(cache_name, weights.trace.kv_group(), form.heads)
    scale = form.shape.scale

    def among_text(y: Tensor) -> Tensor:
        keys, values = (
            rows.joined(
                layer.project(names.own, part, y),
                layer.project(names.cross, part, encoded),
            )
            for part in (names.key, names.value)
        )
        ops.kv_write(keys, values, cache)
        q = layer.project(names.own, names.query, y)
        return layer.output(names.own, attend(rows, q, cache, scale), x.width)

    def to_encoded(y: Tensor) -> Tensor:
        if observe is not None:
            observe(y)
        q = layer.project(names.cross, names.query, y)
        y = attend(rows, q, cache, scale, cross=True)
        return layer.output(names.cross, y, x.width)

    x = layer.added(x, names.own_norm, among_text)
    x = layer.added(x, names.cross_norm, to_encoded)
    return layer.added(x, names.last_norm, layer.feed_forward)
