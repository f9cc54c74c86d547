"""The encoder of audio of Granite Speech: a conformer, whose layers attend in chunks of frames,
with biases by each query and its distance from a key, and convolve each channel over neighbouring
frames.

Weights: `input_linear`, in its layer i `layers.<i>.{ff1, ff2}.{pre_norm, up_proj, down_proj}`,
`attn.{pre_norm, to_q, to_kv, rel_pos_emb, to_out}`, `conv.{norm, up_conv, depth_conv.conv,
batch_norm, down_conv}` and `post_norm`; `out` and `out_mid`, which the layer in the middle has.

Source: arXiv 2005.08100, with the positions of arXiv 1803.02155.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.media_rows import side_by_side
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.softmax import softmax
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import layer_count, layer_numbers, positive_int
from pagemill.models.vision.margin import MarginColumns, attend_beside_margin
from pagemill.ops import ActivationKind
from pagemill.ops.depthwise_conv import MAX_TAPS
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_EPS = 1e-5
_MOST_OUTPUTS = 1024  # that `ops.moe_route` takes
_MOST_DISTANCES = 1 << 14
_MLP = MlpParts(up=("up_proj",), down="down_proj", gated=False, bias=True)


class ConformerEncoder:
    """One encoder of frames with `channels` features."""

    def __init__(self, config: Config) -> None:
        self.channels = positive_int(config, "input_dim")
        self._hidden = positive_int(config, "hidden_dim")
        self._layers = layer_count(config, "num_layers")
        self._feed_forward = self._hidden * positive_int(config, "feedforward_mult")
        self._outputs = positive_int(config, "output_dim")
        if self._outputs > _MOST_OUTPUTS:
            raise ModelConfigError(
                f"output_dim is {self._outputs}; at most {_MOST_OUTPUTS} are supported"
            )
        heads = positive_int(config, "num_heads")
        dim = positive_int(config, "dim_head", max(1, self._hidden // heads))
        self._shape = AttentionShape(heads, heads, dim, dim**-0.5)
        self._chunk = positive_int(config, "context_size")
        self._reach = positive_int(config, "max_pos_emb")
        if self._chunk > self._reach or self._reach > _MOST_DISTANCES:
            raise ModelConfigError(
                f"context_size is {self._chunk}; max_pos_emb has {self._reach} distances, and at"
                f" most {_MOST_DISTANCES} are supported"
            )
        self._taps = positive_int(config, "conv_kernel_size")
        if self._taps > MAX_TAPS:
            raise ModelConfigError(
                f"conv_kernel_size is {self._taps}; at most {MAX_TAPS} are supported"
            )
        self._inner = self._hidden * positive_int(config, "conv_expansion_factor")
        # Behind how many layers, beside what is behind the last.
        self._joined = layer_numbers(config, "cat_hidden_layers")
        if not self._joined <= {*range(self._layers)}:
            raise ModelConfigError(
                f"cat_hidden_layers must list some of {self._layers} layers, it is"
                f" {sorted(self._joined)}"
            )

    @property
    def width(self) -> int:
        """Elements of the encoder's vectors."""
        return self._hidden * (len(self._joined) + 1)

    def output(
        self, weights: Weights, rows: Tensor, beside: MarginColumns, inside: Tensor
    ) -> Tensor:
        """Frames [T, channels] -> [T, width]. Those of a margin, which is `beside` them, have 0 in
        `inside`, f32 [T, 1], others 1."""
        x = linear(weights, "input_linear", rows, (self._hidden,), bias=True)
        states = [x] if 0 in self._joined else []
        for layer in range(self._layers):
            x = self._layer(weights, f"layers.{layer}", x, beside, inside)
            if layer + 1 == self._layers // 2:
                y = linear(weights, "out", x, (self._outputs,), bias=True, dtype="f32")
                y = softmax(weights, y, beside.queries)
                y = linear(weights, "out_mid", y, (self._hidden,), bias=True)
                x = ops.add(x, y)
            if layer + 1 in self._joined:
                states.append(x)
        return ops.concat_all([*states, x])

    def _layer(
        self, weights: Weights, prefix: str, x: Tensor, beside: MarginColumns, inside: Tensor
    ) -> Tensor:
        x = ops.add(x, self._fed_forward(weights, f"{prefix}.ff1", x))
        x = ops.add(x, self._attended(weights, f"{prefix}.attn", x, beside))
        x = ops.add(x, self._convolved(weights, f"{prefix}.conv", x, inside))
        x = ops.add(x, self._fed_forward(weights, f"{prefix}.ff2", x))
        return norm.layer_norm(weights, f"{prefix}.post_norm", x, _EPS)

    def _fed_forward(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        y = norm.layer_norm(weights, f"{prefix}.pre_norm", x, _EPS)
        return ops.scale(
            mlp(weights, prefix, y, self._feed_forward, ActivationKind.SILU, _MLP), 0.5
        )

    def _attended(self, weights: Weights, prefix: str, x: Tensor, beside: MarginColumns) -> Tensor:
        heads, dim = self._shape.heads, self._shape.head_dim
        width = heads * dim
        y = norm.layer_norm(weights, f"{prefix}.pre_norm", x, _EPS)
        q = linear(weights, f"{prefix}.to_q", y, (width,))
        k, v = (
            linear(
                weights, f"{prefix}.to_kv", y, (width,), rows=Part(begin, begin + width, 2 * width)
            )
            for begin in (0, width)
        )
        # Embeddings are those of the query's position minus the key's, biases the other way round.
        rows = 2 * self._reach + 1
        table = weights.small(
            f"{prefix}.rel_pos_emb.weight",
            (rows, dim),
            row_factors=[self._shape.scale] * rows,
            row_order=range(self._reach + self._chunk - 1, self._reach - self._chunk, -1),
        )
        by_head = ops.concat_all(side_by_side(q, dim), (heads, dim))
        biases = ops.linear(by_head, table, row_shape=(heads, int(table.rows)), dtype="f32")
        y = attend_beside_margin(
            q, k, v, self._shape, None, beside, chunk=self._chunk, biases=biases
        )
        return linear(weights, f"{prefix}.to_out", y, (self._hidden,), bias=True)

    def _convolved(self, weights: Weights, prefix: str, x: Tensor, inside: Tensor) -> Tensor:
        inner, hidden = self._inner, self._hidden
        y = norm.layer_norm(weights, f"{prefix}.norm", x, _EPS)
        up = weights.reshaped(
            f"{prefix}.up_conv.weight", (2 * inner, hidden, 1), (2 * inner, hidden)
        )
        y = ops.linear(y, up, weights.vector(f"{prefix}.up_conv.bias", 2 * inner))
        y, gate = ops.split(y, inner, row_shapes=((1, inner), (1, inner)))
        y = ops.gated_activation(gate, y, ActivationKind.SIGMOID)
        taps, bias = weights.normalized_taps(
            f"{prefix}.depth_conv.conv", f"{prefix}.batch_norm", (inner, self._taps), _EPS
        )
        y = ops.depthwise_conv(ops.scale_groups(y, inside), taps, bias, before=self._taps // 2)
        y = ops.activation(y, ActivationKind.SILU)
        down = weights.reshaped(f"{prefix}.down_conv.weight", (hidden, inner, 1), (hidden, inner))
        bias = weights.vector(f"{prefix}.down_conv.bias", hidden)
        return ops.linear(y, down, bias, row_shape=(hidden,))
