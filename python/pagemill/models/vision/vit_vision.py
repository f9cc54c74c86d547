"""ViT and DeiT: patches of an image, behind a class token and, in DeiT, a token of distillation, to
vectors, one for each of them.

Weights: `embeddings.{cls_token, distillation_token, patch_embeddings.projection,
position_embeddings}`, `encoder.layer.<i>.{layernorm_before, attention.attention.{query,key,value},
attention.output.dense, layernorm_after, intermediate.dense, output.dense}` and `layernorm`.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
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

# Those of the configurations' classes, which are alike.
_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}


class VitVisionTower:
    """One tower. An image has `tokens`: `tokens_in_front`, and one for each patch."""

    step_rows = 0
    unread = (r"pooler\.dense", "the vectors of all patches are used")

    def __init__(self, config: Config) -> None:
        distilled = config.get("model_type") == "deit"
        config = Defaults(config, _DEFAULTS)
        self._in_front = ("cls_token", "distillation_token") if distilled else ("cls_token",)
        self.hidden_size = positive_int(config, "hidden_size")
        self._layers = layer_count(config)
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "gelu")
        self._eps = epsilon(config, "layer_norm_eps", 1e-12)
        self._qkv_bias = flag(config, "qkv_bias", True)
        self._grid = PatchGrid(
            colors=positive_int(config, "num_channels", 3),
            size=square_side(config, "image_size"),
            patch=square_side(config, "patch_size"),
        )
        heads = positive_int(config, "num_attention_heads")
        head_dim, rest = divmod(self.hidden_size, heads)
        if rest:
            raise ModelConfigError(f"{heads} heads cannot share {self.hidden_size} features")
        self._shape = attention.AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5)

    @property
    def tokens(self) -> int:
        """Of an image."""
        return len(self._in_front) + self._grid.rows

    @property
    def channels(self) -> int:
        """Elements of a row of `features`."""
        return self._grid.channels

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """Pixels [colors, height, width] -> zeros for the tokens in front, and the patches.

        Raises:
            ValueError: the image has a grid, or another shape than the tower's.
        """
        patches = self._grid.features(image).rows
        rows = np.pad(patches, ((len(self._in_front), 0), (0, 0)))
        return MediaFeatures(rows, self.tokens)

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """`features` [T, channels] -> [T, hidden], normalized."""
        x = self._embed(weights, inputs)
        for layer in range(self._layers):
            x = self._layer(weights, f"encoder.layer.{layer}", x)
        return norm.layer_norm(weights, "layernorm", x, self._eps)

    def _embed(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        prefix, hidden = "embeddings", self.hidden_size
        projection = f"{prefix}.patch_embeddings.projection"
        x = ops.linear(inputs.media.rows, weights.patches(projection, self._grid.kernel(hidden)))
        # What is added to each token in front, and to all patches.
        names = (*(f"{prefix}.{name}" for name in self._in_front), f"{projection}.bias")
        kinds = weights.vectors(names, hidden, table=True)
        x = ops.add(x, ops.embedding(inputs.positions, kinds, outside=len(self._in_front)))
        places = weights.small(f"{prefix}.position_embeddings", (self.tokens, hidden))
        return ops.add(x, ops.embedding(inputs.positions, places))

    def _layer(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        hidden = self.hidden_size
        y = norm.layer_norm(weights, f"{prefix}.layernorm_before", x, self._eps)
        names = [f"{prefix}.attention.attention.{name}" for name in ("query", "key", "value")]
        q, k, v = attention.project_qkv(weights, names, y, self._shape, bias=self._qkv_bias)
        y = attention.attend_both_ways(q, k, v, self._shape)
        y = linear(weights, f"{prefix}.attention.output.dense", y, (hidden,), bias=True)
        x = ops.add(x, y)
        y = norm.layer_norm(weights, f"{prefix}.layernorm_after", x, self._eps)
        y = linear(weights, f"{prefix}.intermediate.dense", y, (self._intermediate,), bias=True)
        y = ops.activation(y, self._activation)
        return ops.add(x, linear(weights, f"{prefix}.output.dense", y, (hidden,), bias=True))
