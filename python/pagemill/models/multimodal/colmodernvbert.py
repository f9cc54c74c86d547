"""ColModernVBERT: SigLIP's vision tower, squares of patches merged by a linear layer, and
ModernBERT. Each token's vector goes through one more linear layer (runner/tail.py), and vectors are
compared by late interaction.

Weights (published_names.py): `model.vision_model.` (siglip_vision.py),
`model.connector.modality_projection` and `model.text_model.` (encoders/modernbert.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, ModelConfigError, ModelTraits, StepInputs
from pagemill.models.config_keys import inner_config, positive_int, token_id
from pagemill.models.encoders.modernbert import ModernBertModel
from pagemill.models.multimodal.decoder_part import tower_weights
from pagemill.models.multimodal.idefics3 import image_parts
from pagemill.models.multimodal.retrieval import model_config
from pagemill.models.vision.siglip_vision import SiglipVisionTower, tower_config
from pagemill.ops.trace import Tensor


class ColModernVBertModel:
    """One ColModernVBERT model: a `TiledModel` (base.py)."""

    ignored: Mapping[str, str] = {
        r"model\.vision_model\.(vision_model\.)?head\..*": "all patches' vectors are used",
    }

    def __init__(self, config: Config) -> None:
        self._text = ModernBertModel(inner_config(config, "text_config"))
        self._merge = positive_int(config, "pixel_shuffle_factor", 4)
        self._tower = SiglipVisionTower(tower_config(config), merge=self._merge)
        self._placeholder = token_id(config, "image_token_id", self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(model_config(config))

    @property
    def traits(self) -> ModelTraits:
        width = self._text.traits.hidden_size
        media = self._tower.grid.media_traits(width=width, placeholder=self._placeholder)
        return replace(self._text.traits, media=media)

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
        return image_parts(self._tower.grid, image)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.grid.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower = tower_weights(weights, "model.vision_model")
        x = self._tower.hidden(tower, inputs.media, inputs.positions, (self._tower.layers,))
        x = self._tower.post_norm(tower, x)
        x = ops.select_rows(x, inputs.media.tokens, count=self._merge**2)
        width = self._text.traits.hidden_size
        return linear(weights, "model.connector.modality_projection", x, (width,))

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        text = weights.within("text_model.", behind="model.")
        return self._text.hidden(text, inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        del weights, rows
        raise ModelConfigError("a model for retrieval has no language model head")
