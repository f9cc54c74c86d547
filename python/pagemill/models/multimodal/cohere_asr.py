"""Cohere's models of speech to text: Parakeet's encoder of sound, and a decoder that attends to its
rows. A prompt begins with one recording.

Weights, whose names may all be behind `model.`: `encoder.` (parakeet_encoder.py),
`encoder_decoder_proj`, `transf_decoder._embedding.{token_embedding, position_embedding.pos_enc,
layer_norm}`, `transf_decoder._decoder.{layers.<i>, final_layer_norm}`, with layers as in
bart_layers.py by names of their own (`_NAMES`); and the head `log_softmax.mlp.layer0`, whose name
has nothing in front of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import attention, embedding, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.cross_attention import DecoderRows
from pagemill.layers.linear import linear
from pagemill.layers.stack import stack
from pagemill.models.audio.depthwise_subsampling import STRIDE
from pagemill.models.audio.log_mel import HOP, SAMPLING_RATE
from pagemill.models.audio.normalized_mel import LEAST_SAMPLES, normalized_log_mel
from pagemill.models.audio.parakeet_encoder import ParakeetEncoder
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import (
    Defaults,
    activation,
    flag,
    inner_config,
    layer_count,
    positive_int,
    refuse,
    token_id,
)
from pagemill.models.encoder_decoder.bart_layers import EPS, LayerForm, LayerNames, decoder_layer
from pagemill.models.multimodal.decoder_part import parts_weights
from pagemill.ops.trace import Tensor

MOST_SECONDS = 35
"""Of a recording (`max_audio_clip_s` of the feature extractor)."""
_MOST_SAMPLES = MOST_SECONDS * SAMPLING_RATE
_MOST_VECTORS = -(-_MOST_SAMPLES // (HOP * STRIDE))
_NAMES = LayerNames(
    own="first_sub_layer",
    cross="second_sub_layer",
    query="query_net",
    key="key_net",
    value="value_net",
    output="out_projection",
    own_norm="layer_norm_1",
    cross_norm="layer_norm_2",
    last_norm="layer_norm_3",
    feed_forward=("third_sub_layer.dense_in", "third_sub_layer.dense_out"),
)
_EMBEDDING, _DECODER = "transf_decoder._embedding", "transf_decoder._decoder"
_HEAD = "log_softmax.mlp.layer0"
# Those of the configuration's classes: published checkpoints may leave some out.
_DEFAULTS = {
    "vocab_size": 16384,
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "intermediate_size": 4096,
    "max_position_embeddings": 1024,
    "pad_token_id": 2,
}
_ENCODER = {
    "hidden_size": 1280,
    "num_hidden_layers": 48,
    "num_attention_heads": 8,
    "intermediate_size": 5120,
    "num_mel_bins": 128,
}


class CohereAsrModel:
    """One model of speech to text."""

    ignored: Mapping[str, str] = {
        r".*\.batch_norm\.num_batches_tracked": "statistics are not updated",
        r"preprocessor\.featurizer\..*": "log-mel frames are computed",
    }

    def __init__(self, config: Config) -> None:
        encoder = Defaults(inner_config(config, "encoder_config"), _ENCODER)
        self._encoder = ParakeetEncoder(encoder, _MOST_VECTORS)
        config = Defaults(config, _DEFAULTS)
        refuse(config, "tie_word_embeddings")
        if not flag(config, "attention_bias", True):
            raise ModelConfigError("attention_bias must be true")
        self._vocab_size = positive_int(config, "vocab_size")
        self._hidden_size = positive_int(config, "hidden_size")
        self._layers = layer_count(config)
        self._intermediate_size = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "relu")
        self._positions = positive_int(config, "max_position_embeddings")
        self._placeholder = token_id(config, "pad_token_id", self._vocab_size)
        heads = positive_int(config, "num_attention_heads")
        if positive_int(config, "num_key_value_heads", heads) != heads:
            raise ModelConfigError("num_key_value_heads must be num_attention_heads")
        head_dim = positive_int(config, "head_dim", max(1, self._hidden_size // heads))
        self._shape = AttentionShape(heads, heads, head_dim, head_dim**-0.5)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        """Tokens of sound and of text have as many places together as the decoder has positions, so
        that none of the text lacks one."""
        media = MediaTraits(
            rows=1,
            channels=self._encoder.channels,
            tokens=1,
            width=self._hidden_size,
            placeholders={"audio": self._placeholder},
            any_size=True,
            most_tokens=self._encoder.most,
            encoder_decoder=True,
            text_rows=True,
        )
        return ModelTraits(
            self._vocab_size,
            self._hidden_size,
            self._positions,
            causal=True,
            generates=True,
            media=media,
        )

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        samples = audio.values
        if samples.ndim != 1 or not LEAST_SAMPLES <= len(samples) <= _MOST_SAMPLES:
            raise ValueError(
                f"audio of this model must be [samples], {LEAST_SAMPLES} to {_MOST_SAMPLES} of"
                f" them ({MOST_SECONDS} s), got {list(samples.shape)}"
            )
        rows = self._encoder.features(normalized_log_mel(samples, self._encoder.bins))
        return MediaFeatures(rows, len(rows))

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = self._parts(weights)
        x = self._encoder.output(parts.within("encoder."), inputs.media.rows)
        return linear(parts, "encoder_decoder_proj", x, (self._hidden_size,), bias=True)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        assert inputs.media is not None and inputs.text_rows is not None
        parts, media, text = self._parts(weights), inputs.media, inputs.text_rows
        out = f"{_DECODER}.layers.0.{_NAMES.own}.{_NAMES.output}"
        shape = attention.divide(parts, self._shape, out)
        form = LayerForm(
            shape, self._intermediate_size, self._activation, norm_first=True, names=_NAMES
        )
        width = shape.features(shape.heads).size
        rows = DecoderRows.of(weights, text, media.tokens, inputs.token_ids, width)

        def layer(index: int, x: Tensor) -> Tensor:
            name = f"{_DECODER}.layers.{index}"
            return decoder_layer(parts, name, f"kv{index}", x, media.rows, rows, form)

        x = self._embed(parts, inputs)
        hidden = stack(weights, ops.select_rows(x, text), self._layers, layer)
        hidden = norm.layer_norm(parts, f"{_DECODER}.final_layer_norm", hidden, EPS)
        return ops.scatter_rows(x, hidden, text)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return embedding.logits(weights, rows, self._vocab_size, _HEAD, bias=True)

    def _embed(self, parts: Weights, inputs: StepInputs) -> Tensor:
        """Embeddings of all tokens [T, H]; those of media have no meaning."""
        assert inputs.decoder_positions is not None
        words = (self._vocab_size, self._hidden_size)
        x = embedding.embedding(parts, f"{_EMBEDDING}.token_embedding", inputs.token_ids, words)
        places = (self._positions, self._hidden_size)
        table = parts.small(f"{_EMBEDDING}.position_embedding.pos_enc", places)
        x = ops.add(x, ops.embedding(inputs.decoder_positions, table, outside=0))
        return norm.layer_norm(parts, f"{_EMBEDDING}.layer_norm", x, EPS)

    def _parts(self, weights: Weights) -> Weights:
        return parts_weights(weights, f"{_EMBEDDING}.layer_norm.weight")
