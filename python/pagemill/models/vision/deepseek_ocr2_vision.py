"""DeepSeek-OCR 2's vision model for images of one size: SAM's tower, two convolutions with a stride
of two, and Qwen2's layers over what these leave and as many learned queries, whose vectors are the
image's.

Weights: `sam_model.` (sam_vision.py, by SAM's own names), with `net_2` and `net_3`, and behind
`qwen2_model.` `query_768` or `query_1024` and `model.model.{layers.<i>.{input_layernorm,
self_attn.{q,k,v,o}_proj, post_attention_layernorm, mlp.{gate,up,down}_proj}, norm}`.

A token of the step has two rows in these layers: its vector, and its query. In attention the
vectors of an image come first, which see each other, and then its queries, which see them and the
queries up to themselves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear_of_rows
from pagemill.layers.rotary import Rotary, bind_rotary
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import (
    Defaults,
    activation,
    as_list,
    epsilon,
    flag,
    inner_config,
    layer_count,
    make_rotary_table,
    positive_int,
)
from pagemill.models.vision.sam_vision import SAM_NAMES, UNIT, SamVisionTower, convolution
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_ROWS = 2  # of a token: its vector and its query
_QUERIES = {144: "qwen2_model.query_768", 256: "qwen2_model.query_1024"}
_LAYERS = "qwen2_model.model.model."
TILE_SIDE = 12 * UNIT
"""Patches in a row of a tile."""
_DOWNSAMPLED = [512, 896]
# Those of the configuration's class.
_DEFAULTS = {
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
}


class DeepseekOcr2Vision:
    """That of images of the configuration's size, or of squares of `side` patches."""

    def __init__(self, config: Config, *, side: int | None = None) -> None:
        sam = inner_config(config, "sam_config")
        self.tower = SamVisionTower(sam, side=side, names=SAM_NAMES)
        if self.tower.tokens not in _QUERIES:
            known = " or ".join(map(str, _QUERIES))
            raise ModelConfigError(
                f"an image of {self.tower.side} patches in a row has {self.tower.tokens} tokens,"
                f" but there are {known} queries"
            )
        self._channels = _channels(sam)
        config = Defaults(inner_config(config, "encoder_config"), _DEFAULTS)
        self._layers = layer_count(config)
        self.hidden_size = positive_int(config, "hidden_size")
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "silu")
        self._eps = epsilon(config, "rms_norm_eps", 1e-6)
        self._heads = positive_int(config, "num_attention_heads")
        self._kv_heads = positive_int(config, "num_key_value_heads")
        self._head_dim, rest = divmod(self.hidden_size, self._heads)
        if rest or self._heads % self._kv_heads or self._channels[1] != self.hidden_size:
            raise ModelConfigError(
                f"{self._heads} heads, {self._kv_heads} of keys, cannot share {self.hidden_size}"
                f" features, or downsample_channels end with others, {self._channels[1]}"
            )
        if flag(config, "use_sliding_window", False):
            raise ModelConfigError("use_sliding_window must be false: a query sees a whole image")
        self._rotary = make_rotary_table(config, self._head_dim)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self.tower.features(image)

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """`features` [T, channels] -> the vectors of queries, [T, hidden]."""
        sam = weights.within("sam_model.")
        side, hidden = self.tower.side, self.hidden_size
        x = self.tower.output(sam, inputs)
        tokens = self.tower.tokens
        x = convolution(sam, "net_2", x, self._channels[0], side, tokens, stride=2)
        x = convolution(sam, "net_3", x, self._channels[1], side // 2, tokens, stride=2)
        queries = weights.matrix(f"{_QUERIES[tokens]}.weight", (tokens, hidden))
        x = ops.concat(x, ops.embedding(inputs.positions, queries), row_shape=(_ROWS, hidden))
        rotary = bind_rotary(weights, "inv_freq", self._rotary, inputs.positions, interleaved=False)
        for layer in range(self._layers):
            prefix = f"{_LAYERS}layers.{layer}"
            y = norm.rms_norm(weights, f"{prefix}.input_layernorm", x, self._eps)
            x = ops.add(x, self._attend(weights, f"{prefix}.self_attn", y, rotary))
            y = norm.rms_norm(weights, f"{prefix}.post_attention_layernorm", x, self._eps)
            x = ops.add(x, self._mlp(weights, f"{prefix}.mlp", y))
        query = weights.index("query", np.full((1, 1, 1), _ROWS - 1, np.int32))
        x = ops.unfold_listed(x, query, hidden)
        return norm.rms_norm(weights, f"{_LAYERS}norm", x, self._eps, row_shape=(hidden,))

    def _attend(self, weights: Weights, prefix: str, x: Tensor, rotary: Rotary) -> Tensor:
        """x [T, 2, hidden] -> [T, 2, hidden]."""
        hidden, dim, tokens = self.hidden_size, self._head_dim, self.tower.tokens

        def project(name: str, heads: int) -> Tensor:
            row_shape = (_ROWS * heads * dim,)
            return linear_of_rows(weights, f"{prefix}.{name}", x, hidden, row_shape)

        def rows(of_both: Tensor, heads: int) -> tuple[Tensor, Tensor]:
            shape = (heads, dim)
            return ops.split(of_both, heads * dim, row_shapes=(shape, shape))

        def vectors_first(of_both: Tensor, heads: int) -> Tensor:
            index = weights.index("vectors_first", _vectors_first(tokens))
            return ops.unfold_listed(of_both, index, heads * dim, shape=(heads, dim))

        q = rows(project("q_proj", self._heads), self._heads)
        k = rows(project("k_proj", self._kv_heads), self._kv_heads)
        q0, k0 = rotary(q[0], k[0])
        q1, k1 = replace(rotary, offset=tokens)(q[1], k[1])
        attended = ops.attention(
            vectors_first(ops.concat(q0, q1), self._heads),
            vectors_first(ops.concat(k0, k1), self._kv_heads),
            vectors_first(project("v_proj", self._kv_heads), self._kv_heads),
            scale=dim**-0.5,
            causal=True,
            prefix=tokens,
        )
        back = weights.index("rows_of_tokens", _rows_of_tokens(tokens))
        y = ops.unfold_listed(attended, back, hidden)
        return linear_of_rows(weights, f"{prefix}.o_proj", y, hidden, (_ROWS, hidden), bias=False)

    def _mlp(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        inner = (_ROWS, self._intermediate)

        def up(name: str) -> Tensor:
            return linear_of_rows(
                weights, f"{prefix}.{name}", x, self.hidden_size, inner, bias=False
            )

        y = ops.gated_activation(up("gate_proj"), up("up_proj"), self._activation)
        row_shape = (_ROWS, self.hidden_size)
        return linear_of_rows(
            weights, f"{prefix}.down_proj", y, self._intermediate, row_shape, bias=False
        )


def _channels(sam: Config) -> tuple[int, int]:
    """Outputs of both convolutions."""
    channels = as_list(sam.get("downsample_channels") or _DOWNSAMPLED) or []
    if len(channels) != 2 or not all(type(each) is int and each > 0 for each in channels):
        raise ModelConfigError(
            f"downsample_channels must list two numbers, it is {shown(channels)}"
        )
    return channels[0], channels[1]


def _vectors_first(tokens: int) -> npt.NDArray[np.int32]:
    """Of the rows of tokens, their vectors and queries in turn, all vectors and then all queries:
    [tokens, 2, 1]."""
    rows = np.arange(_ROWS * tokens, dtype=np.int32).reshape(tokens, _ROWS)
    return np.ascontiguousarray(rows.T).reshape(tokens, _ROWS, 1)


def _rows_of_tokens(tokens: int) -> npt.NDArray[np.int32]:
    """Back from `_vectors_first`."""
    rows = np.arange(_ROWS * tokens, dtype=np.int32).reshape(_ROWS, tokens)
    return np.ascontiguousarray(rows.T).reshape(tokens, _ROWS, 1)
