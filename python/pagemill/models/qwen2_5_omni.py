"""Qwen2.5-Omni's thinker: Whisper's encoder on parts of 2 s, whose vectors are averaged in pairs, a
linear projector, and Qwen2. Images (qwen2_5_omni_images.py) and the talker, which speaks, are left
out.

Weights: `audio_tower.` with `conv1` and `conv2` (mel_convolutions.py), `layers`
(whisper_encoder.py), `ln_post` and `proj`; Qwen2's. Those of the audio tower may be behind
`model.`, Qwen2's with `language_model.` behind it; and all behind `thinker.` (omni_thinker.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.prefixed import PrefixedWeights
from pagemill.models.base import (
    Config,
    EncoderInputs,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import (
    Defaults,
    flag,
    inner_config,
    positive_int,
    rope_parameters,
    token_id,
)
from pagemill.models.decoder_part import text_weights
from pagemill.models.log_mel import HOP, WINDOW, log_mel
from pagemill.models.mel_convolutions import STRIDE
from pagemill.models.omni_thinker import UNUSED, thinker_config, thinker_weights
from pagemill.models.qwen2 import Qwen2Model
from pagemill.models.qwen2_5_omni_images import Qwen25OmniImageModel
from pagemill.models.whisper_encoder import PAIR, WhisperEncoder
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_ENCODER_KEY = "encoder"  # not one of published checkpoints: the operator adds it
_LEAST_FRAMES = 3  # of which the encoder makes a pair
_LONGEST_WAVE = 10_000.0  # of positions, in vectors, times 2 pi
# Those of the configuration's classes: published checkpoints leave some out.
_ENCODER = {
    "num_mel_bins": 128,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "d_model": 1280,
    "n_window": 100,
}


class Qwen25OmniModel:
    """The thinker of one Qwen2.5-Omni model, for text and audio, or if `encoder` of the
    configuration is "images", the model of these. Audio is divided into parts, which are encoded
    apart."""

    ignored: Mapping[str, str] = {
        **UNUSED,
        r"(thinker\.)?(model\.)?visual\..*": "it takes no images",
    }

    def __init__(self, config: Config) -> None:
        thinker = thinker_config(config)
        text = inner_config(thinker, "text_config")
        # A token of text or audio has the same position in time, row and column.
        rope = dict(rope_parameters(text))
        rope.pop("mrope_section", None)
        if rope.get("rope_type") == "mrope":
            rope["rope_type"] = "default"
        tied = flag(thinker, "tie_word_embeddings", flag(text, "tie_word_embeddings", False))
        self._text = Qwen2Model({**text, "rope_parameters": rope, "tie_word_embeddings": tied})
        audio = Defaults(inner_config(thinker, "audio_config"), _ENCODER)
        self._encoder = WhisperEncoder(audio)
        self._rows = positive_int(audio, "n_window")  # of a part
        width = positive_int(audio, "output_dim", self._text.traits.hidden_size)
        if width != self._text.traits.hidden_size or self._rows % PAIR:
            raise ModelConfigError(
                f"audio_config has the output_dim {width} and the n_window {self._rows}; the"
                f" language model has {self._text.traits.hidden_size} features, and vectors are"
                " averaged in pairs"
            )
        key = "audio_token_index" if "audio_token_index" in thinker else "audio_token_id"
        self._placeholder = token_id(thinker, key, self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self | Qwen25OmniImageModel:
        encoder = config.get(_ENCODER_KEY, "audio")
        if encoder not in ("audio", "images"):
            raise ModelConfigError(
                f'{_ENCODER_KEY} is {shown(encoder)}; it must be "audio" or "images"'
            )
        return cls(config) if encoder == "audio" else Qwen25OmniImageModel(config)

    @property
    def traits(self) -> ModelTraits:
        media = self._encoder.paired_traits(
            width=self._text.traits.hidden_size,
            placeholder=self._placeholder,
            most_tokens=self._rows // PAIR,
        )
        return replace(self._text.traits, media=media)

    def layout(self, audio: PreparedMedia) -> Sequence[PreparedMedia | str]:
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
        return MediaFeatures(rows, len(rows) // PAIR)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        weights = thinker_weights(weights)
        prefix = "model." if weights.has("model.audio_tower.conv1.weight") else ""
        tower = PrefixedWeights(weights, f"{prefix}audio_tower.")
        x = self._encoder.convolutions.output(tower, inputs.media.rows)
        waves = tower.constant("positions", _waves(self._rows, self._encoder.hidden_size))
        x = self._encoder.layered(tower, ops.add(x, ops.embedding(inputs.positions, waves)))
        x = self._encoder.averaged(x, inputs.media.tokens)
        x = self._encoder.normalized(tower, x, "ln_post")
        return linear(tower, "proj", x, (self._text.traits.hidden_size,), bias=True)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self._text.hidden(self._text_weights(weights), inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self._text.logits(self._text_weights(weights), rows)

    def _text_weights(self, weights: Weights) -> Weights:
        whole = thinker_weights(weights)
        part = text_weights(whole, self._text)
        return part if part.has(f"{self._text.names.embedding}.weight") else whole


def _waves(count: int, width: int) -> list[list[float]]:
    """Positions as sines and cosines of waves from 1 to `_LONGEST_WAVE`: [count, width]."""
    half = width // 2
    angles = np.arange(count)[:, None] / _LONGEST_WAVE ** (np.arange(half) / (half - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).tolist()
