"""LFM2-VL: SigLIP 2's vision tower for images of any size, squares of patches merged in a
projector, and LFM2.

Weights: `vision_tower.` or `vision_tower.vision_model.` (siglip2_vision.py),
`multi_modal_projector.{layer_norm, linear_1, linear_2}`, of which some models lack the first, and
`language_model.` (lfm2.py). All may be behind `model.`.

A large image is divided into square tiles, and the whole image, resized to a size of its own, comes
behind them. Each tile attends to itself alone; texts say where each one lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaPart,
    ModelConfigError,
)
from pagemill.models.config_keys import (
    Defaults,
    activation,
    flag,
    inner_config,
    positive_int,
    token_id,
)
from pagemill.models.multimodal.decoder_part import decoder_part, parts_weights, tower_weights
from pagemill.models.multimodal.grid_media import GridMediaModel
from pagemill.models.vision.siglip2_vision import Siglip2VisionTower
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_TEXTS = ("lfm2",)
_START, _END = "<|image_start|>", "<|image_end|>"
_WHOLE = "<|img_thumbnail|>"
_EPS = 1e-5
# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {"image_token_id": 396, "tie_word_embeddings": True}


class Lfm2VlModel(GridMediaModel):
    """One LFM2-VL model: a `TiledModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        if config.get("vision_feature_layer", -1) != -1:
            raise ModelConfigError(
                f"vision_feature_layer is {shown(config['vision_feature_layer'])}; known: -1"
            )
        text = decoder_part(config, _TEXTS)
        merge = positive_int(config, "downsample_factor", 2)
        tower = Siglip2VisionTower(inner_config(config, "vision_config"), merge=merge)
        placeholder = token_id(config, "image_token_id", text.traits.vocab_size)
        super().__init__(text, tower, {"image": placeholder})
        self._projected = positive_int(config, "projector_hidden_size", 2560)
        self._activation = activation(config, "projector_hidden_act", "gelu")
        self._bias = flag(config, "projector_bias", True)
        self._normalizes = flag(config, "projector_use_layernorm", True)
        self.ignored = {
            r"(model\.)?vision_tower\.(vision_model\.)?head\..*": "vectors of patches are used",
            **self.ignored,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        if media.values.ndim != 3 or media.grid is None:
            return _START, media, _END
        tile_rows, whole = _divided(media)
        parts: list[MediaPart] = [_START]
        for row, tiles in enumerate(tile_rows, 1):
            for column, tile in enumerate(tiles, 1):
                parts += f"<|img_row_{row}_col_{column}|>", tile
        return *parts, _WHOLE, whole, _END

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = parts_weights(weights, "multi_modal_projector.linear_1.weight")
        tower = tower_weights(parts, "vision_tower")
        x = self._tower.hidden(tower, inputs)
        x = ops.select_rows(x, inputs.media.tokens, count=self._tower.merge**2)
        projector = parts.within("multi_modal_projector.")
        if self._normalizes:
            x = norm.layer_norm(projector, "layer_norm", x, _EPS)
        x = linear(projector, "linear_1", x, (self._projected,), bias=self._bias)
        x = ops.activation(x, self._activation)
        return linear(projector, "linear_2", x, (self._text.traits.hidden_size,), bias=self._bias)


def _divided(image: PreparedMedia) -> tuple[list[list[PreparedMedia]], PreparedMedia]:
    """Rows of tiles of an image, [tiles + 1, patches of a tile, channels], and the whole image,
    whose patches are the first ones of the last tile.

    Raises:
        ValueError: it does not have the tiles and patches of its grid.
    """
    assert image.grid is not None
    rows, height, width = image.grid
    tiles, patches, _ = image.values.shape
    columns, rest = divmod(tiles - 1, max(rows, 1))
    side = math.isqrt(patches)
    if rows < 1 or columns < 1 or rest or side**2 != patches or height * width > patches:
        raise ValueError(
            f"an image of {rows} rows of tiles, and {height} x {width} patches behind them, must be"
            " [rows * columns + 1, patches of a square tile, channels], where the whole image has"
            f" no more patches than a tile; got {list(image.values.shape)}"
        )
    *items, _ = (PreparedMedia("image", tile, (1, side, side)) for tile in image.values)
    whole = PreparedMedia("image", image.values[-1][: height * width], (1, height, width))
    return [items[row * columns :][:columns] for row in range(rows)], whole
