"""MOSS-Transcribe-Diarize: Whisper's encoder, a projector of two linear layers and a norm that
reads four of its vectors at once, and Qwen3.

Weights: `audio_tower.` (whisper_encoder.py), `multi_modal_projector.{linear_1, linear_2, norm}`
and `language_model.` (qwen3.py), all behind `model.`, with `lm_head` beside it if it is not tied.

Between the tokens of audio, behind each 2 s, is the time in digits: `...2...4...6`. A window of
30 s is one item, so the digits in it are tokens of the item, too: their embeddings, which are those
of the language model, come from the encoder.

Source: `MossTranscribeDiarizeProcessor` and `MossTranscribeDiarizeModel` of `transformers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.log_mel import HOP, log_mel, padded
from pagemill.models.audio.mel_convolutions import STRIDE
from pagemill.models.audio.whisper_encoder import WhisperEncoder
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaPart,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import (
    Defaults,
    activation,
    flag,
    inner_config,
    positive_int,
    token_id,
)
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part, ignored_in_part
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_COUNT = 4  # vectors of the encoder that make a token
_MARKED_S = 2  # from one time in the prompt to the next
_MARKED_TOKENS = 25  # of audio in these seconds
# The vocabulary of Qwen's tokenizers begins with ASCII from "!" on.
_ZERO = ord("0") - ord("!")
_DIGITS = 10
# Those of the configuration's classes: published checkpoints leave some out.
_ENCODER = {
    "num_mel_bins": 80,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "hidden_size": 1024,
}
_TEXT = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
}


class MossTranscribeDiarizeModel(WithDecoder):
    """One MOSS-Transcribe-Diarize model: a `TiledModel` (base.py). Audio is divided into windows of
    the length that the encoder takes, 30 s, which are encoded apart; the last one is filled up with
    silence, which makes no tokens."""

    def __init__(self, config: Config) -> None:
        text = {**_TEXT, **inner_config(config, "text_config")}
        tied = flag(config, "tie_word_embeddings", True)
        given = {**config, "text_config": text, "tie_word_embeddings": tied}
        self._text = decoder_part(given, ("qwen3",))
        self.ignored = ignored_in_part(self._text)
        audio = Defaults(inner_config(config, "audio_config"), _ENCODER)
        self._encoder = WhisperEncoder(audio, rows_apart=True)
        samples, rest = self._encoder.max_frames * HOP, self._encoder.max_tokens % _COUNT
        if rest or positive_int(config, "audio_chunk_size", samples) != samples:
            raise ModelConfigError(
                f"audio_chunk_size must be {samples}, the samples that the encoder has positions"
                f" for, and max_source_positions a multiple of {_COUNT}"
            )
        if positive_int(config, "audio_merge_size", _COUNT) != _COUNT:
            raise ModelConfigError(f"audio_merge_size must be {_COUNT}: 12.5 tokens are a second")
        self._tokens = self._encoder.max_tokens // _COUNT  # of a whole window
        self._activation = activation(config, "projector_hidden_act", "silu")
        self._bias = flag(config, "projector_bias", True)
        vocab = self._text.traits.vocab_size
        self._placeholder = token_id(config, "audio_token_id", vocab)
        if vocab < _ZERO + _DIGITS:
            raise ModelConfigError(f"vocab_size is {vocab}, which leaves no tokens for digits")

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        text = self._text.traits
        longest_s = text.max_model_len * _MARKED_S // _MARKED_TOKENS
        most_marks = -(-self._tokens // _MARKED_TOKENS) * len(str(longest_s))
        media = MediaTraits(
            rows=_COUNT,
            channels=self._encoder.channels + 1 + _DIGITS,
            tokens=1,
            width=text.hidden_size,
            placeholders={"audio": self._placeholder},
            any_size=True,
            placed=True,
            most_tokens=self._tokens + max(_DIGITS, most_marks),
        )
        return replace(text, media=media)

    def layout(self, audio: PreparedMedia) -> Sequence[MediaPart]:
        """Samples [samples] as an item for each window."""
        samples, most = audio.values, self._encoder.max_frames * HOP
        if samples.ndim != 1 or not len(samples):
            raise ValueError(f"audio of this model must be [samples], got {list(samples.shape)}")
        return [
            self._window(samples[first : first + most], number * self._tokens)
            for number, first in enumerate(range(0, len(samples), most))
        ]

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        """Audio of the first window."""
        return self._window(audio.values, 0)

    def _window(self, samples: np.ndarray, earlier: int) -> MediaFeatures:
        """The item of samples [n] behind so many tokens of audio. Behind its rows are those of the
        ten digits; which rows they are is in the last channels."""
        tokens = -(-len(samples) // (HOP * STRIDE * _COUNT))
        mel = log_mel(padded(samples, self._encoder.max_frames * HOP), self._encoder.bins)
        heard = np.pad(self._encoder.features(mel), ((0, _DIGITS * _COUNT), (0, 0)))
        embedding = np.arange(len(heard)) // _COUNT
        marks = np.eye(1 + _DIGITS, dtype=np.float32)[np.maximum(embedding - self._tokens + 1, 0)]
        placement: list[int] = []
        for token in range(tokens):
            placement.append(token)
            marked, rest = divmod(earlier + token + 1, _MARKED_TOKENS)
            if not rest:
                placement += [self._tokens + int(digit) for digit in str(marked * _MARKED_S)]
        rows = np.concatenate([heard, marks], axis=1)
        return MediaFeatures(rows, len(placement), placement=np.array(placement, np.int32))

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        rows, marks = ops.split(inputs.media.rows, self._encoder.channels)
        x = self._encoder.hidden(weights.within("model.audio_tower."), rows, inputs.positions)
        x = ops.select_rows(x, inputs.media.tokens, count=_COUNT)
        projector = weights.within("model.multi_modal_projector.")
        width = self._text.traits.hidden_size
        x = linear(projector, "linear_1", x, (width,), bias=self._bias)
        x = ops.activation(x, self._activation)
        x = linear(projector, "linear_2", x, (width,), bias=self._bias)
        x = norm.layer_norm(projector, "norm", x, self._text.sizes.norm_eps)
        digits = [self._digit(weights, digit, inputs.media.tokens) for digit in range(_DIGITS)]
        marks = ops.select_rows(marks, inputs.media.tokens)
        same = weights.constant("marks", np.eye(1 + _DIGITS).tolist())
        shares = ops.linear(marks, same, dtype="f32")
        return ops.moe_combine(ops.concat_all([x, *digits], (1 + _DIGITS, width)), shares)

    def _digit(self, weights: Weights, digit: int, rows: Tensor) -> Tensor:
        """The language model's embedding of a digit, as often as there are `rows`, i32 [N]: [N,
        width]."""
        vocab, width = self._text.traits.vocab_size, self._text.traits.hidden_size
        row = Part(_ZERO + digit, _ZERO + digit + 1, vocab)
        table = self.named(weights).matrix("model.embed_tokens.weight", (vocab, width), rows=row)
        return ops.embedding(rows, table, outside=0)
