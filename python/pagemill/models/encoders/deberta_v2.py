"""DeBERTa 2 and 3 (arXiv 2006.03654, 2111.09543): BERT whose scores have, beside the product of a
query and a key, that of the query and an embedding of the distance to the key ("c2p"), and that of
the key and such an embedding ("p2c").

Embeddings of distances are the same in all layers, and each layer projects them: with
`share_att_key` by the matrices of its queries and keys, otherwise by `pos_{key,query}_proj`. What
becomes of them depends on no token, so it is computed when the model is loaded: a matrix of each
head with a row for each distance, and attention gets biases of each query and of each key.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagemill import ops
from pagemill.layers import attention
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear, linear_of_rows
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import Defaults, activation, as_list, flag, number, positive_int
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops.head_tables import HeadTables
from pagemill.ops.shard import Part, Stripe
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_C2P, _P2C = "c2p", "p2c"
_KINDS = frozenset({_C2P, _P2C})
_MAX_REACH = 4096
_MAX_TAPS = 15
_MOST = 10**6  # embeddings of distances on a side
# Those of the configuration's class: published checkpoints leave them out.
_DEFAULTS = {"layer_norm_eps": 1e-7, "type_vocab_size": 0}


class DebertaV2Model(Encoder):
    """One DeBERTa encoder."""

    base_prefix = "deberta."
    names = EncoderNames(
        norm=None,  # it is behind the projection of embeddings
        qkv=(
            "attention.self.query_proj",
            "attention.self.key_proj",
            "attention.self.value_proj",
        ),
    )
    ignored = {
        **Encoder.ignored,
        r"(lm|mask)_predictions\..*": "heads of the training objectives",
        r"deberta\.embeddings\.position_embeddings\..*": "no positions are added to embeddings",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(Defaults(config, _DEFAULTS))
        sizes = self.sizes
        _require(config, "attention_head_size", sizes.head_dim)
        _require(config, "pooler_hidden_size", sizes.hidden_size)
        _require(config, "conv_groups", 1)
        self._embedding_size = positive_int(config, "embedding_size", sizes.hidden_size)
        self._adds_positions = flag(config, "position_biased_input", True)
        self._pooler_activation = activation(config, "pooler_hidden_act", "gelu")
        kinds = _words(config, "pos_att_type")
        if not kinds <= _KINDS:
            raise ModelConfigError(
                f"pos_att_type {shown(config.get('pos_att_type'))}: only c2p and p2c are supported"
            )
        self.attention_scale = (sizes.head_dim * (1 + len(kinds))) ** -0.5
        self._kinds = kinds if flag(config, "relative_attention", False) else frozenset[str]()
        self._shared = flag(config, "share_att_key", False)
        self._normalized = "layer_norm" in _words(config, "norm_rel_ebd")
        self._span, self._rows = _entries(config, sizes.max_positions) if self._kinds else (0, [])
        self._taps = int(number(config, "conv_kernel_size", 0, least=0, most=_MAX_TAPS))
        if self._taps and self._taps % 2 == 0:
            raise ModelConfigError(f"conv_kernel_size {self._taps} must be odd")
        self._conv_activation = activation(config, "conv_act", "tanh")

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        hidden = self.sizes.hidden_size
        x = self.embed_as(weights, inputs, self._embedding_size)
        if self._embedding_size != hidden:
            x = linear(weights, self.name("embeddings.embed_proj"), x, (hidden,))
        return self.norm(weights, self.name("embeddings.LayerNorm"), x)

    def add_positions(self, weights: Weights, inputs: StepInputs, x: Tensor) -> Tensor:
        return super().add_positions(weights, inputs, x) if self._adds_positions else x

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if not self._kinds:
            return super().attention(weights, layer, x, rotary)
        sizes, prefix = self.sizes, self.prefix(layer)
        out = f"{prefix}.{self.names.attended}"
        shape = AttentionShape(sizes.heads, sizes.heads, sizes.head_dim, self.attention_scale)
        shape = attention.divide(weights, shape, out)
        part = shape.features(shape.heads)
        row_shape = (part.size // shape.head_dim, shape.head_dim)
        query, key, value = (f"{prefix}.{name}" for name in self.names.qkv)
        if self._shared:
            # Adapters, which would change what the layers make of embeddings of distances, do not
            # know them.
            q, k = (
                linear_of_rows(weights, name, x, x.width, row_shape, rows=part)
                for name in (query, key)
            )
        else:
            q, k = (
                linear(weights, name, x, row_shape, bias=True, rows=part) for name in (query, key)
            )
        v = linear(weights, value, x, row_shape, bias=True, rows=part)
        biases = self._biases(weights, layer, q, shape, _C2P, "key_proj")
        key_biases = self._biases(weights, layer, k, shape, _P2C, "query_proj")
        y = attention.attend_both_ways(q, k, v, shape, biases, key_biases=key_biases)
        return attention.output(weights, out, y, shape, x.width, bias=True)

    def _biases(
        self, weights: Weights, layer: int, x: Tensor, shape: AttentionShape, kind: str, name: str
    ) -> Tensor | None:
        """The products of x, queries or keys [T, heads of this rank, head_dim], and what the layer
        `name` makes of the embeddings of distances, f32 [T, heads, distances]; None if the model
        does not have this `kind`."""
        if kind not in self._kinds:
            return None
        part, dim = shape.features(shape.heads), shape.head_dim
        prefix = "" if self._shared else "pos_"
        tables = HeadTables(
            module=f"{self.prefix(layer)}.attention.self.{prefix}{name}",
            table=self.name("encoder.rel_embeddings.weight"),
            shape=(2 * self._span, self.sizes.hidden_size),
            rows=self._rows,
            heads=Part(part.begin // dim, part.end // dim, shape.heads),
            head_dim=dim,
            factor=self.attention_scale,
            norm=self.name("encoder.LayerNorm") if self._normalized else None,
            eps=self.sizes.norm_eps,
        )
        return ops.head_linear(x, weights.head_tables(tables), dtype="f32")

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        y = super().layer(weights, layer, x, rotary)
        if layer > 0 or not self._taps:
            return y
        convolved = ops.activation(self._convolution(weights, x), self._conv_activation)
        return self.norm(weights, self.name("encoder.conv.LayerNorm"), ops.add(y, convolved))

    def _convolution(self, weights: Weights, x: Tensor) -> Tensor:
        """x [T, H] -> [T, H]: a product for each tap, of the tokens that it multiplies."""
        name, taps, hidden = self.name("encoder.conv.conv"), self._taps, x.width
        total: Tensor | None = None
        for tap in range(taps):
            chosen = [[float(i == tap) for i in range(taps)]] * hidden
            taken = weights.constant(f"tap_{tap}_of_{taps}", chosen)
            shifted = ops.depthwise_conv(x, taken, None, before=taps // 2)
            stripe = Stripe(tap, taps)
            matrix = weights.column_stripe(f"{name}.weight", (hidden, hidden, taps), stripe)
            bias = weights.vector(f"{name}.bias", hidden) if total is None else None
            y = ops.linear(shifted, matrix, bias)
            total = y if total is None else ops.add(total, y)
        assert total is not None
        return total

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = ("pooler.dense", "classifier")
        return self.classify_by(weights, rows, labels, self._pooler_activation, names)


def _require(config: Config, key: str, value: int) -> None:
    """Refuses a configuration that states another value."""
    if positive_int(config, key, value) != value:
        raise ModelConfigError(f"{key} {shown(config[key])} is not supported here, only {value}")


def _words(config: Config, key: str) -> frozenset[str]:
    """Words of a list, or of a text in which bars divide them."""
    stated = config.get(key)
    words = stated.split("|") if isinstance(stated, str) else as_list(stated)
    if stated is not None and words is None:
        raise ModelConfigError(f"{key} must be a text or a list, not {shown(stated)}")
    return frozenset(str(word).strip().lower() for word in words or ())


def _entries(config: Config, longest: int) -> tuple[int, list[int]]:
    """Half the number of embeddings of distances, and which of them each distance (position of the
    key - position of the query) has, from -reach to reach: farther ones have those of the reach,
    or texts of `longest` tokens have none."""
    most = int(number(config, "max_relative_positions", -1, least=-1, most=_MOST))
    most = most if most >= 1 else longest
    buckets = int(number(config, "position_buckets", -1, least=-1, most=_MOST))
    span = buckets if buckets > 0 else most
    distances = np.arange(min(longest, _MAX_REACH + 1))
    of_distances = log_buckets(distances, buckets, most) if buckets > 0 else distances
    # From the span on, embeddings of both sides are the last ones.
    reach = min(int(np.searchsorted(of_distances, span)), longest - 1)
    if reach > _MAX_REACH:
        raise ModelConfigError(
            f"embeddings of distances up to {reach} tokens are not supported, only up to"
            f" {_MAX_REACH}; lower max_position_embeddings"
        )
    near = of_distances[: reach + 1]
    entries = np.clip([*near[:0:-1], *-near], -span, span - 1) + span
    return span, entries.tolist()


def log_buckets(distances: npt.NDArray[np.int64], buckets: int, most: int) -> npt.NDArray[np.int64]:
    """The bucket of each distance from 0 on: the distance itself up to half of `buckets`; those of
    farther ones grow with their logarithm, such that `most` - 1 has the last one.

    Raises:
        ModelConfigError: there are not two buckets, or no distances beyond half of them.
    """
    single = buckets // 2
    if not 1 <= single < most - 1:
        raise ModelConfigError(
            f"position_buckets {buckets} with max_relative_positions {most}: at least 2 buckets,"
            " and distances beyond half of them, are supported"
        )
    # In f32, as models were trained. The last element is the divisor, rounded as the others are.
    far = np.maximum(np.append(distances, most - 1), single).astype(np.float32)
    logarithms = np.log(far / np.float32(single))
    grown = np.ceil(logarithms[:-1] / logarithms[-1] * np.float32(single - 1)) + single
    return np.where(distances <= single, distances, grown.astype(np.int64))
