"""Gemma 3 with images: SigLIP's vision tower, squares of patches averaged in front of a norm and
one linear layer, and Gemma 3's decoder, in which the tokens of an image see each other.

Weights: `vision_tower.` or `vision_tower.vision_model.` (siglip_vision.py),
`multi_modal_projector.{mm_soft_emb_norm, mm_input_projection_weight}` and `language_model.`
(gemma3.py). All may be behind `model.`.

An image is one of the tower's size. Crops of a long one may come behind it (pan and scan), each an
item of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.media_rows import side_by_side
from pagemill.models.base import Config, EncoderInputs, ModelConfigError, ModelTraits
from pagemill.models.config_keys import Defaults, epsilon, positive_int, token_id
from pagemill.models.multimodal.decoder_part import ignored_in_part, tower_weights
from pagemill.models.multimodal.language_part import Gemma3LanguagePart
from pagemill.models.vision.siglip_vision import SiglipVisionTower, tower_config
from pagemill.ops.trace import Tensor

_TOWER_NAME = r"(model\.)?vision_tower\.(vision_model\.)?"
_BEFORE, _BEHIND = "\n\n<start_of_image>", "<end_of_image>\n\n"
_BEFORE_IMAGE, _BEFORE_CROPS, _BETWEEN_CROPS = (
    "Here is the original image ",
    " and here are some crops to help you see better ",
    " ",
)
# Those of the configurations' classes: published checkpoints leave them out.
_DEFAULTS = {"mm_tokens_per_image": 256, "image_token_index": 262144}


class Gemma3MediaModel(Gemma3LanguagePart):
    """One Gemma 3 model with its tower: a `TiledModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        config = Defaults(config, _DEFAULTS)
        vision = tower_config(config)
        self._merge = _merged_side(config, vision)
        self._tower = SiglipVisionTower(vision, merge=self._merge)
        self._eps = epsilon(vision, "layer_norm_eps", 1e-6)
        self._placeholder = token_id(config, "image_token_index", self.text.traits.vocab_size)
        self.ignored = {
            rf"{_TOWER_NAME}head\..*": "the vectors of all patches are used",
            **ignored_in_part(self.text),
        }

    @classmethod
    def from_config(cls, config: Config) -> Self | Gemma3LanguagePart:
        """A configuration without a tower is that of the text alone."""
        if config.get("vision_config") is None:
            return Gemma3LanguagePart(config)
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        text = self.text.traits
        media = self._tower.grid.media_traits(width=text.hidden_size, placeholder=self._placeholder)
        return replace(text, media=replace(media, item_ends=True, joins_newlines=True))

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
        whole, *crops = self._tower.grid.tiles(image)
        if not crops:
            return _BEFORE, whole, _BEHIND
        parts: list[PreparedMedia | str] = [_BEFORE_IMAGE + _BEFORE, whole]
        between = _BEHIND + _BEFORE_CROPS + _BEFORE
        for crop in crops:
            parts += between, crop
            between = _BEHIND + _BETWEEN_CROPS + _BEFORE
        return *parts, _BEHIND

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.grid.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        name = "multi_modal_projector.mm_input_projection_weight"
        whole = weights.within("" if weights.has(name) else "model.")
        tower = tower_weights(whole, "vision_tower")
        x = self._tower.hidden(tower, inputs.media, inputs.positions, (self._tower.layers,))
        x = self._tower.post_norm(tower, x)
        squares = ops.select_rows(x, inputs.media.tokens, count=self._merge**2)
        sums = reduce(ops.add, side_by_side(squares, self._tower.hidden_size))
        x = ops.scale(sums, 1 / self._merge**2)
        x = norm.rms_norm(
            whole, "multi_modal_projector.mm_soft_emb_norm", x, self._eps, weight_offset=1.0
        )
        shape = (self.text.traits.hidden_size, x.width)
        return ops.linear(x, whole.turned_matrix(name, shape))


def _merged_side(config: Config, vision: Config) -> int:
    """The side of a square of patches whose average is a token."""
    tokens = positive_int(config, "mm_tokens_per_image")
    patches = positive_int(vision, "image_size") // positive_int(vision, "patch_size")
    side = math.isqrt(tokens)
    if side**2 != tokens or patches % side or patches < side:
        raise ModelConfigError(
            f"mm_tokens_per_image is {tokens}: it must be a square whose side divides the"
            f" {patches} patches in a row of an image"
        )
    return patches // side
