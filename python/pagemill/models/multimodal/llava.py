"""LLaVA: a vision tower of CLIP or SigLIP, a projector of two linear layers, and a decoder; and
ViP-LLaVA, whose projector has a norm in front.

Weights: `vision_tower.` or `vision_tower.vision_model.` (clip_vision.py, siglip_vision.py),
`multi_modal_projector.{projector_layernorm,linear_1,linear_2}`, `language_model.` (llama.py and
others). All may be behind `model.`, with `lm_head` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

from pagemill import ops
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import (
    activation,
    epsilon,
    flag,
    inner_config,
    token_id,
)
from pagemill.models.multimodal.decoder_part import (
    WithDecoder,
    decoder_part,
    ignored_in_part,
    parts_weights,
    tower_weights,
)
from pagemill.models.multimodal.pixtral import KIND as PIXTRAL
from pagemill.models.multimodal.pixtral import PixtralModel
from pagemill.models.vision.clip_vision import ClipVisionTower
from pagemill.models.vision.siglip_vision import SiglipVisionTower
from pagemill.models.vision.vision_layers import feature_depths
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_TOWERS: Mapping[str, type[ClipVisionTower | SiglipVisionTower]] = {
    "clip_vision_model": ClipVisionTower,
    "siglip_vision_model": SiglipVisionTower,
}


class LlavaModel(WithDecoder):
    """One LLaVA model. `texts` are the families of its decoder; `default_layers` of the tower are
    those whose results are used if the configuration names none. `merge` x `merge` patches are
    consecutive, for `selected`, what the projector reads. `kind` is that of its media, and
    `tower_name` in front of the weights of its tower."""

    texts: Sequence[str] = ("llama", "mistral", "qwen2")
    default_layers: Sequence[int] = (-2,)
    merge = 1
    kind: ClassVar[MediaKind] = "image"
    tower_name: ClassVar[str] = "vision_tower"

    def __init__(self, config: Config) -> None:
        self._text = decoder_part(config, self.texts)
        self._tower = _tower(inner_config(config, "vision_config"), self.merge)
        unread, why = self._tower.unread
        tower = rf"(model\.)?{self.tower_name}\.(vision_model\.)?"
        self.ignored = {
            rf"{tower}embeddings\.position_ids": "positions count up from 0",
            **ignored_in_part(self._text),
            rf"{tower}{unread}\..*": why,
        }
        self._activation = activation(config, "projector_hidden_act", "gelu")
        self._bias = flag(config, "multimodal_projector_bias", True)
        self._depths = feature_depths(config, self.default_layers, self._tower.layers)
        self._drops_class = _drops_class_token(config, self._tower.class_tokens)
        key = f"{self.kind}_token_index"
        key = key if key in config else f"{self.kind}_token_id"
        self._placeholder = token_id(config, key, self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self | PixtralModel:
        """A model with Pixtral's tower, whose images have any size, is of another class."""
        vision = inner_config(config, "vision_config")
        return PixtralModel(config) if vision.get("model_type") == PIXTRAL else cls(config)

    @property
    def traits(self) -> ModelTraits:
        tower = self._tower
        media = MediaTraits(
            rows=tower.grid.rows,
            channels=tower.grid.channels,
            class_tokens=tower.class_tokens,
            tokens=self._tokens,
            width=self._text.traits.hidden_size,
            placeholders={self.kind: self._placeholder},
        )
        return replace(self._text.traits, media=media)

    @property
    def _tokens(self) -> int:
        return self._tower.grid.rows + (0 if self._drops_class else self._tower.class_tokens)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        if image.grid is not None:
            raise ValueError("an image of this model is an array of pixels, without a grid")
        return MediaFeatures(self._tower.grid.patches(image.values), self._tokens)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = self._parts(weights)
        tower = tower_weights(parts, self.tower_name)
        x = self._tower.hidden(tower, inputs.media, inputs.positions, self._depths)
        self._tower.claim_rest(tower, max(self._depths))
        x = self.selected(x, inputs)
        return self._project(parts.within("multi_modal_projector."), x)

    def selected(self, x: Tensor, inputs: EncoderInputs) -> Tensor:
        """Of the results of the tower [T, hidden] those that the projector reads."""
        return ops.select_rows(x, inputs.media.tokens) if self._drops_class else x

    def _parts(self, weights: Weights) -> Weights:
        """The weights beside those of the decoder."""
        return parts_weights(weights, "multi_modal_projector.linear_1.weight")

    def _project(self, weights: Weights, x: Tensor) -> Tensor:
        width = self._text.traits.hidden_size
        x = linear(weights, "linear_1", x, (width,), bias=self._bias)
        x = ops.activation(x, self._activation)
        return linear(weights, "linear_2", x, (width,), bias=self._bias)


class VipLlavaModel(LlavaModel):
    """One ViP-LLaVA model."""

    default_layers = (-2, -5, -8, -11, 6)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._eps = epsilon(config, "projector_layernorm_eps", 1e-5)

    def _project(self, weights: Weights, x: Tensor) -> Tensor:
        x = norm.layer_norm(weights, "projector_layernorm", x, self._eps)
        return super()._project(weights, x)


def _tower(config: Config, merge: int) -> ClipVisionTower | SiglipVisionTower:
    kind: object = config.get("model_type", "clip_vision_model")
    if not isinstance(kind, str) or kind not in _TOWERS:
        raise ModelConfigError(
            f"a vision tower of type {shown(kind)} in this architecture is not supported; known:"
            f" {', '.join(_TOWERS)}"
        )
    return _TOWERS[kind](config, merge=merge)


def _drops_class_token(config: Config, class_tokens: int) -> bool:
    strategy = config.get("vision_feature_select_strategy", "default")
    if strategy not in ("default", "full"):
        raise ModelConfigError(
            f"vision_feature_select_strategy is {shown(strategy)}; known: default, full"
        )
    if strategy == "default" and not class_tokens:
        raise ModelConfigError(
            "vision_feature_select_strategy is 'default', which drops the class token, but the"
            " vision tower has none: it must be 'full'"
        )
    return strategy == "default"
