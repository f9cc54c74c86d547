"""Gemma 4 with images and videos: its vision tower, one linear layer, and Gemma 4's decoder, in
whose windowed layers the tokens of an image may see each other. A frame of a video is an image.

Weights: `vision_tower.` (gemma4_vision.py), `embed_vision.embedding_projection` and
`language_model.` (gemma4.py). All may be behind `model.`. Gemma 4 12B has `vision_embedder.`
(gemma4_unified_vision.py) in place of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Self

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, MediaPart, ModelTraits
from pagemill.models.config_keys import Defaults, inner_config
from pagemill.models.multimodal.decoder_part import ignored_in_part, parts_weights
from pagemill.models.multimodal.grid_media import placeholders_of
from pagemill.models.multimodal.language_part import (
    Gemma4LanguagePart,
    Gemma4UnifiedLanguagePart,
    LanguagePart,
)
from pagemill.models.vision.gemma4_unified_vision import Gemma4UnifiedVisionEmbedder
from pagemill.models.vision.gemma4_vision import Gemma4VisionTower
from pagemill.models.vision.grid_vision import GridPatches
from pagemill.models.vision.video_frames import split_video
from pagemill.ops.trace import Tensor

_START, _END = "<|image>", "<image|>"
# Those of the configuration's class.
_TOKENS = {"image_token_id": 258880, "video_token_id": 258884}
_MOST_TOKENS = 1120  # of an image, as its processor's settings allow


class Gemma4MediaModel(Gemma4LanguagePart):
    """One Gemma 4 model with its tower: a `TiledModel` (base.py). A subclass changes `part`, its
    text alone, and `tower`, what reads the patches of images, with its name. With `items_see`,
    tokens of an image see each other."""

    part: ClassVar[type[LanguagePart]] = Gemma4LanguagePart
    tower: ClassVar[Callable[[Config], GridPatches]] = Gemma4VisionTower
    tower_name: ClassVar[str] = "vision_tower"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._tower = type(self).tower(inner_config(config, "vision_config"))
        self._placeholders = placeholders_of(Defaults(config, _TOKENS), self.text.traits.vocab_size)
        self.items_see = self.text.config.get("use_bidirectional_attention") == "vision"
        self.ignored = {
            r"(model\.)?(audio_tower|embed_audio)\..*": "text and images are served",
            **ignored_in_part(self.text),
        }

    @classmethod
    def from_config(cls, config: Config) -> Self | LanguagePart:
        """A configuration without a tower is that of the text alone."""
        return cls(config) if config.get("vision_config") is not None else cls.part(config)

    @property
    def traits(self) -> ModelTraits:
        text = self.text.traits
        media = self._tower.media_traits(width=text.hidden_size, placeholders=self._placeholders)
        media = replace(media, item_ends=self.items_see, most_tokens=_MOST_TOKENS)
        return replace(text, media=media)

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        """Each frame of a video has in front of it when it is, in minutes and seconds."""
        if media.kind != "video":
            return _START, media, _END
        items, times = split_video(self._tower, media)
        parts: list[MediaPart] = []
        before = ""
        for item, seconds in zip(items, map(int, times.seconds), strict=True):
            minutes, rest = divmod(seconds, 60)
            parts += f"{before}{minutes:02d}:{rest:02d} {_START}", item._replace(kind="video")
            before = f"{_END} "
        return *parts, _END

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        name = "embed_vision.embedding_projection"
        parts = parts_weights(weights, f"{name}.weight")
        x = self._tower.hidden(parts.within(f"{self.tower_name}."), inputs)
        return linear(parts, name, x, (self.text.traits.hidden_size,))


class Gemma4UnifiedModel(Gemma4MediaModel):
    """One Gemma 4 12B model, without its embedder of sound."""

    families = Gemma4UnifiedLanguagePart.families
    defaults = Gemma4UnifiedLanguagePart.defaults
    part = Gemma4UnifiedLanguagePart
    tower = Gemma4UnifiedVisionEmbedder
    tower_name = "vision_embedder"
