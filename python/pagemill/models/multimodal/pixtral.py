"""Pixtral: its vision tower, a projector of two linear layers, and a decoder; and Mistral 3, which
merges squares of patches in front of the projector.

Weights: `vision_tower.` (pixtral_vision.py), `multi_modal_projector.{norm,
patch_merger.merging_layer, linear_1, linear_2}`, of which Pixtral has the last two, and
`language_model.` (mistral.py and others). All may be behind `model.`, with `lm_head` beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.patch_merger import merge_patches
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import activation, flag, inner_config, positive_int, token_id
from pagemill.models.multimodal.decoder_part import (
    WithDecoder,
    decoder_part,
    ignored_in_part,
    parts_weights,
)
from pagemill.models.multimodal.language_part import LanguagePart, Mistral3LanguagePart
from pagemill.models.vision.pixtral_vision import PixtralVisionTower
from pagemill.models.vision.vision_layers import feature_depths
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

KIND = "pixtral"
"""The `model_type` of the tower's configuration."""
# Tokens behind each row of an image but the last, and behind the last.
_ROW_ENDS = ("[IMG_BREAK]", "[IMG_END]")


class PixtralModel(WithDecoder):
    """One Pixtral model in the layout of LLaVA. A subclass changes `texts`, the families of the
    decoder, the defaults of `depth` and `bias`, the names of the `tower` and the `projector`, the
    `row_ends`, and `_merge_size` and `_merged`."""

    texts: Sequence[str] = ("llama", "mistral", "qwen2")
    default_depth = -2
    default_bias = True
    tower, projector = "vision_tower", "multi_modal_projector"
    row_ends: tuple[str, str] | None = _ROW_ENDS

    def __init__(self, config: Config) -> None:
        self._text = decoder_part(config, self.texts)
        self._merge = self._merge_size(config)
        self._tower = PixtralVisionTower(inner_config(config, "vision_config"), merge=self._merge)
        self._depths = feature_depths(config, (self.default_depth,), self._tower.layers)
        self.ignored = self._unread()
        self._activation = activation(config, "projector_hidden_act", "gelu")
        self._bias = flag(config, "multimodal_projector_bias", self.default_bias)
        key = "image_token_index" if "image_token_index" in config else "image_token_id"
        self._placeholder = token_id(config, key, self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self | LanguagePart:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = MediaTraits(
            rows=self._merge**2,
            channels=self._tower.channels,
            tokens=1,
            width=self._text.traits.hidden_size,
            placeholders={"image": self._placeholder},
            any_size=True,
            grid=True,
            row_ends=self.row_ends,
        )
        return replace(self._text.traits, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image, row_ends=self.row_ends is not None)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = parts_weights(weights, f"{self.tower}.patch_conv.weight")
        tower = parts.within(f"{self.tower}.")
        x = self._tower.hidden(tower, inputs, self._depths)
        projector = parts.within(f"{self.projector}.")
        x = self._merged(projector, x, inputs)
        width = self._text.traits.hidden_size
        x = linear(projector, "linear_1", x, (width,), bias=self._bias)
        x = ops.activation(x, self._activation)
        return linear(projector, "linear_2", x, (width,), bias=self._bias)

    def _merge_size(self, config: Config) -> int:
        strategy = config.get("vision_feature_select_strategy", "default")
        if strategy != "full":
            raise ModelConfigError(
                f"vision_feature_select_strategy is {shown(strategy)}, but a tower of type {KIND}"
                " has no class token: it must be 'full'"
            )
        return 1

    def _merged(self, weights: Weights, x: Tensor, inputs: EncoderInputs) -> Tensor:
        """x [T, hidden] -> what the projector reads, a row for each embedding."""
        del weights, inputs
        return x

    def _unread(self) -> dict[str, str]:
        ignored = ignored_in_part(self._text)
        behind = "|".join(map(str, range(max(self._depths), self._tower.layers)))
        if behind:
            name = rf"(model\.)?{self.tower}\.transformer\.layers\.({behind})\..*"
            ignored[name] = "nothing reads the results of these layers"
        return ignored


class Mistral3Model(PixtralModel):
    """One model of Mistral Small 3.1 and later, Ministral 3 or Mistral 4."""

    texts = ("ministral3", "mistral", "mistral4")
    default_depth = -1
    default_bias = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if len(self._depths) > 1:
            raise ModelConfigError(
                "vision_feature_layer lists several layers: patches of one are merged"
            )

    @classmethod
    def from_config(cls, config: Config) -> Self | LanguagePart:
        """A configuration without a tower is that of the text alone."""
        if config.get("vision_config") is None:
            return Mistral3LanguagePart(config)
        return cls(config)

    def _merge_size(self, config: Config) -> int:
        return positive_int(config, "spatial_merge_size", 2)

    def _merged(self, weights: Weights, x: Tensor, inputs: EncoderInputs) -> Tensor:
        hidden, count = self._tower.hidden_size, self._merge**2
        x = norm.rms_norm(weights, "norm", x, self._text.sizes.norm_eps)
        x = ops.select_rows(x, inputs.media.tokens, count=count)
        name, shape = "patch_merger.merging_layer", (hidden, count * hidden)
        return merge_patches(weights, name, x, shape, count=count)
