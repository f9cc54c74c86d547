"""ERNIE 4.5 VL: a vision tower for images of any size, a resampler, and ERNIE 4.5 with positions of
three dimensions and experts for images (ernie4_5_vl_text.py). Videos are left out.

Weights: `vision_model.` (qwen2_vl_vision.py, without the merger) with `ln` behind the last layer,
which may be behind `model.`; `model.resampler_model.{spatial_linear, temporal_linear, mlp,
after_norm}`, and the language model's.

The tokens at both ends of an image are media, too, because the experts for images compute them:
their embeddings, which are those of the language model, come from the encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.prefixed import PrefixedWeights
from pagemill.models.base import Config, EncoderInputs, ModelConfigError, ModelTraits
from pagemill.models.config_keys import (
    as_list,
    inner_config,
    positive_int,
    refuse,
    rope_parameters,
    token_id,
)
from pagemill.models.multimodal.decoder_part import head_is_tied, parts_weights
from pagemill.models.multimodal.ernie4_5_vl_text import Ernie45VlTextModel
from pagemill.models.multimodal.language_part import LanguagePart
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.models.vision.grid_rotary import COLUMN, ROW
from pagemill.models.vision.grid_vision import EPS
from pagemill.models.vision.qwen2_vl_vision import Qwen2VlVisionTower
from pagemill.ops import ActivationKind
from pagemill.ops.program import GRID_DIMS
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_TIME = 0  # the dimension of grid positions
_MARKS = 3  # of a row of features: a patch, the start and the end of an image
_SECTIONS = [22, 22, 20]  # pairs of a head that rotate by row, column and time
# Those of the configuration's class: published checkpoints may leave them out.
_TOKENS = {
    "image_start_token_id": 101304,
    "image_end_token_id": 101305,
    "image_token_id": 100295,
}
_VISION = {"depth": 32, "hidden_size": 1280, "num_heads": 16, "patch_size": 14}
_VISION_WIDTHS = 4  # hidden sizes in the intermediate size
_TEXT: Mapping[str, Any] = {"rope_theta": 500_000.0, "vocab_size": 103424}


class Ernie45VlVisionTower(Qwen2VlVisionTower):
    """One tower. Behind its patch, a row of features has marks: 1 for a patch and 0 for the tokens
    at both ends of an image; the rows of such a token have its mark alone."""

    kinds = ("ernie4_5_vl_moe_vision", "ernie4_5_vl_moe")
    hidden_key = "hidden_size"
    width_key = "out_hidden_size"

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
        return _MARKS

    def places(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        del height, width
        return np.tile(np.eye(_MARKS, dtype=np.float32)[:1], (len(cells), 1))

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [T, hidden], normalized; they are not merged."""
        patches, _ = ops.split(inputs.media.rows, self._patch_elements)
        x = linear(weights, "patch_embed.proj", patches, (self.hidden_size,))
        rotary = self.rotary(weights, inputs)
        for layer in range(self.layers):
            x = self.layer(weights, layer, x, rotary)
        return norm.layer_norm(weights, "ln", x, EPS)

    def marks(self, inputs: EncoderInputs) -> Tensor:
        """Those of the rows of each embedding, [media_rows, _MARKS]."""
        _, marks = ops.split(inputs.media.rows, self._patch_elements)
        return ops.select_rows(marks, inputs.media.tokens)


class Ernie45VlLanguagePart(LanguagePart):
    """The text of ERNIE 4.5 VL."""

    families = {"ernie4_5_vl_moe_text": Ernie45VlTextModel}
    defaults = _TEXT

    def __init__(self, config: Config) -> None:
        refuse(inner_config(config, "text_config"), "use_bias")
        super().__init__(config)


class Ernie45VlModel(Qwen2VlModel):
    """One ERNIE 4.5 VL model."""

    tower = Ernie45VlVisionTower
    part = Ernie45VlLanguagePart

    def __init__(self, config: Config) -> None:
        text = inner_config(config, "text_config")
        rope = {"mrope_section": _SECTIONS, **rope_parameters({**_TEXT, **text})}
        tied = head_is_tied(config, text, default=True)
        width = positive_int(text, "hidden_size")
        given = {
            **_TOKENS,
            **config,
            "text_config": {**text, "rope_parameters": rope},
            "vision_config": {**inner_config(config, "vision_config"), "out_hidden_size": width},
            "tie_word_embeddings": tied,
            "video_token_id": None,
        }
        super().__init__(given)
        self._merged = self._tower.hidden_size * self._tower.merge**2
        vocab = self._text.traits.vocab_size
        self._ends = tuple(
            token_id(given, f"image_{end}_token_id", vocab) for end in ("start", "end")
        )
        if len({*self._ends, self._placeholders["image"]}) != 1 + len(self._ends):
            raise ModelConfigError(
                "image_token_id, image_start_token_id and image_end_token_id must be three tokens,"
                f" they are {self._placeholders['image']}, {self._ends[0]} and {self._ends[1]}"
            )

    def dims_of_layers(self, text: Config) -> Sequence[Sequence[int]]:
        sections = rope_parameters(text)["mrope_section"]
        return [_dims_of_pairs(sections, len(dims)) for dims in super().dims_of_layers(text)]

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        media = replace(traits.media, text_rows=True, encoded_tokens=self._ends)
        return replace(traits, media=media)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        assert isinstance(self._tower, Ernie45VlVisionTower)
        tower = parts_weights(weights, "vision_model.ln.weight")
        x = self._tower.hidden(PrefixedWeights(tower, "vision_model."), inputs)
        x = ops.select_rows(x, inputs.media.tokens, count=self._tower.merge**2)
        resampler = PrefixedWeights(weights, "model.resampler_model.")
        x = self._mlp(resampler, "spatial_linear", x)
        # The two frames that a token of a video spans are the same image.
        x = self._mlp(resampler, "temporal_linear", ops.concat(x, x))
        width = self._text.traits.hidden_size
        x = linear(resampler, "mlp", x, (width,), bias=True)
        x = norm.rms_norm(resampler, "after_norm", x, self._text.sizes.norm_eps)
        ends = [self._end(weights, token, inputs.media.tokens) for token in self._ends]
        same = weights.constant("marks", np.eye(_MARKS).tolist())
        shares = ops.linear(self._tower.marks(inputs), same, dtype="f32")
        return ops.moe_combine(ops.concat(x, *ends, row_shape=(_MARKS, width)), shares)

    def _end(self, weights: Weights, token: int, rows: Tensor) -> Tensor:
        """The language model's embedding of a token, as often as there are `rows`, i32 [N]: [N,
        width]."""
        vocab, width = self._text.traits.vocab_size, self._text.traits.hidden_size
        row = Part(token, token + 1, vocab)
        table = self.named(weights).matrix("model.embed_tokens.weight", (vocab, width), rows=row)
        return ops.embedding(rows, table, outside=0)

    def _mlp(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        """x [N, in] -> [N, merged], normalized."""
        x = linear(weights, f"{name}.0", x, (self._merged,), bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        x = linear(weights, f"{name}.2", x, (self._merged,), bias=True)
        return norm.layer_norm(weights, f"{name}.3", x, EPS)


def _dims_of_pairs(sections: object, pairs: int) -> list[int]:
    """The position dimension by which each pair rotates: rows and columns take turns, and time is
    behind them.

    Raises:
        ModelConfigError: there are not as many rows as columns.
    """
    counts = as_list(sections) or []
    if len(counts) != GRID_DIMS or counts[0] != counts[1]:
        raise ModelConfigError(
            f"mrope_section must have as many pairs for rows as for columns, it is {shown(counts)}"
        )
    space = [ROW, COLUMN] * counts[0]
    return [*space, *[_TIME] * (pairs - len(space))]
