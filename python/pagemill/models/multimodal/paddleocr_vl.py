"""PaddleOCR-VL: SigLIP's layers for images of any size, with positions of rows and columns, squares
of patches merged in a projector, and Ernie 4.5's decoder with positions of three dimensions.

Weights: `visual.vision_model.{embeddings.{patch_embedding, position_embedding}, post_layernorm}`
and those of vision_layers.py, `mlp_AR.{pre_norm, linear_1, linear_2}`, and the decoder's as
Llama's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import Defaults, inner_config, positive_int, refuse
from pagemill.models.llama import LlamaModel
from pagemill.models.multimodal.decoder_part import head_is_tied
from pagemill.models.multimodal.language_part import LanguagePart
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.place_embeddings import PlaceTable, bilinear_shares, place_embeddings
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_EPS = 1e-5
_IMAGE_SIZE = 384
# Those of the configuration's class: published checkpoints may leave them out.
_VISION_DEFAULTS = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "patch_size": 14,
}


class PaddleOcrVlVisionTower(GridVisionTower):
    """One tower."""

    kinds = ("paddleocr_vl_vision", "paddleocr_vl")
    row_by_row = True

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _VISION_DEFAULTS)
        names = {"depth": "num_hidden_layers", "num_heads": "num_attention_heads"}
        same = {name: config[own] for name, own in names.items()}
        colors = positive_int(config, "num_channels", 3)
        super().__init__({**config, **same, "in_channels": colors, "temporal_patch_size": 1})
        self._layers = VisionLayers(config, eps=1e-6, hidden_act="gelu_pytorch_tanh")
        self._kernel = (self.hidden_size, colors, self.patch, self.patch)
        pixels = positive_int(config, "image_size", _IMAGE_SIZE)
        if pixels < self.patch:
            raise ModelConfigError(f"image_size {pixels} has no patch of {self.patch} pixels")
        self.place_table = PlaceTable.of(
            (pixels // self.patch) ** 2, "the number of patches of image_size", bilinear_shares
        )

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [T, hidden], normalized; they are not merged."""
        name = "embeddings.patch_embedding"
        rows, places = ops.split(inputs.media.rows, self.channels - self.place_channels)
        bias = weights.vector(f"{name}.bias", self.hidden_size)
        x = ops.linear(rows, weights.patches(name, self._kernel), bias)
        name = "embeddings.position_embedding"
        x = ops.add(x, place_embeddings(weights, name, places, self.hidden_size))
        x = self._layers.hidden(weights, x, (self._layers.count,), self.rotary(weights, inputs))
        return norm.layer_norm(weights, "post_layernorm", x, self._layers.eps)


class PaddleOcrVlLanguagePart(LanguagePart):
    """The text of PaddleOCR-VL."""

    families = {"paddleocr_vl": LlamaModel, "paddleocr_vl_text": LlamaModel}
    defaults = {"rms_norm_eps": 1e-5}

    def __init__(self, config: Config) -> None:
        refuse(inner_config(config, "text_config"), "use_bias")
        super().__init__(config)


class PaddleOcrVlModel(Qwen2VlModel):
    """One PaddleOCR-VL model."""

    tower = PaddleOcrVlVisionTower
    part = PaddleOcrVlLanguagePart

    def __init__(self, config: Config) -> None:
        text = config.get("text_config")
        inner = cast("Config", text) if isinstance(text, Mapping) else config
        tied = head_is_tied(config, inner, default=True)
        width = positive_int(inner, "hidden_size")
        vision = {**inner_config(config, "vision_config"), "out_hidden_size": width}
        super().__init__({**config, "vision_config": vision, "tie_word_embeddings": tied})
        self._merged = self._tower.hidden_size * self._tower.merge**2
        self.ignored = {
            r"visual\.vision_model\.head\..*": "the vectors of all patches are used",
            r"visual\..*\.packing_position_embedding\.weight": "places are interpolated",
            **self.ignored,
        }

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(weights.within("visual.vision_model."), inputs)
        projector = weights.within("mlp_AR.")
        x = norm.layer_norm(projector, "pre_norm", x, _EPS)
        x = ops.select_rows(x, inputs.media.tokens, count=self._tower.merge**2)
        x = linear(projector, "linear_1", x, (self._merged,), bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        return linear(projector, "linear_2", x, (self._tower.width,), bias=True)
