"""GLM-ASR: an encoder with Whisper's convolutions and rotary positions, a projector of two linear
layers that reads four of its vectors at once, and Llama.

Weights: `audio_tower.` with `conv1` and `conv2` (mel_convolutions.py), `layers.<i>.{
input_layernorm, self_attn.{q,k,v,o}_proj, post_attention_layernorm, mlp.{fc1,fc2}}` and `norm`;
`multi_modal_projector.{linear_1, linear_2}` and `language_model.` (llama.py). All may be behind
`model.`, with `lm_head` beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary, bind_rotary
from pagemill.models.audio.log_mel import HOP, log_mel, padded
from pagemill.models.audio.mel_convolutions import STRIDE, MelConvolutions
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
    layer_count,
    make_rotary_table,
    positive_int,
    token_id,
)
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part, ignored_in_part
from pagemill.ops.trace import Tensor

_COUNT = 4  # vectors of the encoder that make a token
_EPS = 1e-5
_MLP = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
# Those of the configuration's classes: published checkpoints leave some out.
_ENCODER = {
    "num_mel_bins": 128,
    "num_hidden_layers": 32,
    "num_attention_heads": 20,
    "intermediate_size": 5120,
    "hidden_size": 1280,
    "max_position_embeddings": 1500,
    "partial_rotary_factor": 0.5,
}
_TEXT = {
    "vocab_size": 59264,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
}


class GlmAsrModel(WithDecoder):
    """One GLM-ASR model. Audio is divided into parts of the length that the encoder takes, 30 s,
    which are encoded apart; the last one is filled up with silence, which makes no tokens."""

    def __init__(self, config: Config) -> None:
        text = {**_TEXT, **inner_config(config, "text_config")}
        self._text = decoder_part({**config, "text_config": text}, ("llama",))
        self.ignored = ignored_in_part(self._text)
        self._encoder = _Encoder(Defaults(inner_config(config, "audio_config"), _ENCODER))
        self._activation = activation(config, "projector_hidden_act", "gelu")
        self._placeholder = token_id(config, "audio_token_id", self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        rows = self._encoder.rows
        media = MediaTraits(
            rows=rows,
            channels=self._encoder.convolutions.channels,
            tokens=rows // _COUNT,
            width=self._text.traits.hidden_size,
            placeholders={"audio": self._placeholder},
            any_size=True,
            tiles=True,
            most_tokens=rows // _COUNT,
        )
        return replace(self._text.traits, media=media)

    def layout(self, audio: PreparedMedia) -> Sequence[PreparedMedia | str]:
        """Samples [samples] in parts, of which the last one makes a token at least."""
        samples, most = audio.values, STRIDE * self._encoder.rows * HOP
        least = (STRIDE * _COUNT - 2) * HOP + 1  # the last frame may have one sample
        if samples.ndim != 1 or len(samples) < least:
            raise ValueError(
                f"audio of this model must be [samples], at least {least} of them, got"
                f" {list(samples.shape)}"
            )
        parts = [samples[first : first + most] for first in range(0, len(samples), most)]
        return [PreparedMedia("audio", part) for part in parts if len(part) >= least]

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        """Rows of a part as long as the encoder takes, and tokens of what is not silence."""
        frames = -(-len(audio.values) // HOP)
        tokens = -(-frames // STRIDE) // _COUNT
        whole = padded(audio.values, STRIDE * self._encoder.rows * HOP)
        rows = self._encoder.convolutions.features(log_mel(whole, self._encoder.convolutions.bins))
        return MediaFeatures(rows, tokens, placement=np.arange(tokens, dtype=np.int32))

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        prefix = "model." if weights.has("model.audio_tower.conv1.weight") else ""
        tower = weights.within(f"{prefix}audio_tower.")
        x = self._encoder.hidden(tower, inputs.media.rows, inputs.positions)
        x = ops.select_rows(x, inputs.media.tokens, count=_COUNT)
        projector = weights.within(f"{prefix}multi_modal_projector.")
        width = self._text.traits.hidden_size
        x = ops.activation(
            linear(projector, "linear_1", x, (2 * width,), bias=True), self._activation
        )
        return linear(projector, "linear_2", x, (width,), bias=True)


class _Encoder:
    """Log-mel frames of 30 s to `rows` vectors."""

    def __init__(self, config: Config) -> None:
        self._hidden = positive_int(config, "hidden_size")
        self._layers = layer_count(config)
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "gelu")
        self.rows = positive_int(config, "max_position_embeddings")
        heads = positive_int(config, "num_attention_heads")
        kv_heads = positive_int(config, "num_key_value_heads", heads)
        head_dim, rest = divmod(self._hidden, heads)
        if rest or heads % kv_heads:
            raise ModelConfigError(
                f"{heads} heads cannot share {self._hidden} features and {kv_heads} key-value heads"
            )
        if self.rows % _COUNT or self._intermediate != _COUNT * self._hidden:
            raise ModelConfigError(
                f"{self.rows} vectors of {self._hidden} do not make whole rows of"
                f" {self._intermediate}, the audio_config's intermediate_size, {_COUNT} each"
            )
        self._shape = attention.AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5)
        self._table = make_rotary_table(config, head_dim)
        self.convolutions = MelConvolutions(positive_int(config, "num_mel_bins"), self._hidden)

    def hidden(self, weights: Weights, rows: Tensor, positions: Tensor) -> Tensor:
        """`features` [T, channels] and positions i32 [T], from 0 in each part -> [T, hidden]."""
        rotary = bind_rotary(weights, "inv_freq", self._table, positions, interleaved=False)
        x = self.convolutions.output(weights, rows)
        for layer in range(self._layers):
            x = self._layer(weights, f"layers.{layer}", x, rotary)
        return norm.layer_norm(weights, "norm", x, _EPS)

    def _layer(self, weights: Weights, prefix: str, x: Tensor, rotary: Rotary) -> Tensor:
        inner, shape = f"{prefix}.self_attn", self._shape
        y = norm.layer_norm(weights, f"{prefix}.input_layernorm", x, _EPS)
        kv = (shape.kv_heads, shape.head_dim)
        q = linear(weights, f"{inner}.q_proj", y, (shape.heads, shape.head_dim), bias=True)
        k = linear(weights, f"{inner}.k_proj", y, kv)
        v = linear(weights, f"{inner}.v_proj", y, kv, bias=True)
        y = attention.attend_both_ways(*rotary(q, k), v, shape)
        x = ops.add(x, linear(weights, f"{inner}.o_proj", y, (self._hidden,), bias=True))
        y = norm.layer_norm(weights, f"{prefix}.post_attention_layernorm", x, _EPS)
        y = mlp(weights, f"{prefix}.mlp", y, self._intermediate, self._activation, _MLP)
        return ops.add(x, y)
