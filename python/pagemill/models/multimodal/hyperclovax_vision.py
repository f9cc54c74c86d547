"""HyperCLOVA X Vision: Qwen2.5-VL's vision tower, one linear layer, and HyperCLOVA X, whose tokens
of images and videos have the positions of text.

Weights: `model.vision_model.` (qwen2_5_vl_vision.py), `model.vision_projector`, and HyperCLOVA X's
behind `model.language_model.`. As `transformers` has them, the last part is the head alone, and the
others have `language_model.` behind `model.`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs
from pagemill.models.config_keys import Defaults, inner_config
from pagemill.models.multimodal.decoder_part import decoder_part
from pagemill.models.multimodal.grid_media import GridMediaModel, placeholders_of
from pagemill.models.vision.qwen2_5_vl_vision import Qwen25VlVisionTower
from pagemill.ops.trace import Tensor

# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {"image_token_id": 128060, "video_token_id": 128061, "tie_word_embeddings": True}
_TEXT = "model.language_model."


class HyperClovaXVisionModel(GridMediaModel):
    """One HyperCLOVA X Vision model of the second version: a `TiledModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        text = decoder_part(config, ("hyperclovax",))
        tower = Qwen25VlVisionTower(inner_config(config, "vision_config"))
        super().__init__(text, tower, placeholders_of(config, text.traits.vocab_size))
        self.ignored = {
            **{rf"model\.language_model\.(?:{name})": why for name, why in text.ignored.items()},
            **self.ignored,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(weights.within("model.vision_model."), inputs)
        width = self._text.traits.hidden_size
        return linear(weights, "model.vision_projector", x, (width,), bias=True)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self._text.logits(self._with_head(weights), rows)

    def token_logits(
        self, weights: Weights, rows: Tensor, sums: Sequence[Mapping[int, float]]
    ) -> Tensor:
        return self._text.token_logits(self._with_head(weights), rows, sums)

    def named(self, weights: Weights) -> Weights:
        whole = weights.within(_TEXT)
        found = whole.has(f"{self._text.names.embedding}.weight")
        return whole if found else super().named(weights)

    def _with_head(self, weights: Weights) -> Weights:
        """Files may have the head beside the decoder, or in it."""
        whole = weights.within(_TEXT)
        has_head = whole.has(f"{self._text.names.head}.weight")
        return whole if has_head else self.named(weights)
