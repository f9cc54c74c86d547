"""InternVL's vision transformer: patches of a tile, and a class token in front, to vectors.

Weights: `embeddings.{cls_token, patch_embeddings.projection, position_embeddings}`,
`encoder.layer.<i>.{layernorm_before, attention.{q,k,v}_proj or attention.qkv, attention.{q,k}_norm,
attention.projection_layer, lambda_1, layernorm_after, mlp.{fc1,fc2}, lambda_2}` and `layernorm`, as
far as the configuration has them.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import (
    Defaults,
    activation,
    epsilon,
    flag,
    layer_count,
    positive_int,
    square_side,
)
from pagemill.models.vision.patch_grid import PatchGrid
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_QK_EPS = 1e-6
_NORMS = ("layer_norm", "rms_norm")
# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "norm_type": "layer_norm",
}


class InternVlVisionTower:
    """One tower. Patches are in the order of its `grid`; a model merges `merge` x `merge`."""

    class_tokens = 1

    def __init__(self, config: Config, *, merge: int) -> None:
        config = Defaults(config, _DEFAULTS)
        self.hidden_size = positive_int(config, "hidden_size")
        self.layers = layer_count(config)
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "gelu")
        self._eps = epsilon(config, "layer_norm_eps", 1e-6)
        self._rms = _norm_type(config) == "rms_norm"
        self._bias = flag(config, "attention_bias", False)
        self._qk_norm = flag(config, "use_qk_norm", False)
        self._has_positions = flag(config, "use_absolute_position_embeddings", True)
        self._last_norm = not flag(config, "use_mean_pooling", True)
        self.grid = PatchGrid(
            colors=positive_int(config, "num_channels", 3),
            size=square_side(config, "image_size"),
            patch=square_side(config, "patch_size"),
            merge=merge,
        )
        heads = positive_int(config, "num_attention_heads")
        head_dim, rest = divmod(self.hidden_size, heads)
        if rest:
            raise ModelConfigError(f"{heads} heads cannot share {self.hidden_size} features")
        self._shape = attention.AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5)

    def hidden(self, weights: Weights, inputs: EncoderInputs, depth: int) -> Tensor:
        """Patches [T, channels], zeros for class tokens -> what is behind `depth` layers, and
        behind the last norm if there is one and the layers are all."""
        x = self._embed(weights, inputs)
        for layer in range(depth):
            x = self._layer(weights, f"encoder.layer.{layer}", x)
        if depth < self.layers or not self._last_norm:
            return x
        return norm.layer_norm(weights, "layernorm", x, self._eps)

    def _embed(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        prefix, hidden = "embeddings", self.hidden_size
        projection = f"{prefix}.patch_embeddings.projection"
        x = ops.linear(inputs.media.rows, weights.patches(projection, self.grid.kernel(hidden)))
        # What is added to the class token, which is the first of each tile, and to the others.
        names = (f"{prefix}.cls_token", f"{projection}.bias")
        kinds = weights.vectors(names, hidden, table=True)
        x = ops.add(x, ops.embedding(inputs.positions, kinds, outside=1))
        if not self._has_positions:
            return x
        table = (1 + self.grid.rows, hidden)
        order = [0, *(1 + self.grid.order()).tolist()]
        placed = weights.small(f"{prefix}.position_embeddings", table, row_order=order)
        return ops.add(x, ops.embedding(inputs.positions, placed))

    def _layer(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        hidden = self.hidden_size
        y = self._norm(weights, f"{prefix}.layernorm_before", x)
        y = self._attention(weights, f"{prefix}.attention", y)
        x = ops.add(x, ops.scale_columns(y, weights.vector(f"{prefix}.lambda_1", hidden)))
        y = self._norm(weights, f"{prefix}.layernorm_after", x)
        y = linear(weights, f"{prefix}.mlp.fc1", y, (self._intermediate,), bias=True)
        y = ops.activation(y, self._activation)
        y = linear(weights, f"{prefix}.mlp.fc2", y, (hidden,), bias=True)
        return ops.add(x, ops.scale_columns(y, weights.vector(f"{prefix}.lambda_2", hidden)))

    def _attention(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        shape = self._shape
        names = (f"{prefix}.qkv",)
        if not weights.has(f"{prefix}.qkv.weight"):
            names = (f"{prefix}.q_proj", f"{prefix}.k_proj", f"{prefix}.v_proj")
        q, k, v = attention.project_qkv(
            weights, names, x, shape, bias=self._bias, whole=self._qk_norm
        )
        if self._qk_norm:  # over all heads
            row = (shape.heads, shape.head_dim)
            q = norm.rms_norm(weights, f"{prefix}.q_norm", q, _QK_EPS, row_shape=row)
            k = norm.rms_norm(weights, f"{prefix}.k_norm", k, _QK_EPS, row_shape=row)
        y = attention.attend_both_ways(q, k, v, shape)
        return linear(weights, f"{prefix}.projection_layer", y, (self.hidden_size,), bias=True)

    def _norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        if self._rms:
            return norm.rms_norm(weights, name, x, self._eps)
        return norm.layer_norm(weights, name, x, self._eps)


def _norm_type(config: Config) -> str:
    kind = config.get("norm_type")
    if kind not in _NORMS:
        raise ModelConfigError(f"norm_type is {shown(kind)}; known: {', '.join(_NORMS)}")
    return kind
