"""The encoder of audio of NeMo's models (FastConformer, arXiv 2305.05084) and of Cohere's: vectors
of eight log-mel frames, and a conformer whose scores have products of queries and embeddings of the
distance to a key, as in Transformer-XL (arXiv 1901.02860).

Embeddings of distances are waves, which each layer projects: a matrix of each head with a row for
each distance, computed when the model is loaded.

Weights: those of depthwise_subsampling.py under `pre_encode`, and in its layer i
`layers.<i>.{norm_feed_forward1, feed_forward1.{linear1, linear2}, norm_self_att,
self_attn.{linear_{q,k,v,pos,out}, pos_bias_{u,v}}, norm_conv, conv.{pointwise_conv1,
depthwise_conv, batch_norm, pointwise_conv2}, norm_feed_forward2, feed_forward2.{linear1, linear2},
norm_out}`.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.attention import AttentionShape, attend_both_ways
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.audio.conformer_parts import of_channels, shifted
from pagemill.models.audio.depthwise_subsampling import STRIDE, DepthwiseSubsampling
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import activation, flag, layer_count, positive_int
from pagemill.ops import ActivationKind
from pagemill.ops.depthwise_conv import MAX_TAPS
from pagemill.ops.head_tables import HeadTables
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_EPS = 1e-5  # of all norms; not in configurations
_LONGEST_WAVE = 10_000.0  # over 2 pi, in vectors
_MOST_VECTORS = 1024  # of an audio
# What other checkpoints may have, and is not supported.
_ONLY = {"subsampling_factor": 8, "subsampling_conv_kernel_size": 3, "subsampling_conv_stride": 2}


class ParakeetEncoder:
    """One encoder of audio of at most `most` vectors."""

    def __init__(self, config: Config, most: int) -> None:
        for key, value in _ONLY.items():
            if positive_int(config, key, value) != value:
                raise ModelConfigError(f"{key} of encoder_config must be {value}")
        self.hidden_size = positive_int(config, "hidden_size")
        self._layers = layer_count(config)
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "silu")
        self._bias = flag(config, "attention_bias", True)
        self._conv_bias = flag(config, "convolution_bias", True)
        self._scale = self.hidden_size**0.5 if flag(config, "scale_input", False) else 1.0
        self._taps = positive_int(config, "conv_kernel_size", 9)
        if self._taps > MAX_TAPS or self._taps % 2 == 0:
            raise ModelConfigError(
                f"conv_kernel_size is {self._taps}; odd ones, at most {MAX_TAPS}, are supported"
            )
        heads = positive_int(config, "num_attention_heads")
        if positive_int(config, "num_key_value_heads", heads) != heads:
            raise ModelConfigError("num_key_value_heads of encoder_config must be its heads")
        dim, rest = divmod(self.hidden_size, heads)
        if rest or self.hidden_size % 2:
            raise ModelConfigError(
                f"{heads} heads cannot share {self.hidden_size} features, an even number"
            )
        self._shape = AttentionShape(heads, heads, dim, dim**-0.5)
        bins = positive_int(config, "num_mel_bins")
        if bins % STRIDE:
            raise ModelConfigError(f"num_mel_bins is {bins}; it must be a multiple of {STRIDE}")
        self._frames = DepthwiseSubsampling(
            bins,
            positive_int(config, "subsampling_conv_channels", 256),
            self.hidden_size,
            ActivationKind.RELU,
            prefix="pre_encode",
            normalized=False,
        )
        self.most = min(most, _MOST_VECTORS)
        """Vectors of an audio."""

    @property
    def bins(self) -> int:
        """Of log-mel frames."""
        return self._frames.bins

    @property
    def channels(self) -> int:
        """Elements of a row of `features`."""
        return self._frames.channels

    def features(self, mel: np.ndarray) -> np.ndarray:
        """Log-mel frames [frames, bins] -> [vectors, channels]."""
        return self._frames.features(mel)

    def output(self, weights: Weights, rows: Tensor) -> Tensor:
        """`features` [T, channels] -> [T, hidden]."""
        x = self._frames.output(weights, rows)
        if self._scale != 1:
            x = ops.scale(x, self._scale)
        for layer in range(self._layers):
            x = self._layer(weights, f"layers.{layer}", x)
        return x

    def _layer(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        x = ops.add(x, self._fed_forward(weights, prefix, "feed_forward1", x))
        y = norm.layer_norm(weights, f"{prefix}.norm_self_att", x, _EPS)
        x = ops.add(x, self._attended(weights, f"{prefix}.self_attn", y))
        y = norm.layer_norm(weights, f"{prefix}.norm_conv", x, _EPS)
        x = ops.add(x, self._convolved(weights, f"{prefix}.conv", y))
        x = ops.add(x, self._fed_forward(weights, prefix, "feed_forward2", x))
        return norm.layer_norm(weights, f"{prefix}.norm_out", x, _EPS)

    def _fed_forward(self, weights: Weights, prefix: str, name: str, x: Tensor) -> Tensor:
        parts = MlpParts(up=("linear1",), down="linear2", gated=False, bias=self._bias)
        y = norm.layer_norm(weights, f"{prefix}.norm_{name}", x, _EPS)
        y = mlp(weights, f"{prefix}.{name}", y, self._intermediate, self._activation, parts)
        return ops.scale(y, 0.5)

    def _attended(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        shape = self._shape
        row = (shape.heads, shape.head_dim)
        q, k, v = (
            linear(weights, f"{prefix}.linear_{part}", x, row, bias=self._bias) for part in "qkv"
        )
        places = weights.head_tables(self._places(f"{prefix}.linear_pos"))
        of_places = shifted(weights, f"{prefix}.pos_bias_v", q, row)
        biases = ops.head_linear(of_places, places, dtype="f32")
        q = shifted(weights, f"{prefix}.pos_bias_u", q, row)
        y = attend_both_ways(q, k, v, shape, biases)
        return linear(weights, f"{prefix}.linear_out", y, (self.hidden_size,), bias=self._bias)

    def _places(self, module: str) -> HeadTables:
        """What a layer makes of the waves of the query's position minus the key's, of which the
        most comes first, times the scale of scores."""
        heads, dim, count = self._shape.heads, self._shape.head_dim, 2 * self.most - 1
        return HeadTables(
            module=module,
            table="distances",
            shape=(count, self.hidden_size),
            rows=range(count),
            heads=Part(0, heads, heads),
            head_dim=dim,
            factor=self._shape.scale,
            values=_waves(np.arange(self.most - 1, -self.most, -1), self.hidden_size),
            bias=False,
        )

    def _convolved(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        hidden, has_bias = self.hidden_size, self._conv_bias
        y = of_channels(weights, f"{prefix}.pointwise_conv1", x, 2 * hidden, bias=has_bias)
        y, gate = ops.split(y, hidden)
        y = ops.gated_activation(gate, y, ActivationKind.SIGMOID)
        taps, bias = weights.normalized_taps(
            f"{prefix}.depthwise_conv",
            f"{prefix}.batch_norm",
            (hidden, self._taps),
            _EPS,
            bias=has_bias,
        )
        y = ops.depthwise_conv(y, taps, bias, before=self._taps // 2)
        y = ops.activation(y, self._activation)
        return of_channels(weights, f"{prefix}.pointwise_conv2", y, hidden, bias=has_bias)


def _waves(distances: np.ndarray, width: int) -> np.ndarray:
    """Sines and cosines of distances by turns, in waves from 1 to _LONGEST_WAVE: f32 [distances,
    width]."""
    frequencies = 1 / _LONGEST_WAVE ** (np.arange(0, width, 2, dtype=np.float32) / width)
    angles = distances[:, None].astype(np.float32) * frequencies.astype(np.float32)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(distances), width)
