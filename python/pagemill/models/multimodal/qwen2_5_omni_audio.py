"""The audio encoder of Qwen2.5-Omni: Whisper's encoder on parts of 2 s, whose vectors are averaged
in pairs, and a linear projector.

Weights: `audio_tower.` with `conv1` and `conv2` (mel_convolutions.py), `layers`
(whisper_encoder.py), `ln_post` and `proj`; all may be behind `model.`, and behind `thinker.`
(omni_thinker.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.log_mel import HOP, WINDOW, log_mel
from pagemill.models.audio.mel_convolutions import STRIDE
from pagemill.models.audio.whisper_encoder import MOST_VECTORS, PAIR, WhisperEncoder, sinusoids
from pagemill.models.base import Config, EncoderInputs, MediaTraits, ModelConfigError
from pagemill.models.config_keys import Defaults, inner_config, positive_int
from pagemill.models.multimodal.omni_thinker import thinker_weights
from pagemill.ops.program import GRID_DIMS
from pagemill.ops.trace import Tensor

_LEAST_FRAMES = 3  # of which the encoder makes a pair
# Those of the configuration's classes: published checkpoints leave some out.
_ENCODER = {
    "num_mel_bins": 128,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "d_model": 1280,
    "n_window": 100,
}


class Qwen25OmniAudioEncoder:
    """That of one thinker, whose embeddings have `width` elements. Audio is divided into parts,
    which are encoded apart: a `TiledModel` (base.py)."""

    def __init__(self, thinker: Config, placeholder: int, width: int) -> None:
        audio = Defaults(inner_config(thinker, "audio_config"), _ENCODER)
        self._encoder = WhisperEncoder(audio)
        self._rows = positive_int(audio, "n_window")  # of a part
        self._placeholder, self._width = placeholder, width
        stated = positive_int(audio, "output_dim", width)
        if stated != width or self._rows % PAIR or self._rows > MOST_VECTORS:
            raise ModelConfigError(
                f"audio_config has the output_dim {stated} and the n_window {self._rows}; the"
                f" language model has {width} features, and vectors, at most {MOST_VECTORS}, are"
                " averaged in pairs"
            )

    @property
    def traits(self) -> MediaTraits:
        traits = self._encoder.paired_traits(
            width=self._width, placeholder=self._placeholder, most_tokens=self.part_tokens
        )
        # Those of the sound of a video have positions that begin with it.
        return replace(traits, grid=True)

    @property
    def part_tokens(self) -> int:
        """Of a part of 2 s."""
        return self._rows // PAIR

    def layout(self, audio: PreparedMedia) -> Sequence[PreparedMedia]:
        """Samples [samples] as log-mel frames of each part, of which the last one makes a pair."""
        samples, step = audio.values, STRIDE * self._rows
        frames = -(-len(samples) // HOP)
        if samples.ndim != 1 or frames < _LEAST_FRAMES:
            least = (_LEAST_FRAMES - 1) * HOP + 1  # the last frame may have one sample
            raise ValueError(
                f"audio of this model must be [samples], at least {least} of them, got"
                f" {list(samples.shape)}"
            )
        # The last frames reach beyond the audio, into silence.
        mel = log_mel(np.pad(samples, (0, WINDOW)), self._encoder.bins)[:, :frames]
        parts = [mel[:, first : first + step] for first in range(0, frames, step)]
        return [PreparedMedia("audio", part) for part in parts if part.shape[1] >= _LEAST_FRAMES]

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        rows = self._encoder.convolutions.features(audio.values)
        tokens = len(rows) // PAIR
        places = np.zeros((len(rows), GRID_DIMS), np.int32)
        return MediaFeatures(rows, tokens, GridPositions.in_order(places, tokens))

    def parts(self, samples: np.ndarray) -> list[MediaFeatures]:
        """Samples [samples] as an item for each part."""
        parts = self.layout(PreparedMedia("audio", samples))
        return [self.features(part) for part in parts]

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        weights = thinker_weights(weights)
        prefix = "model." if weights.has("model.audio_tower.conv1.weight") else ""
        tower = weights.within(f"{prefix}audio_tower.")
        x = self._encoder.convolutions.output(tower, inputs.media.rows)
        waves = sinusoids(self._rows, self._encoder.hidden_size)
        table = tower.constant("positions", waves.tolist())
        x = self._encoder.layered(tower, ops.add(x, ops.embedding(inputs.positions, table)))
        x = self._encoder.averaged(x, inputs.media.tokens)
        x = self._encoder.normalized(tower, x, "ln_post")
        return linear(tower, "proj", x, (self._width,), bias=True)
