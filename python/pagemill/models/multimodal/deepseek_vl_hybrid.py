"""DeepSeek-VL with two towers, of its larger models: SigLIP's for a small image and SAM's for a
large one of the same picture, whose vectors are as many, side by side in front of a linear layer.

Weights: those of deepseek_vl.py, with `model.aligner.{vision_proj, high_res_vision_proj, proj}`,
`model.high_res_vision_model.vision_encoder.` (sam_vision.py), `model.high_res_vision_neck.`, a
further neck for what is behind SAM's first global layer, `model.high_res_vision_proj.{conv1,
conv2}` and `model.high_res_vision_alpha`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaInputs,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import inner_config
from pagemill.models.multimodal.deepseek_vl import DeepseekVlModel
from pagemill.models.vision.sam_vision import UNIT, SamVisionTower, convolution, interpolated
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_SAM = "sam_vision_model"


class DeepseekVlHybridModel(DeepseekVlModel):
    """One DeepSeek-VL model with two towers."""

    ignored: Mapping[str, str] = {
        r"model\.vision_model\.(vision_model\.)?head\..*": "the vectors of all patches are used",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        vision = inner_config(config, "high_res_vision_config")
        kind = vision.get("model_type", _SAM)
        if kind != _SAM:
            raise ModelConfigError(
                f"a large vision tower of type {shown(kind)} in this architecture is not supported;"
                f" known: {_SAM}"
            )
        self._sam = SamVisionTower(vision, tokens=self._tower.grid.rows)
        if not self._sam.global_layers:
            raise ModelConfigError("global_attn_indexes must list a layer, whose result is used")

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        channels = self._sam.channels_of_token + traits.media.channels
        media = replace(traits.media, channels=channels, step_rows=traits.media.rows)
        return replace(traits, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """The pixels of a small image and then of a large one, one array after the other.

        Raises:
            ValueError: they are not as many, or have a grid.
        """
        small, large = self._tower.grid.image_shape, self._sam.image_shape
        count = int(np.prod(small))
        if image.grid is not None or image.values.shape != (count + int(np.prod(large)),):
            raise ValueError(
                f"an image of this model must be [{count + int(np.prod(large))}], pixels"
                f" {list(small)} and then {list(large)}, got {list(image.values.shape)}"
            )
        of_small, of_large = (
            PreparedMedia("image", values.reshape(shape))
            for values, shape in zip(np.split(image.values, [count]), (small, large), strict=True)
        )
        items = self._sam.features(of_large), self._tower.grid.features(of_small)
        rows = np.concatenate([item.rows for item in items], axis=1)
        return MediaFeatures(rows, self._sam.tokens)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        media = inputs.media
        large, small = ops.split(media.rows, self._sam.channels_of_token)
        of_large = replace(inputs, media=MediaInputs(large, media.tokens))
        tower = weights.within("model.vision_model.")
        of_small = MediaInputs(small, media.tokens)
        x = self._tower.hidden(tower, of_small, inputs.positions, (self._tower.layers,))
        x = self._tower.post_norm(tower, x)
        width = self._text.traits.hidden_size
        half = (width // 2,)
        y = self._detailed(weights.within("model."), of_large)
        y = linear(weights, "model.aligner.high_res_vision_proj", y, half, bias=True)
        x = linear(weights, "model.aligner.vision_proj", x, half, bias=True)
        x = ops.activation(ops.concat(y, x), ActivationKind.GELU)
        return linear(weights, "model.aligner.proj", x, (width,), bias=True)

    def _detailed(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """SAM's vectors of each token, [T, 4 * channels]."""
        tower = weights.within("high_res_vision_model.vision_encoder.")
        depths = (min(self._sam.global_layers) + 1, self._sam.layers)
        states = self._sam.states(tower, inputs, sorted(set(depths)))
        first = self._sam.neck(weights.within("high_res_vision_neck."), states[0])
        last = self._sam.neck(tower.within("neck."), states[-1])
        alpha = weights.number("high_res_vision_alpha")
        first = ops.scale(self._projected(weights, first, inputs.positions), alpha)
        return ops.add(self._projected(weights, last, inputs.positions), first)

    def _projected(self, weights: Weights, x: Tensor, positions: Tensor) -> Tensor:
        tokens, channels = self._sam.tokens, self._sam.channels
        side = UNIT * self._tower.grid.side
        x = interpolated(weights, x, positions, (self._sam.side, side), tokens)
        projection = weights.within("high_res_vision_proj.")
        x = convolution(projection, "conv1", x, 2 * channels, side, tokens, stride=2)
        return convolution(projection, "conv2", x, 4 * channels, side // 2, tokens, stride=2)
