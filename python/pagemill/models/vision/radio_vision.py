"""RADIO, the vision transformer of Nemotron's models for images of any size: learned embeddings of
places that are interpolated, and learned class and register tokens behind the patches.

Weights: `radio_model.model.patch_generator.{embedder, pos_embed, cls_token.token}` and in layer i
`radio_model.model.blocks.<i>.{norm1, attn.{qkv, proj}, norm2, mlp.{fc1, fc2}}`.

Nothing in the layers depends on the order of rows, so that learned tokens may follow the patches;
the embeddings that these rows would make have no place among those of an image.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import (
    Defaults,
    activation,
    epsilon,
    flag,
    number,
    positive_int,
    refuse,
)
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.place_embeddings import bilinear_shares, share_products
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_MLP = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
_BAND = 16  # rows of the table of places that are read together
_MAX_SIDE = 128
_MAX_LEARNED = 64
# Those of the configuration's class: published checkpoints leave them out.
_DEFAULTS = {
    "hidden_size": 1280,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "patch_size": 16,
    "num_channels": 3,
    "max_img_size": 2048,
    "num_cls_tokens": 3,
    "num_registers": 7,
}


class RadioVisionTower(GridVisionTower):
    """One tower. A row of features has a patch, shares of places, and behind the patches of an
    image a 1 for each learned token. What a model merges is what `hidden` returns."""

    kinds = ("radio",)
    width_key = "hidden_size"
    turns = False
    row_by_row = True

    def __init__(self, config: Config, *, merge: int) -> None:
        """A model merges `merge` x `merge` patches."""
        refuse(config, "use_swiglu_ffn")
        config = Defaults(config, _DEFAULTS)
        sizes = {
            "model_type": "radio",
            "depth": config["num_hidden_layers"],
            "num_heads": config["num_attention_heads"],
            "in_channels": config["num_channels"],
            "spatial_merge_size": merge,
            "temporal_patch_size": 1,
        }
        super().__init__({**config, **sizes})
        ratio = number(config, "mlp_ratio", 4.0, least=1.0, most=64.0)
        self._intermediate = int(self.hidden_size * ratio)
        self._activation = activation(config, "hidden_act", "gelu")
        self.eps = epsilon(config, "layer_norm_eps", 1e-6)
        self.bias = flag(config, "qkv_bias", True)
        self._side = positive_int(config, "max_img_size") // self.patch
        self._learned = positive_int(config, "num_cls_tokens") + positive_int(
            config, "num_registers"
        )
        if not 0 < self._side <= _MAX_SIDE or self._side % _BAND or self._learned > _MAX_LEARNED:
            raise ModelConfigError(
                f"max_img_size has {self._side} patches in a row, and there are {self._learned}"
                f" num_cls_tokens and num_registers: they must be multiples of {_BAND} up to"
                f" {_MAX_SIDE}, and at most {_MAX_LEARNED}"
            )

    @property
    def place_channels(self) -> int:
        return 2 * self._side + self._learned

    def places(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        """The shares of each row, and of each column, of learned embeddings, which span a square
        around the image; and zeros."""
        longer = max(height, width)
        shares = [bilinear_shares(each, longer, self._side) for each in cells.T]
        return np.concatenate([*shares, np.zeros((len(cells), self._learned), np.float32)], 1)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """Patches [patches, elements] with their grid -> rows of features of them, and of learned
        tokens."""
        found = super().features(image)
        learned = np.eye(self._learned, dtype=np.float32)
        behind = np.pad(learned, ((0, 0), (self.channels - self._learned, 0)))
        placement = np.arange(found.tokens, dtype=np.int32)
        return MediaFeatures(
            np.concatenate([found.rows, behind]), found.tokens, placement=placement
        )

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [T, hidden]; they are not merged."""
        weights = weights.within("radio_model.model.")
        x = self._embed(weights.within("patch_generator."), inputs)
        for layer in range(self.layers):
            x = self._layer(weights, f"blocks.{layer}", x)
        return x

    def _embed(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        hidden, side = self.hidden_size, self._side
        patches, own = ops.split(inputs.media.rows, self.channels - self.place_channels)
        shares, learned = ops.split(own, 2 * side)
        x = linear(weights, "embedder", patches, (hidden,))
        rows, columns = ops.split(shares, side)
        places, stored = (hidden, side**2), (1, side**2, hidden)
        # Band by band: the products of all rows and columns are many.
        for first in range(0, side, _BAND):
            band = rows
            if first + _BAND < side:
                band, rows = ops.split(rows, _BAND)
            products = share_products(weights, ops.concat(band, columns), _BAND)
            part = Part(first * side, (first + _BAND) * side, side**2)
            table = weights.turned_matrix("pos_embed", places, columns=part, stored=stored)
            x = ops.add(x, ops.linear(products, table))
        tokens = weights.turned_matrix("cls_token.token", (hidden, self._learned))
        return ops.add(x, ops.linear(learned, tokens))

    def _layer(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        shape = self.shape
        y = norm.layer_norm(weights, f"{prefix}.norm1", x, self.eps)
        q, k, v = attention.project_qkv(weights, [f"{prefix}.attn.qkv"], y, shape, bias=self.bias)
        y = attention.attend_both_ways(q, k, v, shape)
        x = ops.add(x, linear(weights, f"{prefix}.attn.proj", y, (self.hidden_size,), bias=True))
        y = norm.layer_norm(weights, f"{prefix}.norm2", x, self.eps)
        y = mlp(weights, f"{prefix}.mlp", y, self._intermediate, self._activation, _MLP)
        return ops.add(x, y)
