"""Qwen2-Audio: Whisper's encoder, whose vectors are averaged in pairs, a linear projector, and
Qwen2.

Weights: `audio_tower.` (whisper_encoder.py), `multi_modal_projector.linear` and `language_model.`
(qwen2.py). All may be behind `model.`, with `lm_head` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.log_mel import HOP, SAMPLING_RATE, log_mel, padded
from pagemill.models.audio.whisper_encoder import PAIR, WhisperEncoder
from pagemill.models.base import Config, EncoderInputs, ModelTraits
from pagemill.models.config_keys import Defaults, inner_config, token_id
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part, ignored_in_part
from pagemill.ops.trace import Tensor

_LEAST_FRAMES = 3  # of which the encoder makes a pair
LEAST_SAMPLES = (_LEAST_FRAMES - 1) * HOP + 1
"""Of audio: the last frame may have one."""
# Those of the configuration's class: published checkpoints leave some out.
_TEXT = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
}


class Qwen2AudioModel(WithDecoder):
    """One Qwen2-Audio model. A subclass changes `projected`, what the language model reads of the
    encoder's vectors."""

    # Those of the configuration's class: published checkpoints leave some out.
    encoder_defaults: ClassVar[Mapping[str, Any]] = {
        "num_mel_bins": 128,
        "encoder_layers": 32,
        "encoder_attention_heads": 20,
        "encoder_ffn_dim": 5120,
        "d_model": 1280,
    }

    def __init__(self, config: Config) -> None:
        text = {**_TEXT, **inner_config(config, "text_config")}
        self._text = decoder_part({**config, "text_config": text}, ("qwen2",))
        self.ignored = ignored_in_part(self._text)
        audio = inner_config(config, "audio_config")
        self._encoder = WhisperEncoder(Defaults(audio, self.encoder_defaults))
        key = "audio_token_index" if "audio_token_index" in config else "audio_token_id"
        self._placeholder = token_id(config, key, self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = self._encoder.paired_traits(
            width=self._text.traits.hidden_size,
            placeholder=self._placeholder,
            most_tokens=-(-self._encoder.max_tokens // PAIR),  # a last single one is read, too
        )
        return replace(self._text.traits, media=media)

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        """Rows of the frames that have sound, and of no silence that the encoder is padded with."""
        mel, frames = self._mel(audio.values)
        rows = -(-frames // 2)  # of a last single one no pair is made, but others attend to it
        return MediaFeatures(self._encoder.features(mel, rows), rows // PAIR)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        prefix = "model." if weights.has("model.audio_tower.conv1.weight") else ""
        tower = weights.within(f"{prefix}audio_tower.")
        x = self._encoder.states(tower, inputs.media.rows, inputs.positions)
        x = self._encoder.normalized(tower, self._encoder.averaged(x, inputs.media.tokens))
        return self.projected(weights.within(f"{prefix}multi_modal_projector."), x)

    def projected(self, weights: Weights, x: Tensor) -> Tensor:
        """x [N, hidden] -> [N, width of the language model]; `weights` are the projector's."""
        return linear(weights, "linear", x, (self._text.traits.hidden_size,), bias=True)

    def _mel(self, samples: np.ndarray) -> tuple[np.ndarray, int]:
        """Log-mel frames of as much audio as the encoder takes, and how many have sound."""
        most = self._encoder.max_frames
        frames = -(-len(samples) // HOP) if samples.ndim == 1 else 0
        if not _LEAST_FRAMES <= frames <= most:
            raise ValueError(
                f"audio of this model must be [samples], from {LEAST_SAMPLES} to {most * HOP} of"
                f" them ({most * HOP / SAMPLING_RATE:g} s), got {list(samples.shape)}"
            )
        return log_mel(padded(samples, most * HOP), self._encoder.bins), frames
