"""Qwen2-VL: a vision tower for images of any size, and Qwen2 with positions of three dimensions.

Weights: `visual.` (qwen2_vl_vision.py), and Qwen2's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, cast

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.prefixed import PrefixedWeights
from pagemill.layers.rotary import bind_grid_rotary
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import as_list, flag, rope_parameters, token_id
from pagemill.models.qwen2 import Qwen2Model
from pagemill.models.qwen2_vl_vision import Qwen2VlVisionTower
from pagemill.ops.program import GRID_DIMS
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown


class Qwen2VlModel:
    """One Qwen2-VL model."""

    ignored = Qwen2Model.ignored

    def __init__(self, config: Config) -> None:
        text = _text_config(config)
        rope = dict(rope_parameters(text))
        sections = rope.pop("mrope_section", None)
        # Older configurations list M-RoPE as a scaling rule.
        if rope.get("rope_type") == "mrope":
            rope["rope_type"] = "default"
        tied = flag(config, "tie_word_embeddings", flag(text, "tie_word_embeddings", False))
        self._text = Qwen2Model({**text, "rope_parameters": rope, "tie_word_embeddings": tied})
        table = self._text.rotary[0]
        assert table is not None
        self._rotary = table
        self._dims = _dims_of_pairs(sections, len(table.inv_freq))
        vision = config.get("vision_config")
        if not isinstance(vision, Mapping):
            raise ModelConfigError("the configuration needs vision_config to be an object")
        self._tower = Qwen2VlVisionTower(cast("Mapping[str, Any]", vision))
        traits = self._text.traits
        if self._tower.width != traits.hidden_size:
            raise ModelConfigError(
                f"vision_config's hidden_size is {self._tower.width}, but the language model has"
                f" {traits.hidden_size}"
            )
        self._placeholder = token_id(config, "image_token_id", traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = MediaTraits(
            rows=self._tower.merge**2,
            channels=self._tower.channels,
            class_tokens=0,
            tokens=1,
            width=self._tower.width,
            placeholders={"image": self._placeholder},
            merged=True,
            any_size=True,
            grid=True,
            token_grid=True,
        )
        return replace(self._text.traits, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return self._tower.hidden(PrefixedWeights(weights, "visual."), inputs)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        if inputs.grid_positions is None:  # text alone: a token's three positions are the same
            return self._text.hidden(weights, inputs)
        rotary = bind_grid_rotary(
            weights, "inv_freq", self._rotary, self._dims, inputs.grid_positions
        )
        return self._text.hidden_by(weights, inputs, [rotary] * self._text.sizes.layers)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self._text.logits(weights, rows)


def _text_config(config: Config) -> Config:
    """Older configurations have the language model's keys among their own."""
    text = config.get("text_config")
    return cast("Config", text) if isinstance(text, Mapping) else config


def _dims_of_pairs(sections: object, pairs: int) -> list[int]:
    """The position dimension by which each pair rotates: `sections` has the numbers of pairs for
    time, rows and columns."""
    counts = as_list(sections) or []
    valid = len(counts) == GRID_DIMS and all(type(n) is int and n >= 0 for n in counts)
    if not valid or sum(counts) != pairs:
        raise ModelConfigError(
            f"mrope_section must have {GRID_DIMS} numbers whose sum is {pairs}, it is"
            f" {shown(sections)}"
        )
    return [dim for dim, count in enumerate(counts) for _ in range(count)]
