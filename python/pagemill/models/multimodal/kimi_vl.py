"""Kimi-VL and Kimi K2.5 for images: MoonViT, squares of patches merged in a projector, and
DeepSeek-V3's decoder.

Weights: `vision_tower.` (moonvit.py), the projector, which is `multi_modal_projector.{pre_norm,
linear_1, linear_2}` or Kimi K2.5's `mm_projector.{pre_norm, proj.0, proj.2}`, and
`language_model.` (deepseek_v3.py).
"""

from __future__ import annotations

from typing import ClassVar, Self

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import (
    Config,
    EncoderInputs,
    ModelConfigError,
)
from pagemill.models.config_keys import Renamed, epsilon, inner_config, token_id
from pagemill.models.multimodal.decoder_part import decoder_part
from pagemill.models.multimodal.grid_media import GridMediaModel
from pagemill.models.vision.moonvit import MoonVitTower
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_TEXTS = ("deepseek_v3", "kimi_k2")
_K25_TOWER = "kimi_k25"  # published configurations have an empty name
_K25_NAMES = {
    name: f"vt_{name}"
    for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
}


class KimiVlModel(GridMediaModel):
    """One Kimi-VL model. A subclass changes the names of the projector and of its two layers, and
    `_vision`."""

    projector: ClassVar[tuple[str, str, str]] = ("multi_modal_projector", "linear_1", "linear_2")

    def __init__(self, config: Config) -> None:
        text = decoder_part(config, _TEXTS)
        vision = self._vision(inner_config(config, "vision_config"))
        placeholder = token_id(config, "media_placeholder_token_id", text.traits.vocab_size)
        super().__init__(text, MoonVitTower(vision), {"image": placeholder})
        self._eps = epsilon(vision, "projector_ln_eps", 1e-5)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(weights.within("vision_tower."), inputs)
        name, first, second = self.projector
        projector = weights.within(f"{name}.")
        x = norm.layer_norm(projector, "pre_norm", x, self._eps)
        x = ops.select_rows(x, inputs.media.tokens, count=self._tower.merge**2)
        x = linear(projector, first, x, (x.width,), bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        return linear(projector, second, x, (self._text.traits.hidden_size,), bias=True)

    def _vision(self, config: Config) -> Config:
        """The configuration of the tower and the projector under the tower's names."""
        return config


class KimiK25Model(KimiVlModel):
    """One model of Kimi K2.5 or K2.6."""

    projector = ("mm_projector", "proj.0", "proj.2")

    def _vision(self, config: Config) -> Config:
        known = {"mm_projector_type": "patchmerger", "projector_hidden_act": "gelu"}
        for key, only in known.items():
            if config.get(key, only) != only:
                raise ModelConfigError(f"{key} is {shown(config[key])}; known: {only}")
        kind = config.get("model_type") or _K25_TOWER
        return Renamed({**config, "model_type": kind}, _K25_NAMES)
