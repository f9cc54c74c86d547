"""ERNIE 4.5 VL's vision transformer: Qwen2-VL's layers without its merger, for images, and for
pairs of frames, each of which attends to itself alone.

Weights: those of qwen2_vl_vision.py, without the merger, and `ln` behind the last layer.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import positive_int
from pagemill.models.vision.grid_vision import EPS
from pagemill.models.vision.margin import APART, MarginColumns, attend_beside_margin
from pagemill.models.vision.qwen2_vl_vision import Qwen2VlVisionTower
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

MARKS = 3
"""Of a row of features: a patch, the start and the end of an image or a video."""
PAIR = 2  # frames
# Those of the configuration's class: published checkpoints may leave them out.
_VISION = {"depth": 32, "hidden_size": 1280, "num_heads": 16, "patch_size": 14}
_VISION_WIDTHS = 4  # hidden sizes in the intermediate size


class Ernie45VlVisionTower(Qwen2VlVisionTower):
    """One tower for images. Behind its patch, a row of features has marks: 1 for a patch and 0 for
    the tokens at both ends of an image; the rows of such a token have its mark alone."""

    kinds = ("ernie4_5_vl_moe_vision", "ernie4_5_vl_moe")
    hidden_key = "hidden_size"
    width_key = "out_hidden_size"
    spans = 1
    """Frames that an embedding is made of."""

    def __init__(self, config: Config) -> None:
        super().__init__({**_VISION, **config, "temporal_patch_size": 1})
        size = "intermediate_size"
        self._intermediate = positive_int(config, size, _VISION_WIDTHS * self.hidden_size)
        if config.get("rms_norm_eps", EPS) != EPS:
            raise ModelConfigError(
                f"vision_config's rms_norm_eps must be {EPS}, it is {shown(config['rms_norm_eps'])}"
            )

    @property
    def place_channels(self) -> int:
        return MARKS

    def places(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        del height, width
        return np.tile(np.eye(MARKS, dtype=np.float32)[:1], (len(cells), 1))

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [T, hidden], normalized; they are not merged."""
        patches, own = ops.split(inputs.media.rows, self._patch_elements)
        x = linear(weights, "patch_embed.proj", patches, (self.hidden_size,))
        rotary = self.rotary(weights, inputs)
        for layer in range(self.layers):
            x = self.layer(weights, layer, x, partial(self.attend_in_frame, own, rotary))
        return norm.layer_norm(weights, "ln", x, EPS)

    def attend_in_frame(
        self, own: Tensor, rotary: Rotary, weights: Weights, layer: int, x: Tensor
    ) -> Tensor:
        """x [T, hidden] -> [T, hidden]: the attention of a layer among the patches of a frame;
        `own` [T, place_channels] are those behind patches in features."""
        del own
        return self.attend(weights, layer, x, rotary)

    def marks(self, inputs: EncoderInputs) -> Tensor:
        """Those of the first row of each embedding, [media_rows, MARKS]."""
        _, marks = ops.split(inputs.media.rows, self.channels - MARKS)
        return ops.select_rows(marks, inputs.media.tokens)


class Ernie45VlPairTower(Ernie45VlVisionTower):
    """That of pairs of frames. An embedding is made of a square of the first frame and the same one
    of the second, whose rows follow each other. In front of its marks a row has 1 in the column of
    its frame, which keeps the frames apart as a margin is (margin.py)."""

    spans = PAIR

    @property
    def place_channels(self) -> int:
        return PAIR + MARKS

    def places(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        marks = super().places(cells, height, width)
        return np.concatenate([np.zeros((len(cells), PAIR), np.float32), marks], 1)

    def pair(self, first: PreparedMedia, second: PreparedMedia) -> MediaFeatures:
        """Both frames, as images of one size -> features of their squares in turn."""
        frames = [self.features(each) for each in (first, second)]
        tokens, positions = frames[0].tokens, frames[0].positions
        assert positions is not None
        for column, frame in enumerate(frames, self._patch_elements):
            frame.rows[:, column] = 1
        rows = _in_turn([frame.rows for frame in frames], tokens)
        places = GridPositions(
            _in_turn([positions.rows] * PAIR, tokens), positions.tokens, positions.next
        )
        return MediaFeatures(rows, tokens, places)

    def attend_in_frame(
        self, own: Tensor, rotary: Rotary, weights: Weights, layer: int, x: Tensor
    ) -> Tensor:
        frames, _ = ops.split(own, PAIR)
        first, second = ops.split(frames, 1)
        # A query of one frame meets the number of keys of the other one.
        columns = MarginColumns(frames, ops.scale(ops.concat(second, first), APART))
        name, hidden = f"blocks.{layer}.attn", self.hidden_size
        qkv = linear(weights, f"{name}.qkv", x, (3 * hidden,), bias=True)
        q, kv = ops.split(qkv, hidden)
        k, v = ops.split(kv, hidden)
        y = attend_beside_margin(q, k, v, self.shape, rotary, columns)
        return linear(weights, f"{name}.proj", y, (hidden,), bias=True)


def _in_turn(frames: list[np.ndarray], squares: int) -> np.ndarray:
    """Rows of frames [squares * patches, n] as [squares * frames * patches, n]: each square of all
    frames one after the other."""
    stacked = np.stack([frame.reshape(squares, -1, frame.shape[1]) for frame in frames], 1)
    return np.ascontiguousarray(stacked.reshape(-1, frames[0].shape[1]))
