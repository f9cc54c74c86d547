"""Granite Speech: a conformer, a Q-Former that makes three vectors of 15, and Granite. That of
Granite Speech Plus also reads results of some of the conformer's layers.

An adapter in the checkpoint's folder is for requests with audio, if `has_lora_adapter`.

Weights: `encoder.` (conformer_encoder.py), `projector.` (window_queries.py) with `linear`, and
`language_model.` (granite.py). All may be behind `model.`, with `lm_head` beside it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.conformer_encoder import ConformerEncoder
from pagemill.models.audio.htk_mel import LEAST_SAMPLES, htk_log_mel
from pagemill.models.audio.window_queries import WindowQueries
from pagemill.models.base import Config, EncoderInputs, MediaTraits, ModelConfigError, ModelTraits
from pagemill.models.config_keys import Defaults, flag, inner_config, positive_int, token_id
from pagemill.models.multimodal.decoder_part import (
    WithDecoder,
    decoder_part,
    ignored_in_part,
    parts_weights,
)
from pagemill.models.vision.margin import MARGIN_COLUMNS, margin_columns
from pagemill.ops.trace import Tensor

_FRAMES = 2  # of log-mel, side by side, that the encoder reads at once
# Those of the configuration's classes: published checkpoints may leave some out.
_ENCODER = {
    "input_dim": 160,
    "num_layers": 10,
    "hidden_dim": 1024,
    "feedforward_mult": 4,
    "num_heads": 8,
    "output_dim": 42,
    "context_size": 200,
    "max_pos_emb": 512,
    "conv_kernel_size": 15,
    "conv_expansion_factor": 2,
}
_PROJECTOR = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "encoder_hidden_size": 1408,
}


class GraniteSpeechModel(WithDecoder):
    """One Granite Speech model."""

    def __init__(self, config: Config) -> None:
        self._text = decoder_part({"tie_word_embeddings": True, **config}, ("granite",))
        self.ignored = {
            **ignored_in_part(self._text),
            r".*\.batch_norm\.num_batches_tracked": "statistics are not updated",
        }
        self._encoder = ConformerEncoder(Defaults(inner_config(config, "encoder_config"), _ENCODER))
        self._bins, rest = divmod(self._encoder.channels, _FRAMES)
        projector = Defaults(inner_config(config, "projector_config"), _PROJECTOR)
        if rest or projector.get("use_qformer_text_input"):
            raise ModelConfigError(
                f"input_dim {self._encoder.channels} must be even, and use_qformer_text_input false"
            )
        self._queries = WindowQueries(
            projector,
            window=positive_int(config, "window_size", 15),
            rate=positive_int(config, "downsample_rate", 5),
            width=self._encoder.width,
        )
        self._adapter = "." if flag(config, "has_lora_adapter", default=True) else None
        key = "audio_token_index" if "audio_token_index" in config else "audio_token_id"
        self._placeholder = token_id(config, key, self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = MediaTraits(
            rows=self._queries.rate,
            channels=self._encoder.channels + MARGIN_COLUMNS + self._queries.channels,
            tokens=1,
            width=self._text.traits.hidden_size,
            placeholders={"audio": self._placeholder},
            any_size=True,
            adapter=self._adapter,
        )
        return replace(self._text.traits, media=media)

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        """Pairs of frames, and zeros that fill up the last window, which are a margin."""
        samples = audio.values
        if samples.ndim != 1 or len(samples) < LEAST_SAMPLES:
            raise ValueError(
                f"audio of this model must be [samples], at least {LEAST_SAMPLES} of them, got"
                f" {list(samples.shape)}"
            )
        mel = htk_log_mel(samples, self._bins)
        pairs = mel[: len(mel) // _FRAMES * _FRAMES].reshape(-1, self._encoder.channels)
        behind = -len(pairs) % self._queries.window
        filled = np.pad(pairs, ((0, behind), (0, 0)))
        is_margin = np.arange(len(filled)) >= len(pairs)
        margin = np.stack([np.ones(len(filled)), is_margin], axis=1).astype(np.float32)
        rows = np.concatenate([filled, margin, self._queries.features(len(filled))], axis=1)
        return MediaFeatures(rows, len(rows) // self._queries.rate)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = parts_weights(weights, "encoder.input_linear.weight")
        frames, own = ops.split(inputs.media.rows, self._encoder.channels)
        margin, own = ops.split(own, MARGIN_COLUMNS)
        # 1 for frames, 0 for those of the margin.
        factors = weights.constant("inside", [[1.0, -1.0]])
        inside = ops.linear(margin, factors, dtype="f32")
        encoder = parts.within("encoder.")
        x = self._encoder.output(encoder, frames, margin_columns(margin), inside)
        # Queries see what fills up the last window, as zeros.
        same = weights.index("row", np.zeros((1, 1, 1), np.int32))
        x = ops.scale_groups(ops.unfold_listed(x, same, self._encoder.width), inside)
        projector = parts.within("projector.")
        x = self._queries.output(projector, x, own, inputs.media.tokens)
        return linear(projector, "linear", x, (self._text.traits.hidden_size,), bias=True)
