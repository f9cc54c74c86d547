"""The vision transformer of GLM-4.1V and GLM-4.5V: learned embeddings of places, which fit an image
of any size, gated feed-forward layers, and a convolution that merges squares.

Weights: those of grid_vision.py, `patch_embed.proj.bias`, `post_conv_layernorm`,
`embeddings.position_embedding`, `blocks.<i>.{norm1, norm2, mlp.{gate,up,down}_proj}`,
`post_layernorm`, `downsample`, `merger.{proj, post_projection_norm, {gate,up,down}_proj}`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.patch_merger import merge_patches
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import activation, epsilon, flag, positive_int
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.place_embeddings import PlaceTable, cubic_shares, place_embeddings
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_MERGER_EPS = 1e-5


class Glm4vVisionTower(GridVisionTower):
    """One tower. A subclass changes `first`, what the first layer reads, and `mlp_size`,
    `mlp_parts` and `merger_size`: of feed-forward layers, and of the one behind all layers."""

    kinds = ("glm4v_vision", "glm4v", "glm4v_moe_vision", "glm4v_moe")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.bias = flag(config, "attention_bias", False)
        self.output_bias = False
        self.mlp_size, self.mlp_parts = self.width, MlpParts()
        self.merger_size = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "silu")
        self.eps = epsilon(config, "rms_norm_eps", 1e-5)
        pixels = positive_int(config, "image_size", 336)
        if pixels < self.patch:
            raise ModelConfigError(f"image_size {pixels} has no patch of {self.patch} pixels")
        self.place_table = PlaceTable.of(
            (pixels // self.patch) ** 2, "the number of patches of image_size", cubic_shares
        )

    def first(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x, places = self.embed(weights, inputs, bias=True)
        assert places is not None
        x = norm.rms_norm(weights, "post_conv_layernorm", x, self.eps)
        name = "embeddings.position_embedding"
        return ops.add(x, place_embeddings(weights, name, places, self.hidden_size))

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self.first(weights, inputs)
        rotary = self.rotary(weights, inputs)
        for layer in range(self.layers):
            x = self._layer(weights, layer, x, rotary)
        x = norm.rms_norm(weights, "post_layernorm", x, self.eps)
        x = ops.select_rows(x, inputs.media.tokens, count=self.merge**2)
        kernel = (self.width, self.hidden_size, self.merge, self.merge)
        x = merge_patches(weights, "downsample", x, kernel, count=self.merge**2, bias=True)
        x = linear(weights, "merger.proj", x, (self.width,))
        x = norm.layer_norm(weights, "merger.post_projection_norm", x, _MERGER_EPS)
        x = ops.activation(x, ActivationKind.GELU)
        return mlp(weights, "merger", x, self.merger_size, self._activation)

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        prefix = f"blocks.{layer}"
        y = norm.rms_norm(weights, f"{prefix}.norm1", x, self.eps)
        x = ops.add(x, self.attend(weights, layer, y, rotary))
        y = norm.rms_norm(weights, f"{prefix}.norm2", x, self.eps)
        y = mlp(weights, f"{prefix}.mlp", y, self.mlp_size, self._activation, self.mlp_parts)
        return ops.add(x, y)
