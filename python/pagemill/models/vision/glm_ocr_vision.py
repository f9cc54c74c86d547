"""The vision transformer of GLM-OCR: GLM-4.1V's without learned embeddings of places, with norms of
queries and keys, and biases.

Weights: those of glm4v_vision.py, without `post_conv_layernorm` and `embeddings`, and
`blocks.<i>.attn.{q_norm, k_norm}`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config, EncoderInputs
from pagemill.models.config_keys import Defaults, positive_int
from pagemill.models.vision.glm4v_vision import Glm4vVisionTower
from pagemill.ops.trace import Tensor

# Those of the configuration's class.
_DEFAULTS = {
    "depth": 24,
    "hidden_size": 1024,
    "attention_bias": True,
    "num_heads": 16,
    "out_hidden_size": 1536,
    "intermediate_size": 4096,
    "patch_size": 14,
}


class GlmOcrVisionTower(Glm4vVisionTower):
    """One tower."""

    kinds = ("glm_ocr_vision", "glm_ocr")

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        super().__init__(config)
        self.output_bias = self.bias
        self.mlp_parts = replace(self.mlp_parts, bias=self.bias)
        self.mlp_size = positive_int(config, "intermediate_size")
        self.merger_size = self.width * self.colors
        self.place_table = None

    def first(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x, _ = self.embed(weights, inputs, bias=True)
        return x

    def project(self, weights: Weights, name: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(weights, name, x)
        q, k = (
            norm.rms_norm(weights, f"{name}.{which}_norm", heads, self.eps)
            for which, heads in (("q", q), ("k", k))
        )
        return q, k, v
