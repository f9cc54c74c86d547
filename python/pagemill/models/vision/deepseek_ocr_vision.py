"""DeepSeek-OCR's vision model for images of one size: SAM's tower, two convolutions with a stride
of two, and CLIP's layers over what these leave; of each vector that of the layers and that of the
convolutions, side by side.

Weights: `sam_model.` (sam_vision.py, by SAM's own names), with `net_2` and `net_3`, and behind
`vision_model.` `embeddings.{class_embedding, position_embedding}`, `pre_layrnorm` and those of
vision_layers.py, with one linear layer `self_attn.qkv_proj`.

CLIP's class token is the last token of an image, behind those of SAM's patches, where the tower
leaves zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.computed import resampled
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import Defaults, as_list, inner_config, positive_int
from pagemill.models.vision.place_embeddings import smoothed_cubic_shares
from pagemill.models.vision.sam_vision import SAM_NAMES, UNIT, SamVisionTower, convolution
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

TILE_SIDE = 10 * UNIT
"""Patches in a row of a tile."""
_SAM, _CLIP = "sam_vit_b", "clip-l-14-224"
_SAM_DEFAULTS = {"width": 768, "layers": 12, "heads": 12, "downsample_channels": [512, 1024]}
_CLIP_DEFAULTS = {
    "width": 1024,
    "layers": 24,
    "heads": 16,
    "image_size": 224,
    "patch_size": 14,
}
_OWN_KEYS = {
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
}
_MOST_SHARES = 1 << 22  # numbers by which stored places become those of an image


class _ClipLayers(VisionLayers):
    qkv = ("qkv_proj",)


class DeepseekOcrVision:
    """That of images of the configuration's size, or of squares of `side` patches."""

    def __init__(self, config: Config, *, side: int | None = None) -> None:
        parts = inner_config(config, "width")
        sam = Defaults(inner_config(parts, _SAM), _SAM_DEFAULTS)
        clip = Defaults(inner_config(parts, _CLIP), _CLIP_DEFAULTS)
        size = {"image_size": config.get("image_size", 1024)}
        sizes = SamVisionTower({**size, **_renamed(sam)}, side=side, names=SAM_NAMES)
        self._patches = sizes.tokens
        self.tokens = sizes.tokens + 1
        """Of an image, of which the last stands for the class token."""
        self.tower = SamVisionTower(
            {**size, **_renamed(sam)}, side=side, tokens=self.tokens, names=SAM_NAMES
        )
        self.side = self.tower.side // UNIT
        """Vectors in a row of an image."""
        wide = {"intermediate_size": 4 * positive_int(clip, "width")}
        self._layers = _ClipLayers({**wide, **_renamed(clip)}, eps=1e-5, hidden_act="quick_gelu")
        channels = as_list(sam.get("downsample_channels")) or []
        hidden = self._layers.hidden_size
        if len(channels) != 2 or type(channels[0]) is not int or channels[1] != hidden:
            raise ModelConfigError(
                f"downsample_channels is {shown(channels)}; it must list two numbers, of which the"
                f" second is {hidden}, the width of {_CLIP}"
            )
        self._channels = (channels[0], hidden)
        self._stored_side = positive_int(clip, "image_size") // positive_int(clip, "patch_size")
        if not 0 < self._stored_side**2 * self.tokens <= _MOST_SHARES:
            raise ModelConfigError(
                f"image_size of {_CLIP} has {self._stored_side} patches in a row, for {self.tokens}"
                f" vectors of an image: all of them may have {_MOST_SHARES} shares of places"
            )

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """`features` [T, channels] -> vectors [T, 2 * hidden]; those of class tokens have no
        meaning."""
        sam = weights.within("sam_model.")
        side, tokens = self.tower.side, self.tokens
        x = self.tower.output(sam, inputs)
        x = convolution(sam, "net_2", x, self._channels[0], side, tokens, stride=2)
        x = convolution(sam, "net_3", x, self._channels[1], side // 2, tokens, stride=2)
        clip = weights.within("vision_model.")
        y = self._placed(clip, x, inputs.positions)
        y = norm.layer_norm(clip, "pre_layrnorm", y, self._layers.eps)
        return ops.concat(self._layers.hidden(clip, y, (self._layers.count,)), x)

    def class_token(self) -> npt.NDArray[np.float32]:
        """A one for the token of an image that stands for the class token, [tokens, 1]."""
        return np.eye(self.tokens, dtype=np.float32)[:, -1:]

    def _placed(self, weights: Weights, x: Tensor, positions: Tensor) -> Tensor:
        """x [T, 1, hidden] with the embeddings of places, and the class token in its row:
        [T, hidden]."""
        hidden, side = self._layers.hidden_size, self._stored_side
        shape = (self.tokens, hidden)
        own = self.class_token()
        shares = np.zeros((self.tokens, 1 + side**2), np.float32)
        shares[:, :1] = own
        line = smoothed_cubic_shares(np.arange(self.side), self.side, side)
        products = line[:, None, :, None] * line[None, :, None, :]
        shares[:-1, 1:] = products.reshape(self._patches, side**2)
        stored = (1 + side**2, hidden)
        places = resampled(weights, "embeddings.position_embedding.weight", stored, shares, shape)
        classes = resampled(weights, "embeddings.class_embedding", (hidden,), own, shape)
        y = ops.add(ops.embedding(positions, places), ops.embedding(positions, classes))
        return ops.add(y, x)


def _renamed(part: Config) -> Mapping[str, Any]:
    """The configuration of a part, by the keys of towers."""
    return {_OWN_KEYS.get(key, key): value for key, value in part.items()}
