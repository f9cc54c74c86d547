"""Audio Flamingo 3: Whisper's encoder, whose vectors are averaged in pairs, a projector of two
linear layers, and Qwen2.

Weights: `audio_tower.` (whisper_encoder.py), `multi_modal_projector.{linear_1, linear_2}` and
`language_model.` (qwen2.py). All may be behind `model.`, with `lm_head` beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.log_mel import HOP
from pagemill.models.base import Config
from pagemill.models.config_keys import activation, flag
from pagemill.models.multimodal.qwen2_audio import LEAST_SAMPLES, Qwen2AudioModel
from pagemill.ops.trace import Tensor


class AudioFlamingo3Model(Qwen2AudioModel):
    """One Audio Flamingo 3 model: a `TiledModel` (base.py). Audio is divided into parts of the
    length that the encoder takes, 30 s, which are encoded apart."""

    # Those of the configuration's class: published checkpoints leave some out.
    encoder_defaults = {
        "num_mel_bins": 128,
        "num_hidden_layers": 32,
        "num_attention_heads": 20,
        "intermediate_size": 5120,
        "hidden_size": 1280,
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._activation = activation(config, "projector_hidden_act", "gelu")
        self._bias = flag(config, "projector_bias", True)

    def layout(self, audio: PreparedMedia) -> Sequence[PreparedMedia]:
        """Samples [samples] in parts, of which the last one makes a token."""
        samples, most = audio.values, self._encoder.max_frames * HOP
        if samples.ndim != 1 or len(samples) < LEAST_SAMPLES:
            raise ValueError(
                f"audio of this model must be [samples], at least {LEAST_SAMPLES} of them, got"
                f" {list(samples.shape)}"
            )
        parts = [samples[first : first + most] for first in range(0, len(samples), most)]
        return [PreparedMedia("audio", part) for part in parts if len(part) >= LEAST_SAMPLES]

    def projected(self, weights: Weights, x: Tensor) -> Tensor:
        width = self._text.traits.hidden_size
        x = linear(weights, "linear_1", x, (width,), bias=self._bias)
        x = ops.activation(x, self._activation)
        return linear(weights, "linear_2", x, (width,), bias=self._bias)
