"""InternVL in the layout of `transformers`, and Qianfan-OCR: its vision tower, squares of patches
merged in front of a projector, and a decoder.

Weights: `vision_tower.` (internvl_vision.py), `multi_modal_projector.{layer_norm, linear_1,
linear_2}` and `language_model.` (qwen2.py and others). All may be behind `model.`, with `lm_head`
beside it.

An image is divided into tiles of the tower's size, and if there are several, the whole image,
resized to one tile, comes behind them. Each tile attends to itself alone, and so does each frame of
a video, which has the size of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Self

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
from pagemill.models.config_keys import Defaults, activation, inner_config, positive_int, token_id
from pagemill.models.multimodal.decoder_part import (
    WithDecoder,
    decoder_part,
    ignored_in_part,
    parts_weights,
)
from pagemill.models.vision.internvl_vision import InternVlVisionTower
from pagemill.models.vision.patch_grid import merged_side
from pagemill.models.vision.video_frames import frames_of
from pagemill.models.vision.vision_layers import feature_depths
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_START, _END = "<img>", "</img>"
_EPS = 1e-5


class InternVlModel(WithDecoder):
    """One InternVL model: a `TiledModel` (base.py). A subclass changes `texts`, the families of its
    decoder, the type of its `tower`, and `vision_defaults` of the tower's configuration."""

    texts: ClassVar[Sequence[str]] = ("llama", "qwen2", "qwen3", "qwen3_moe")
    tower: ClassVar[str] = "internvl_vision"
    vision_defaults: ClassVar[Config] = {}

    def __init__(self, config: Config) -> None:
        self._text = decoder_part(config, self.texts)
        self._merge = merged_side(config, "downsample_ratio")
        vision = Defaults(inner_config(config, "vision_config"), self.vision_defaults)
        kind = vision.get("model_type", self.tower)
        if kind != self.tower:
            raise ModelConfigError(
                f"a vision tower of type {shown(kind)} in this architecture is not supported;"
                f" known: {self.tower}"
            )
        strategy = config.get("vision_feature_select_strategy", "default")
        if strategy != "default":
            raise ModelConfigError(
                f"vision_feature_select_strategy is {shown(strategy)}, but the class token has no"
                " place among merged patches: it must be 'default'"
            )
        self._tower = InternVlVisionTower(vision, merge=self._merge)
        depths = feature_depths(config, (-1,), self._tower.layers)
        if len(depths) != 1:
            raise ModelConfigError("vision_feature_layer must be one layer in this architecture")
        self._depth = depths[0]
        self.ignored = {
            r"(model\.)?vision_tower\.embeddings\.mask_token": "no patch is masked",
            **ignored_in_part(self._text),
        }
        if self._depth < self._tower.layers:
            layers = "|".join(map(str, range(self._depth, self._tower.layers)))
            name = rf"(model\.)?vision_tower\.(encoder\.layer\.({layers})|layernorm)\..*"
            self.ignored[name] = "nothing reads the results of these layers"
        self._activation = activation(config, "projector_hidden_act", "gelu")
        self._placeholder = token_id(config, "image_token_id", self._text.traits.vocab_size)
        self._video_placeholder: int | None = None
        if config.get("video_token_id") is not None:
            # No token of a prompt, since frames have those of images: it may be behind the
            # vocabulary, where published tokenizers have it.
            self._video_placeholder = positive_int(config, "video_token_id")

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = self._tower.grid.media_traits(
            width=self._text.traits.hidden_size,
            placeholder=self._placeholder,
            class_tokens=self._tower.class_tokens,
        )
        if self._video_placeholder is not None:
            placeholders = {**media.placeholders, "video": self._video_placeholder}
            media = replace(media, placeholders=placeholders)
        return replace(self._text.traits, media=media)

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        if media.kind != "video":
            return _START, *self._tower.grid.tiles(media), _END
        parts: list[MediaPart] = []
        before = ""
        for number, frame in enumerate(frames_of(media, self._tower.grid.image_shape), 1):
            parts += f"{before}Frame{number}: {_START}", PreparedMedia("image", frame)
            before = f"{_END}\n"
        return *parts, _END

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.grid.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = parts_weights(weights, "vision_tower.embeddings.cls_token")
        tower = parts.within("vision_tower.")
        x = self._tower.hidden(tower, inputs, self._depth)
        x = ops.select_rows(x, inputs.media.tokens, count=self._merge**2)
        projector = parts.within("multi_modal_projector.")
        width = self._text.traits.hidden_size
        x = norm.layer_norm(projector, "layer_norm", x, _EPS)
        x = linear(projector, "linear_1", x, (width,), bias=True)
        x = ops.activation(x, self._activation)
        return linear(projector, "linear_2", x, (width,), bias=True)


class QianfanOcrModel(InternVlModel):
    """One Qianfan-OCR model, whose tensors have the names of InternVL's own code. It takes no
    videos."""

    texts = ("qwen3",)
    tower = "qianfan_ocr_vision"
    vision_defaults = {"attention_bias": True}
