"""CLIP's vision transformer: patches of an image, and a class token in front, to vectors.

Weights: `embeddings.{class_embedding, patch_embedding, position_embedding}`, `pre_layrnorm`,
`encoder.layers.<i>.{layer_norm1, self_attn.{q,k,v,out}_proj, layer_norm2, mlp.{fc1,fc2}}`.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.layers import attention, embedding, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, MediaInputs, ModelConfigError
from pagemill.models.config_keys import activation, epsilon, positive_int
from pagemill.ops.trace import Tensor

CLASS_TOKENS = 1
_LAYER_MODULES = (
    "layer_norm1",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.out_proj",
    "layer_norm2",
    "mlp.fc1",
    "mlp.fc2",
)


class ClipVisionTower:
    """One tower without its last norm, which models that use the vectors of all patches omit."""

    def __init__(self, config: Config) -> None:
        if config.get("model_type", "clip_vision_model") != "clip_vision_model":
            raise ModelConfigError(
                f"a vision tower of type {config['model_type']!r:.60} is not supported; known:"
                " clip_vision_model"
            )
        self.hidden_size = positive_int(config, "hidden_size")
        self.layers = positive_int(config, "num_hidden_layers")
        self._intermediate = positive_int(config, "intermediate_size")
        self._eps = epsilon(config, "layer_norm_eps", 1e-5)
        self._activation = activation(config, "hidden_act", "quick_gelu")
        self._colors = positive_int(config, "num_channels", 3)
        self._patch = positive_int(config, "patch_size")
        self._side, rest = divmod(positive_int(config, "image_size"), self._patch)
        if rest or not self._side:
            raise ModelConfigError(f"image_size is not a multiple of patch_size {self._patch}")
        heads = positive_int(config, "num_attention_heads")
        head_dim, rest = divmod(self.hidden_size, heads)
        if rest:
            raise ModelConfigError(f"{heads} heads cannot share {self.hidden_size} features")
        self._shape = attention.AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5)

    @property
    def rows(self) -> int:
        """Patches of an image."""
        return self._side**2

    @property
    def channels(self) -> int:
        """Elements of a patch."""
        return self._colors * self._patch**2

    def features(self, pixels: np.ndarray) -> np.ndarray:
        """An image [colors, height, width] as its patches [rows, channels], row by row."""
        size = self._side * self._patch
        expected = (self._colors, size, size)
        if pixels.shape != expected:
            raise ValueError(f"an image must be [3, {size}, {size}], got {list(pixels.shape)}")
        cut = pixels.reshape(self._colors, self._side, self._patch, self._side, self._patch)
        patches = cut.transpose(1, 3, 0, 2, 4).reshape(self.rows, self.channels)
        return np.ascontiguousarray(patches, np.float32)

    def hidden(
        self, weights: Weights, media: MediaInputs, positions: Tensor, layers: int
    ) -> Tensor:
        """Patches [media_rows, channels] -> the results of the first `layers` layers [T, hidden], a
        row for the class token and then one for each patch of every image."""
        x = self._embed(weights, media, positions)
        x = norm.layer_norm(weights, "pre_layrnorm", x, self._eps)
        for layer in range(layers):
            x = self._layer(weights, f"encoder.layers.{layer}", x)
        return x

    def claim_rest(self, weights: Weights, layers: int) -> None:
        """Marks the layers after the first `layers` as used: nothing reads their results."""
        for layer in range(layers, self.layers):
            for module in _LAYER_MODULES:
                weights.claim(f"encoder.layers.{layer}.{module}.weight")
                weights.claim(f"encoder.layers.{layer}.{module}.bias")

    def _embed(self, weights: Weights, media: MediaInputs, positions: Tensor) -> Tensor:
        prefix, hidden = "embeddings", self.hidden_size
        table = (self.rows + CLASS_TOKENS, hidden)
        placed = embedding.embedding(weights, f"{prefix}.position_embedding", positions, table)
        kernel = (hidden, self._colors, self._patch, self._patch)
        matrix = weights.patches(f"{prefix}.patch_embedding", kernel)
        patches = ops.add(ops.linear(media.rows, matrix), ops.select_rows(placed, media.tokens))
        first = ops.add(placed, weights.vector(f"{prefix}.class_embedding", hidden))
        return ops.scatter_rows(first, patches, media.tokens)

    def _layer(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        inner, hidden = f"{prefix}.self_attn", self.hidden_size
        y = norm.layer_norm(weights, f"{prefix}.layer_norm1", x, self._eps)
        names = (f"{inner}.q_proj", f"{inner}.k_proj", f"{inner}.v_proj")
        q, k, v = attention.project_qkv(weights, names, y, self._shape, bias=True)
        y = attention.attend_both_ways(q, k, v, self._shape)
        x = ops.add(x, linear(weights, f"{inner}.out_proj", y, (hidden,), bias=True))
        y = norm.layer_norm(weights, f"{prefix}.layer_norm2", x, self._eps)
        y = linear(weights, f"{prefix}.mlp.fc1", y, (self._intermediate,), bias=True)
        y = ops.activation(y, self._activation)
        return ops.add(x, linear(weights, f"{prefix}.mlp.fc2", y, (hidden,), bias=True))
