"""Voxtral: Whisper's encoder, a projector of two linear layers that reads four of its vectors at
once, and Llama.

Weights: `audio_tower.` (whisper_encoder.py), `multi_modal_projector.{linear_1, linear_2}` and
`language_model.` (llama.py). All may be behind `model.`, with `lm_head` beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.log_mel import HOP, log_mel, padded
from pagemill.models.audio.whisper_encoder import WhisperEncoder
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import (
    Defaults,
    activation,
    inner_config,
    positive_int,
    token_id,
)
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part, ignored_in_part
from pagemill.ops.trace import Tensor

# Those of the configuration's classes: published checkpoints leave some out.
_ENCODER = {
    "num_mel_bins": 128,
    "num_hidden_layers": 32,
    "num_attention_heads": 20,
    "intermediate_size": 5120,
    "hidden_size": 1280,
}
_TEXT = {
    "vocab_size": 131072,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e8,
    "head_dim": 128,
}


class VoxtralModel(WithDecoder):
    """One Voxtral model. Audio is divided into parts of the length that the encoder takes, 30 s,
    which are encoded apart; the last one is filled up with silence."""

    def __init__(self, config: Config) -> None:
        text = {**_TEXT, **inner_config(config, "text_config")}
        self._text = decoder_part({**config, "text_config": text}, ("llama",))
        self.ignored = ignored_in_part(self._text)
        audio = Defaults(inner_config(config, "audio_config"), _ENCODER)
        self._encoder = WhisperEncoder(audio)
        # The projector's rows are as wide as the encoder's inner layers: usually four vectors.
        width = positive_int(audio, "intermediate_size")
        self._count, rest = divmod(width, self._encoder.hidden_size)
        if rest or not self._count or self._encoder.max_tokens % self._count:
            raise ModelConfigError(
                f"{self._encoder.max_tokens} vectors of {self._encoder.hidden_size} do not make"
                f" whole rows of {width}, the audio_config's intermediate_size"
            )
        self._activation = activation(config, "projector_hidden_act", "gelu")
        self._placeholder = token_id(config, "audio_token_id", self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = MediaTraits(
            rows=self._encoder.max_tokens,
            channels=self._encoder.channels,
            tokens=self._tokens,
            width=self._text.traits.hidden_size,
            placeholders={"audio": self._placeholder},
        )
        return replace(self._text.traits, media=media)

    @property
    def _tokens(self) -> int:
        """Of a part."""
        return self._encoder.max_tokens // self._count

    def layout(self, audio: PreparedMedia) -> Sequence[PreparedMedia | str]:
        """Samples [samples] as log-mel frames of each part."""
        samples, frames = audio.values, self._encoder.max_frames
        if samples.ndim != 1 or not len(samples):
            raise ValueError(f"audio of this model must be [samples], got {list(samples.shape)}")
        mel = log_mel(padded(samples, frames * HOP), self._encoder.bins)
        return [
            PreparedMedia("audio", mel[:, first : first + frames])
            for first in range(0, mel.shape[1], frames)
        ]

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        return MediaFeatures(self._encoder.features(audio.values), self._tokens)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        prefix = "model." if weights.has("model.audio_tower.conv1.weight") else ""
        tower = weights.within(f"{prefix}audio_tower.")
        x = self._encoder.hidden(tower, inputs.media.rows, inputs.positions)
        x = ops.select_rows(x, inputs.media.tokens, count=self._count)
        projector = weights.within(f"{prefix}multi_modal_projector.")
        width = self._text.traits.hidden_size
        x = ops.activation(linear(projector, "linear_1", x, (width,)), self._activation)
        return linear(projector, "linear_2", x, (width,))
