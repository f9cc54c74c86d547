"""LLaVA: CLIP's vision tower, a projector of two linear layers, and Llama.

Weights: `vision_tower.` or `vision_tower.vision_model.` (clip_vision.py),
`multi_modal_projector.{linear_1,linear_2}`, `language_model.` (llama.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast

from pagemill import ops
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.prefixed import PrefixedWeights
from pagemill.models.base import (
    Config,
    EncoderInputs,
    Image,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.clip_vision import CLASS_TOKENS, ClipVisionTower
from pagemill.models.config_keys import activation, as_list, flag, token_id
from pagemill.models.llama import LlamaModel
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_TEXT = "language_model."
_TOWER = r"vision_tower\.(vision_model\.)?"


class LlavaModel:
    """One LLaVA model."""

    ignored = {
        **{rf"language_model\.(?:{name})": why for name, why in LlamaModel.ignored.items()},
        rf"{_TOWER}post_layernorm\..*": "it is applied to the class token only",
        rf"{_TOWER}embeddings\.position_ids": "positions count up from 0",
    }

    def __init__(self, config: Config) -> None:
        text = _part(config, "text_config")
        if text.get("model_type", "llama") != "llama":
            raise ModelConfigError(
                f"a language model of type {shown(text['model_type'])} in LLaVA is not supported;"
                " known: llama"
            )
        tied = flag(config, "tie_word_embeddings", flag(text, "tie_word_embeddings", False))
        self._text = LlamaModel({**text, "tie_word_embeddings": tied})
        self._tower = ClipVisionTower(_part(config, "vision_config"))
        self._activation = activation(config, "projector_hidden_act", "gelu")
        self._bias = flag(config, "multimodal_projector_bias", True)
        self._layers = _selected_layers(config, self._tower.layers)
        self._keeps_class = _keeps_class_token(config)
        key = "image_token_index" if "image_token_index" in config else "image_token_id"
        self._placeholder = token_id(config, key, self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        text, tower = self._text.traits, self._tower
        media = MediaTraits(
            rows=tower.rows,
            channels=tower.channels,
            class_tokens=CLASS_TOKENS,
            tokens=self._tokens,
            width=text.hidden_size,
            placeholder=self._placeholder,
        )
        return ModelTraits(
            text.vocab_size,
            text.hidden_size,
            text.max_model_len,
            causal=True,
            generates=True,
            media=media,
        )

    @property
    def _tokens(self) -> int:
        return self._tower.rows + (CLASS_TOKENS if self._keeps_class else 0)

    def features(self, image: Image) -> MediaFeatures:
        if image.grid is not None:
            raise ValueError("an image of this model is an array of pixels, without a grid")
        return MediaFeatures(self._tower.features(image.pixels), self._tokens)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        older = weights.has("vision_tower.vision_model.embeddings.class_embedding")
        prefix = "vision_tower.vision_model." if older else "vision_tower."
        tower = PrefixedWeights(weights, prefix)
        x = self._tower.hidden(tower, inputs.media, inputs.positions, self._layers)
        self._tower.claim_rest(tower, self._layers)
        if not self._keeps_class:
            x = ops.select_rows(x, inputs.media.tokens)
        return self._project(PrefixedWeights(weights, "multi_modal_projector."), x)

    def _project(self, weights: Weights, x: Tensor) -> Tensor:
        width = self._text.traits.hidden_size
        x = linear(weights, "linear_1", x, (width,), bias=self._bias)
        x = ops.activation(x, self._activation)
        return linear(weights, "linear_2", x, (width,), bias=self._bias)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self._text.hidden(PrefixedWeights(weights, _TEXT), inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self._text.logits(PrefixedWeights(weights, _TEXT), rows)


def _part(config: Config, key: str) -> Mapping[str, Any]:
    part = config.get(key)
    if not isinstance(part, Mapping):
        raise ModelConfigError(f"the configuration needs {key} to be an object")
    return cast("Mapping[str, Any]", part)


def _selected_layers(config: Config, layers: int) -> int:
    """The number of tower layers whose results are used. `vision_feature_layer` counts the
    embeddings as 0, or from the end."""
    value: object = config.get("vision_feature_layer", -2)
    listed = as_list(value)
    if listed is not None and len(listed) == 1:
        value = listed[0]
    if type(value) is not int:
        raise ModelConfigError(
            f"vision_feature_layer is {shown(value)}; one layer is supported, not several"
        )
    selected = value if value >= 0 else layers + 1 + value
    if not 0 <= selected <= layers:
        raise ModelConfigError(f"vision_feature_layer is {value}, of {layers} layers")
    return selected


def _keeps_class_token(config: Config) -> bool:
    strategy = config.get("vision_feature_select_strategy", "default")
    if strategy not in ("default", "full"):
        raise ModelConfigError(
            f"vision_feature_select_strategy is {shown(strategy)}; known: default, full"
        )
    return strategy == "full"
