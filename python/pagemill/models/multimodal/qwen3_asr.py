"""Qwen3-ASR: Qwen3-Omni's encoder of audio, a projector of two linear layers, and Qwen3.

Weights: `audio_tower.` (qwen3_audio_encoder.py), `multi_modal_projector.{linear_1, linear_2}` and
`language_model.` (qwen3.py), all behind `model.`, with `lm_head` beside it. The first checkpoints
have all behind `thinker.`, as their configuration is behind `thinker_config`; the projector is
`audio_tower.{proj1, proj2}` there, and Qwen3's names have no `language_model.`.

The aligner, `Qwen3ASRForTokenClassification`, has `score` in place of `lm_head`: the class of a
`<timestamp>` token is a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.qwen3_audio_encoder import Qwen3AudioEncoder
from pagemill.models.base import Config, EncoderInputs, MediaPart, ModelTraits
from pagemill.models.config_keys import Defaults, flag, inner_config, token_id
from pagemill.models.multimodal.decoder_part import WithDecoder, ignored_in_part, parts_weights
from pagemill.models.multimodal.omni_thinker import (
    UNUSED,
    text_of_audio,
    thinker_config,
    thinker_text_weights,
    thinker_weights,
)
from pagemill.models.qwen3 import Qwen3Model
from pagemill.ops.trace import Tensor

_LEAST_SAMPLES = 8000  # 0.5 s; silence fills up what is shorter
_ENCODER = {"num_mel_bins": 128, "downsample_hidden_size": 480}
_TEXT = {"vocab_size": 151936, "head_dim": 128}
# Those of the configuration's classes: published checkpoints leave some out.
_NEWER_ENCODER = {
    **_ENCODER,
    "encoder_layers": 24,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "d_model": 1024,
    "n_window": 50,
    "n_window_infer": 800,
}
_NEWER_TEXT = {
    **_TEXT,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 65536,
}
# Source: configuration_qwen3_asr.py of github.com/QwenLM/Qwen3-ASR.
_FIRST_ENCODER = {
    **_ENCODER,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "d_model": 1280,
    "n_window": 100,
    "n_window_infer": 400,
}
_FIRST_TEXT = {
    **_TEXT,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 128000,
    "rope_theta": 5e6,
}


class Qwen3AsrModel(WithDecoder):
    """One Qwen3-ASR model: a `Classifier` (base.py) of tokens."""

    classifier_pooling = "last"
    base_prefix = ""  # all checkpoints have theirs

    def __init__(self, config: Config) -> None:
        thinker = thinker_config(config)
        newer = thinker is config
        text = inner_config(thinker, "text_config")
        tied = flag(thinker, "tie_word_embeddings", flag(text, "tie_word_embeddings", newer))
        sizes = _NEWER_TEXT if newer else _FIRST_TEXT
        self._text = Qwen3Model({**sizes, **text_of_audio(text), "tie_word_embeddings": tied})
        self.ignored = {**UNUSED, **ignored_in_part(self._text)}
        defaults = _NEWER_ENCODER if newer else _FIRST_ENCODER
        audio = Defaults(inner_config(thinker, "audio_config"), defaults)
        width = self._text.traits.hidden_size
        self._encoder = Qwen3AudioEncoder(audio, width, fills_chunks=True)
        self._score_bias = flag(thinker, "token_classification_bias", False)
        self._placeholder = token_id(thinker, "audio_token_id", self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return replace(self._text.traits, media=self._encoder.traits(self._placeholder))

    def layout(self, audio: PreparedMedia) -> list[MediaPart]:
        """Samples [samples] as an item for each window."""
        samples = audio.values
        if samples.ndim != 1 or not len(samples):
            raise ValueError(f"audio of this model must be [samples], got {list(samples.shape)}")
        filled = np.pad(samples, (0, max(0, _LEAST_SAMPLES - len(samples))))
        return [*self._encoder.items(filled)]

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        """Audio of one window."""
        (item,) = self._encoder.items(audio.values)
        return item

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = parts_weights(thinker_weights(weights), "audio_tower.conv2d1.weight")
        tower = parts.within("audio_tower.")
        if tower.has("proj1.weight"):
            return self._encoder.embeddings(tower, tower, ("proj1", "proj2"), inputs)
        projector = parts.within("multi_modal_projector.")
        return self._encoder.embeddings(tower, projector, ("linear_1", "linear_2"), inputs)

    def before_pooling(self, weights: Weights, hidden: Tensor) -> Tensor:
        return self._text.before_pooling(weights, hidden)

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        return self.classify_tokens(weights, rows, labels)

    def classify_tokens(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        return linear(weights, "score", rows, (labels,), bias=self._score_bias, dtype="f32")

    def named(self, weights: Weights) -> Weights:
        return thinker_text_weights(weights, self._text)
