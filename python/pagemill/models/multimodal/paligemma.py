"""PaliGemma and PaliGemma 2: SigLIP's vision tower, one linear layer, and Gemma or Gemma 2, in
which all tokens of a prompt see each other (a prefix language model).

Weights: `vision_tower.` or `vision_tower.vision_model.` (siglip_vision.py),
`multi_modal_projector.linear` and `language_model.` (gemma.py, gemma2.py). All may be behind
`model.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, ModelTraits
from pagemill.models.config_keys import Defaults, inner_config, token_id
from pagemill.models.multimodal.decoder_part import (
    WithDecoder,
    decoder_part,
    ignored_in_part,
    parts_weights,
    tower_weights,
)
from pagemill.models.vision.siglip_vision import SiglipVisionTower, tower_config
from pagemill.ops.trace import Tensor

# Those of the configurations' classes: published checkpoints leave them out.
_DEFAULTS = {"image_token_index": 256000, "tie_word_embeddings": True}


class PaliGemmaModel(WithDecoder):
    """One PaliGemma model."""

    ignored: Mapping[str, str] = {
        r"(model\.)?vision_tower\.(vision_model\.)?head\..*": "all patches' vectors are used",
    }

    def __init__(self, config: Config) -> None:
        # Whether its text sees all of itself is not a setting here.
        text = {**inner_config(config, "text_config"), "use_bidirectional_attention": None}
        config = Defaults({**config, "text_config": text}, _DEFAULTS)
        self._text = decoder_part(config, ("gemma", "gemma2"))
        self._tower = SiglipVisionTower(tower_config(config))
        self._placeholder = token_id(config, "image_token_index", self._text.traits.vocab_size)
        self.ignored = {**self.ignored, **ignored_in_part(self._text)}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        text = self._text.traits
        media = self._tower.grid.media_traits(width=text.hidden_size, placeholder=self._placeholder)
        return replace(text, causal=False, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.grid.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = parts_weights(weights, "multi_modal_projector.linear.weight")
        tower = tower_weights(parts, "vision_tower")
        x = self._tower.hidden(tower, inputs.media, inputs.positions, (self._tower.layers,))
        x = self._tower.post_norm(tower, x)
        width = self._text.traits.hidden_size
        return linear(parts, "multi_modal_projector.linear", x, (width,), bias=True)
