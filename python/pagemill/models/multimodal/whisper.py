"""Whisper: an encoder of sound, and a decoder that attends to its rows. A prompt begins with one
recording of 30 seconds.

Weights: `model.encoder.` (whisper_encoder.py); `model.decoder.{embed_tokens, embed_positions,
layer_norm}`, `model.decoder.layers.<i>.{self_attn, encoder_attn}.{q,k,v,out}_proj`, the norms
`self_attn_layer_norm`, `encoder_attn_layer_norm` and `final_layer_norm`, `fc1`, `fc2`.
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
from pagemill.layers.cross_attention import DecoderRows, attend
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.prefixed import PrefixedWeights
from pagemill.layers.stack import stack
from pagemill.models.audio.log_mel import HOP, SAMPLING_RATE, log_mel, padded
from pagemill.models.audio.whisper_encoder import WhisperEncoder
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import activation, flag, positive_int, token_id
from pagemill.ops.trace import Tensor

_EPS = 1e-5  # not in the configuration
_MLP = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
_DECODER = "model.decoder"


class WhisperModel:
    """One Whisper model. `front` tokens of a prompt stand for the recording."""

    ignored: Mapping[str, str] = {r"proj_out\.weight": "the head is the embedding"}

    def __init__(self, config: Config) -> None:
        self._encoder = WhisperEncoder(config)
        self._vocab_size = positive_int(config, "vocab_size")
        self._hidden_size = positive_int(config, "d_model")
        self._layers = positive_int(config, "decoder_layers")
        self._intermediate_size = positive_int(config, "decoder_ffn_dim")
        self._activation = activation(config, "activation_function", "gelu")
        self._scale = self._hidden_size**0.5 if flag(config, "scale_embedding", False) else 1.0
        self._placeholder = token_id(config, "pad_token_id", self._vocab_size)
        self.front = positive_int(config, "max_source_positions")
        self._positions = positive_int(config, "max_target_positions")
        heads = positive_int(config, "decoder_attention_heads")
        if self._hidden_size % heads:
            raise ModelConfigError(
                f"d_model {self._hidden_size} is not a multiple of decoder_attention_heads {heads}"
            )
        head_dim = self._hidden_size // heads
        self._shape = AttentionShape(heads, heads, head_dim, head_dim**-0.5)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = MediaTraits(
            rows=self.front,
            channels=self._encoder.channels,
            tokens=self.front,
            width=self._hidden_size,
            placeholders={"audio": self._placeholder},
            encoder_decoder=True,
            text_rows=True,
        )
        return ModelTraits(
            self._vocab_size,
            self._hidden_size,
            self.front + self._positions,
            causal=True,
            generates=True,
            media=media,
        )

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        """Samples [samples], with silence behind them."""
        samples, most = audio.values, self._encoder.max_frames * HOP
        if samples.ndim != 1 or not 0 < len(samples) <= most:
            raise ValueError(
                f"audio of this model must be [samples], at most {most} of them"
                f" ({most / SAMPLING_RATE:g} s), got {list(samples.shape)}"
            )
        mel = log_mel(padded(samples, most), self._encoder.bins)
        return MediaFeatures(self._encoder.features(mel), self.front)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        encoder = PrefixedWeights(weights, "model.encoder.")
        return self._encoder.hidden(encoder, inputs.media.rows, inputs.positions)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        assert inputs.media is not None and inputs.text_rows is not None
        media, text = inputs.media, inputs.text_rows
        out = f"{_DECODER}.layers.0.self_attn.out_proj"
        shape = attention.divide(weights, self._shape, out)
        width = shape.features(shape.heads).size
        rows = DecoderRows.of(weights, text, media.tokens, inputs.token_ids, width)

        def layer(index: int, x: Tensor) -> Tensor:
            return self._layer(weights, index, x, media.rows, rows, shape)

        x = self._embed(weights, inputs)
        hidden = stack(weights, ops.select_rows(x, text), self._layers, layer)
        hidden = norm.layer_norm(weights, f"{_DECODER}.layer_norm", hidden, _EPS)
        return ops.scatter_rows(x, hidden, text)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return embedding.logits(
            weights, rows, self._vocab_size, f"{_DECODER}.embed_tokens", head="proj_out"
        )

    def _embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        """Embeddings of all tokens [T, H]; those of media have no meaning."""
        words = (self._vocab_size, self._hidden_size)
        name = f"{_DECODER}.embed_tokens"
        x = embedding.embedding(weights, name, inputs.token_ids, words, scale=self._scale)
        # The first text token is at the position `front` of a request, and reads row 0.
        table = weights.small(
            f"{_DECODER}.embed_positions.weight",
            (self._positions, self._hidden_size),
            row_order=[0] * self.front + list(range(self._positions)),
        )
        return ops.add(x, ops.embedding(inputs.positions, table))

    def _layer(
        self,
        weights: Weights,
        index: int,
        x: Tensor,
        encoded: Tensor,
        rows: DecoderRows,
        shape: AttentionShape,
    ) -> Tensor:
        """x [text_rows, H], encoded [media_rows, H] -> [text_rows, H]."""
        prefix, part = f"{_DECODER}.layers.{index}", shape.features(shape.heads)
        heads = (part.size // shape.head_dim, shape.head_dim)

        def normalized(name: str) -> Tensor:
            return norm.layer_norm(weights, f"{prefix}.{name}", x, _EPS)

        def project(name: str, of: Tensor, *, bias: bool = True) -> Tensor:
            return linear(weights, f"{prefix}.{name}", of, heads, bias=bias, rows=part)

        def output(name: str, attended: Tensor) -> Tensor:
            name, size = f"{prefix}.{name}", self._hidden_size
            return attention.output(weights, name, attended, shape, size, bias=True)

        y = normalized("self_attn_layer_norm")
        k = project("self_attn.k_proj", y, bias=False)
        v = project("self_attn.v_proj", y)
        media_k = project("encoder_attn.k_proj", encoded, bias=False)
        media_v = project("encoder_attn.v_proj", encoded)
        cache = weights.trace.cache(f"kv{index}", weights.trace.kv_group(), heads)
        ops.kv_write(rows.joined(k, media_k), rows.joined(v, media_v), cache)
        q = project("self_attn.q_proj", y)
        attended = attend(rows, q, cache, shape, front=self.front)
        x = ops.add(x, output("self_attn.out_proj", attended))

        q = project("encoder_attn.q_proj", normalized("encoder_attn_layer_norm"))
        attended = attend(rows, q, cache, shape, front=self.front, cross=True)
        x = ops.add(x, output("encoder_attn.out_proj", attended))

        y, size = normalized("final_layer_norm"), self._intermediate_size
        return ops.add(x, mlp(weights, prefix, y, size, self._activation, _MLP))
