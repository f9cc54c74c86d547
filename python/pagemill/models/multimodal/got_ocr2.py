"""GOT-OCR2: SAM's vision tower, two convolutions with a stride of two, a linear layer, and Qwen2.

Weights: `vision_tower.` (sam_vision.py), `multi_modal_projector.{conv_upsampler1, conv_upsampler2,
multimodal_projector}` and `language_model.` (qwen2.py). All may be behind `model.`, with `lm_head`
beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, ModelConfigError, ModelTraits
from pagemill.models.config_keys import Defaults, inner_config, token_id
from pagemill.models.multimodal.decoder_part import (
    WithDecoder,
    decoder_part,
    ignored_in_part,
    parts_weights,
)
from pagemill.models.vision.sam_vision import SamVisionTower, convolution
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_KIND = "got_ocr2_vision"
# Those of the configuration's classes: published checkpoints leave some out.
_DEFAULTS = {"tie_word_embeddings": True, "image_token_index": 151859}
_TEXT = {
    "model_type": "qwen2",
    "vocab_size": 151860,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
}


class GotOcr2Model(WithDecoder):
    """One GOT-OCR2 model: a `TiledModel` (base.py). The tiles of an image follow each other."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        text = Defaults(inner_config(config, "text_config"), _TEXT)
        self._text = decoder_part({**config, "text_config": {**text}}, ("qwen2",))
        vision = inner_config(config, "vision_config")
        kind = vision.get("model_type", _KIND)
        if kind != _KIND:
            raise ModelConfigError(
                f"a vision tower of type {shown(kind)} in this architecture is not supported;"
                f" known: {_KIND}"
            )
        self._tower = SamVisionTower(vision)
        key = "image_token_id" if "image_token_id" in config else "image_token_index"
        self._placeholder = token_id(config, key, self._text.traits.vocab_size)
        self.ignored = ignored_in_part(self._text)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        width = self._text.traits.hidden_size
        media = self._tower.media_traits(width=width, placeholder=self._placeholder)
        return replace(self._text.traits, media=media)

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia]:
        return self._tower.tiles(image)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = parts_weights(weights, "multi_modal_projector.conv_upsampler1.weight")
        x = self._tower.output(parts.within("vision_tower."), inputs)
        projector = parts.within("multi_modal_projector.")
        side, width = self._tower.side, self._text.traits.hidden_size
        tokens, channels = self._tower.tokens, 2 * self._tower.channels
        x = convolution(projector, "conv_upsampler1", x, channels, side, tokens, stride=2)
        x = convolution(projector, "conv_upsampler2", x, width, side // 2, tokens, stride=2)
        return linear(projector, "multimodal_projector", x, (width,), bias=True)
