"""Nemotron 3 Omni for images: RADIO, squares of patches merged in a projector, and Nemotron-H.

Weights: `vision_model.` (radio_vision.py), the projector `mlp1.{0, 1, 3}`, a norm and two linear
layers, and `language_model.` (nemotron_h.py).
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
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaPart,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import Defaults, inner_config, positive_int, token_id
from pagemill.models.multimodal.decoder_part import decoder_part
from pagemill.models.multimodal.grid_media import GridMediaModel
from pagemill.models.vision.patch_grid import merged_side
from pagemill.models.vision.radio_vision import RadioVisionTower
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_EPS = 1e-5
_START, _END = "<img>", "</img>"
# Those of published configurations.
_NAMES = {
    "image_token_id": "img_context_token_id",
    "text_config": "llm_config",
    "vision_hidden_size": "vit_hidden_size",
}
_FINAL_NORM = "vision_final_layernorm"


class NemotronOmniModel(GridMediaModel):
    """One Nemotron 3 Omni model, without sound and videos: a `TiledModel` (base.py)."""

    _tower: RadioVisionTower

    def __init__(self, config: Config) -> None:
        older = {new: config.get(name) for new, name in _NAMES.items()}
        config = Defaults(config, {new: value for new, value in older.items() if value is not None})
        text = decoder_part(config, ("nemotron_h",))
        merge = merged_side(config, "downsample_ratio")
        tower = RadioVisionTower(inner_config(config, "vision_config"), merge=merge)
        placeholder = token_id(config, "image_token_id", text.traits.vocab_size)
        super().__init__(text, tower, {"image": placeholder})
        self._projected = positive_int(config, "projector_hidden_size", 4096)
        width = positive_int(config, "vision_hidden_size", 1280)
        if width != tower.hidden_size:
            raise ModelConfigError(
                f"vision_hidden_size is {width}, but the tower has {tower.hidden_size} features"
            )
        # The tower has a last norm if the language model predicts further tokens.
        self._normalizes = bool(inner_config(config, "text_config").get("num_nextn_predict_layers"))
        self.ignored = {
            r"(sound_encoder|sound_projection)\..*": "sound is not heard",
            r"vision_model\.radio_model\.model\.patch_generator\.video_embedder\..*": "videos are"
            " not seen",
            r"vision_model\.radio_model\.(input_conditioner\..*|summary_idxs)": "images come"
            " normalized, and have no summary",
            r"language_model\.mtp\..*": "drafts alone use it (mtp)",
            **self.ignored,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        return replace(traits, media=replace(traits.media, placed=True))

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image)

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        return _START, media, _END

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(weights.within("vision_model."), inputs)
        if self._normalizes:
            # Published checkpoints have no weights of it.
            stored = weights.has(f"{_FINAL_NORM}.weight")
            x = norm.layer_norm(
                weights, _FINAL_NORM, x, self._tower.eps, weight=stored, bias=stored
            )
        x = ops.select_rows(x, inputs.media.tokens, count=self._tower.merge**2)
        x = norm.rms_norm(weights, "mlp1.0", x, _EPS)
        x = linear(weights, "mlp1.1", x, (self._projected,))
        x = ops.activation(x, ActivationKind.RELU_SQUARED)
        return linear(weights, "mlp1.3", x, (self._text.traits.hidden_size,))
