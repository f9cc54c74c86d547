"""A Q-Former whose learned queries attend to windows of an encoder's vectors: of each window, as
many vectors as there are queries.

Weights: `query` and `qformer.`, with `layernorm` and in its layer i `encoder.layer.<i>.{attention,
crossattention}.{attention.{query,key,value}, output.{dense,LayerNorm}}`, `intermediate_query.dense`
and `output_query.{dense,LayerNorm}`; every `cross_attention_frequency`th layer attends to the
window, the others to queries alone.

A window has as many rows as vectors. A query is computed with the first of the vectors that it
stands for, so that its values have the dimension of embeddings; for attention, queries are
scattered among the window's rows.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import activation, epsilon, layer_count, positive_int
from pagemill.models.vision.margin import MARGIN_COLUMNS, attend_beside_margin, margin_columns
from pagemill.ops.trace import Tensor

_MOST_VECTORS = 4096  # of a window


class WindowQueries:
    """One for windows of `window` vectors of `width` features, of which `rate` each have a
    query."""

    def __init__(self, config: Config, *, window: int, rate: int, width: int) -> None:
        self.window, self.rate = window, rate
        self.queries, rest = divmod(window, rate)
        if rest or window > _MOST_VECTORS:
            raise ModelConfigError(
                f"window_size {window} is not a multiple of {rate}, downsample_rate, up to"
                f" {_MOST_VECTORS}"
            )
        self._width = width
        self._hidden = positive_int(config, "hidden_size")
        self._layers = layer_count(config)
        self._intermediate = positive_int(config, "intermediate_size")
        self._frequency = positive_int(config, "cross_attention_frequency", 2)
        self._activation = activation(config, "hidden_act", "gelu")
        self._eps = epsilon(config, "layer_norm_eps", 1e-12)
        heads = positive_int(config, "num_attention_heads")
        dim, rest = divmod(self._hidden, heads)
        if rest:
            raise ModelConfigError(f"{heads} heads cannot share {self._hidden} features")
        if positive_int(config, "encoder_hidden_size", width) != width:
            raise ModelConfigError(
                f"encoder_hidden_size is {config['encoder_hidden_size']}, the encoder has {width}"
            )
        self._shape = AttentionShape(heads, heads, dim, dim**-0.5)

    @property
    def hidden_size(self) -> int:
        return self._hidden

    @property
    def channels(self) -> int:
        """Elements of a row of `features`."""
        return MARGIN_COLUMNS + self.queries

    def features(self, rows: int) -> np.ndarray:
        """For so many rows of windows, [rows, channels]: the margin of rows without a query, and
        which query a row has."""
        place = np.arange(rows) % self.window
        of_query = place % self.rate == 0
        numbers = (place // self.rate)[:, None] == np.arange(self.queries)
        margin = np.stack([np.ones(rows), ~of_query], axis=1)
        return np.concatenate([margin, numbers & of_query[:, None]], axis=1).astype(np.float32)

    def output(self, weights: Weights, vectors: Tensor, own: Tensor, tokens: Tensor) -> Tensor:
        """`vectors` [T, ...] with rows of `width` elements, their `features` `own` [T, channels],
        and the rows `tokens` that have a query -> [media_rows, hidden]."""
        margin, numbers = ops.split(own, MARGIN_COLUMNS)
        beside = margin_columns(margin)
        shape = (self._hidden, self.queries)
        table = weights.turned_matrix("query", shape, stored=(1, self.queries, self._hidden))
        x = ops.linear(ops.select_rows(numbers, tokens), table)
        x = norm.layer_norm(weights, "qformer.layernorm", x, self._eps)
        heads = (self._shape.heads, self._shape.head_dim)
        among: Tensor | None = None  # what the rows of a window without a query have
        for layer in range(self._layers):
            prefix = f"qformer.encoder.layer.{layer}"
            name = f"{prefix}.crossattention"
            keys: tuple[Tensor, Tensor] | None = None
            if layer % self._frequency == 0:
                keys = (
                    linear(weights, f"{name}.attention.key", vectors, heads, bias=True),
                    linear(weights, f"{name}.attention.value", vectors, heads, bias=True),
                )
                among = keys[0] if among is None else among
            assert among is not None  # the first layer has keys
            own_name, flat = f"{prefix}.attention", (self._hidden,)
            q, k, v = (
                self._scattered(weights, f"{own_name}.attention.{part}", x, flat, tokens, among)
                for part in ("query", "key", "value")
            )
            y = attend_beside_margin(q, k, v, self._shape, None, beside, chunk=self.window)
            x = self._joined(weights, f"{own_name}.output", x, ops.select_rows(y, tokens))
            if keys is not None:
                query = f"{name}.attention.query"
                q = self._scattered(weights, query, x, heads, tokens, among)
                scale, window = self._shape.scale, self.window
                y = ops.attention(q, *keys, scale=scale, causal=False, window=window, chunked=True)
                x = self._joined(weights, f"{name}.output", x, ops.select_rows(y, tokens))
            inner = f"{prefix}.intermediate_query.dense"
            y = linear(weights, inner, x, (self._intermediate,), bias=True)
            y = ops.activation(y, self._activation)
            x = self._joined(weights, f"{prefix}.output_query", x, y)
        return x

    def _scattered(
        self,
        weights: Weights,
        name: str,
        x: Tensor,
        row_shape: tuple[int, ...],
        tokens: Tensor,
        among: Tensor,
    ) -> Tensor:
        """x [media_rows, hidden] -> its projection in the rows of queries, [T, *row_shape]."""
        y = linear(weights, name, x, row_shape, bias=True)
        return ops.scatter_rows(among, y, tokens)

    def _joined(self, weights: Weights, prefix: str, x: Tensor, y: Tensor) -> Tensor:
        """x with a linear layer of y added, normalized."""
        y = linear(weights, f"{prefix}.dense", y, (self._hidden,), bias=True)
        return norm.layer_norm(weights, f"{prefix}.LayerNorm", ops.add(x, y), self._eps)
