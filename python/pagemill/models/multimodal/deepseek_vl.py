"""DeepSeek-VL, without the second tower of its larger models, and the part of Janus that reads
images: SigLIP's vision tower, a projector of linear layers, and Llama.

Weights: `model.vision_model.` (siglip_vision.py), `model.aligner.{linear1, linear2}`, of Janus
`model.aligner.{fc1, hidden_layers.<i>}`, and `model.language_model.` (llama.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, ModelConfigError, ModelTraits
from pagemill.models.config_keys import (
    Defaults,
    flag,
    inner_config,
    layer_count,
    number,
    positive_int,
    refuse,
    token_id,
)
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part, ignored_in_part
from pagemill.models.vision.siglip_vision import DEFAULTS, KIND, SiglipVisionTower
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_START, _END = "<begin_of_image>", "<end_of_image>"


class DeepseekVlModel(WithDecoder):
    """One DeepSeek-VL model. A subclass changes the `kind` and the `defaults` of its tower's
    configuration, `layers`, those of its projector, `_vision`, and what it ignores."""

    kind: ClassVar[str] = KIND
    defaults: ClassVar[Mapping[str, Any]] = DEFAULTS
    layers: Sequence[str] = ("linear1", "linear2")
    ignored: Mapping[str, str] = {
        r"model\.vision_model\.head\..*": "the vectors of all patches are used",
    }

    def __init__(self, config: Config) -> None:
        self._text = decoder_part(config, ("llama",))
        vision = Defaults(inner_config(config, "vision_config"), self.defaults)
        kind = vision.get("model_type", self.kind)
        if kind != self.kind:
            raise ModelConfigError(
                f"a vision tower of type {shown(kind)} in this architecture is not supported;"
                f" known: {self.kind}"
            )
        self._tower = SiglipVisionTower(self._vision(vision))
        self._placeholder = token_id(config, "image_token_id", self._text.traits.vocab_size)
        self.ignored = {**self.ignored, **ignored_in_part(self._text)}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(Defaults(config, {"tie_word_embeddings": True}))

    @property
    def traits(self) -> ModelTraits:
        width = self._text.traits.hidden_size
        media = self._tower.grid.media_traits(width=width, placeholder=self._placeholder)
        return replace(self._text.traits, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.grid.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower = weights.within("model.vision_model.")
        x = self._tower.hidden(tower, inputs.media, inputs.positions, (self._tower.layers,))
        x = self._tower.post_norm(tower, x)
        width = self._text.traits.hidden_size
        first, *rest = (f"model.aligner.{layer}" for layer in self.layers)
        x = linear(weights, first, x, (width,), bias=True)
        for layer in rest:
            x = ops.activation(x, ActivationKind.GELU)
            x = linear(weights, layer, x, (width,), bias=True)
        return x

    def _vision(self, config: Config) -> Config:
        """The configuration of the tower, as SigLIP's."""
        return config


class JanusModel(DeepseekVlModel):
    """One Janus model, which generates text alone: a `TiledModel` (base.py)."""

    kind = "janus_vision_model"
    defaults = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 384,
        "patch_size": 16,
        "hidden_act": "gelu",
    }
    ignored = {
        r"model\.(vqmodel|generation_(embeddings|aligner|head))\..*": "no image is generated",
    }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
        return _START, image, _END

    def _vision(self, config: Config) -> Config:
        refuse(config, "use_qk_norm")
        width = self._text.traits.hidden_size
        projected, act = positive_int(config, "projection_dim", 2048), config["hidden_act"]
        if not flag(config, "attention_bias", True) or act != "gelu" or projected != width:
            raise ModelConfigError(
                f"attention_bias must be true, hidden_act 'gelu', not {shown(act)}, and"
                f" projection_dim {width}, the text's hidden_size, not {projected}"
            )
        hidden = range(layer_count(config, "depth", 2) - 1)
        self.layers = ("fc1", *(f"hidden_layers.{layer}" for layer in hidden))
        ratio = number(config, "mlp_ratio", 4.0, least=1.0, most=64.0)
        return {**config, "intermediate_size": int(positive_int(config, "hidden_size") * ratio)}
