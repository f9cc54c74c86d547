"""The encoder of audio of Phi-4 multimodal: a conformer with biases by distance, whose convolutions
of each channel read a frame and those in front of it, and a projector.

Weights: under `encoder.` those of depthwise_subsampling.py, `relative_attention_bias_layer.
bias_values` and in its layer i `encoders.<i>.{feed_forward_in, feed_forward_out}.{layer_norm,
gate_up_proj, down_proj}`, `layer_norm_att`, `self_attn.{q,k,v,o}_proj`, `conv.{layer_norm, glu.{
ext_pw_conv_1d, b1, b2}, dw_sep_conv_1d.{dw_conv, pw_conv}, ext_pw_conv_1d}` and `layer_norm`;
`up_proj_for_speech` and `down_proj_for_speech`.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.attention import AttentionShape, attend_both_ways
from pagemill.layers.base import Weights
from pagemill.layers.computed import small_columns
from pagemill.layers.linear import linear
from pagemill.models.audio.conformer_parts import of_channels, shifted
from pagemill.models.audio.depthwise_subsampling import DepthwiseSubsampling
from pagemill.models.audio.kaldi_mel import kaldi_log_mel
from pagemill.models.audio.log_mel import WINDOW
from pagemill.models.base import Config, EncoderInputs, MediaTraits, ModelConfigError
from pagemill.models.config_keys import activation, flag, layer_count, positive_int, token_id
from pagemill.ops import ActivationKind
from pagemill.ops.depthwise_conv import MAX_TAPS
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_AUDIO = "model.embed_tokens_extend.audio_embed."
_CHUNK = 500  # vectors that see each other, of longer audio
_EPS = 1e-5
# What other checkpoints may have, and is not supported.
_ONLY = {"time_reduction": 8, "downsample_rate": 1, "depthwise_multiplier": 1}


class Phi4AudioEncoder:
    """One encoder for a language model with `width` features and `vocab` tokens."""

    def __init__(self, config: Config, width: int, vocab: int) -> None:
        self._hidden = positive_int(config, "hidden_size", 1024)
        for key, value in _ONLY.items():
            if positive_int(config, key, value) != value:
                raise ModelConfigError(f"{key} of audio_config must be {value}")
        for key in ("ext_pw_out_channel", "depthwise_separable_out_channel"):
            if positive_int(config, key, self._hidden) != self._hidden:
                raise ModelConfigError(f"{key} of audio_config must be its hidden_size")
        if (config.get("chunk_size") or -1) != -1:
            raise ModelConfigError("chunk_size of audio_config must be -1")
        self._layers = layer_count(config, "num_blocks", 24)
        self._intermediate = positive_int(config, "intermediate_size", 1536)
        self._activation = activation(config, "activation", "swish")
        self._glu = activation(config, "conv_glu_type", "swish")
        self._conv_activation = activation(config, "conv_activation", "swish")
        self._taps = positive_int(config, "kernel_size", 3)
        self._distance = positive_int(config, "bias_max_distance", 1000)
        if self._taps > MAX_TAPS or self._distance < _CHUNK:
            raise ModelConfigError(
                f"kernel_size of audio_config must be at most {MAX_TAPS}, and bias_max_distance at"
                f" least {_CHUNK}"
            )
        self._is_symmetric = flag(config, "bias_symmetric", False)
        heads = positive_int(config, "num_attention_heads", 16)
        dim, rest = divmod(self._hidden, heads)
        if rest:
            raise ModelConfigError(f"{heads} heads cannot share {self._hidden} features")
        self._shape = AttentionShape(heads, heads, dim, dim**-0.5)
        self._frames = DepthwiseSubsampling(
            positive_int(config, "input_size", 80),
            positive_int(config, "nemo_conv_channels", 1024),
            self._hidden,
            activation(config, "nemo_activation", "relu"),
            prefix="embed",
            normalized=True,
        )
        self._width = width
        stated = {"audio_token_id": 200011, **config}
        self.traits = MediaTraits(
            rows=1,
            channels=self._frames.channels,
            tokens=1,
            width=width,
            placeholders={"audio": token_id(stated, "audio_token_id", vocab)},
            any_size=True,
            placed=True,
            most_tokens=_CHUNK,
            step_rows=_CHUNK,
            alone=True,
            adapter="speech-lora",
        )

    def layout(self, audio: PreparedMedia) -> list[MediaFeatures]:
        """Samples [samples] as an item for each chunk. Zeros fill up the last one of several, and
        are seen."""
        samples = audio.values
        if samples.ndim != 1 or len(samples) < WINDOW:
            raise ValueError(
                f"audio of this model must be [samples], at least {WINDOW} of them, got"
                f" {list(samples.shape)}"
            )
        rows = self._frames.features(kaldi_log_mel(samples, self._frames.bins))
        if len(rows) <= _CHUNK:
            return [_placed(rows, len(rows))]
        return [_placed(rows[at : at + _CHUNK], _CHUNK) for at in range(0, len(rows), _CHUNK)]

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        """Audio of one chunk."""
        (item,) = self.layout(audio)
        return item

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        audio = weights.within(_AUDIO)
        encoder = audio.within("encoder.")
        x = self._frames.output(encoder, inputs.media.rows)
        biases = self._biases(encoder)
        for layer in range(self._layers):
            x = self._layer(encoder, f"encoders.{layer}", x, biases)
        x = linear(audio, "up_proj_for_speech", x, (self._width,), bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        return linear(audio, "down_proj_for_speech", x, (self._width,), bias=True)

    def _biases(self, weights: Weights) -> Tensor:
        """f32 [heads, distances]."""
        most, heads = self._distance, self._shape.heads
        rows = most if self._is_symmetric else 2 * most
        distances = np.arange(1 - _CHUNK, _CHUNK)
        order = np.abs(distances) if self._is_symmetric else distances + most
        name = "relative_attention_bias_layer.bias_values.weight"
        columns = Part(0, heads, heads)
        return small_columns(weights, name, (rows, heads), columns=columns, rows=order.tolist())

    def _layer(self, weights: Weights, prefix: str, x: Tensor, biases: Tensor) -> Tensor:
        hidden, shape = self._hidden, self._shape
        x = ops.add(x, self._fed_forward(weights, f"{prefix}.feed_forward_in", x))
        y = norm.layer_norm(weights, f"{prefix}.layer_norm_att", x, _EPS)
        q, k, v = (
            linear(
                weights,
                f"{prefix}.self_attn.{part}_proj",
                y,
                (shape.heads, shape.head_dim),
                bias=True,
            )
            for part in "qkv"
        )
        y = attend_both_ways(q, k, v, shape, biases)
        x = ops.add(x, linear(weights, f"{prefix}.self_attn.o_proj", y, (hidden,), bias=True))
        x = ops.add(x, self._convolved(weights, f"{prefix}.conv", x))
        x = ops.add(x, self._fed_forward(weights, f"{prefix}.feed_forward_out", x))
        return norm.layer_norm(weights, f"{prefix}.layer_norm", x, _EPS)

    def _fed_forward(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        y = norm.layer_norm(weights, f"{prefix}.layer_norm", x, _EPS)
        y = linear(weights, f"{prefix}.gate_up_proj", y, (2 * self._intermediate,), bias=True)
        up, gate = ops.split(y, self._intermediate)
        y = ops.gated_activation(gate, up, self._activation)
        return ops.scale(linear(weights, f"{prefix}.down_proj", y, (self._hidden,), bias=True), 0.5)

    def _convolved(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        hidden = self._hidden
        y = norm.layer_norm(weights, f"{prefix}.layer_norm", x, _EPS)
        y = of_channels(weights, f"{prefix}.glu.ext_pw_conv_1d", y, 2 * hidden)
        up, gate = (
            shifted(weights, f"{prefix}.glu.{name}", part, (1, hidden, 1))
            for name, part in zip(("b1", "b2"), ops.split(y, hidden), strict=True)
        )
        y = ops.gated_activation(gate, up, self._glu)
        name = f"{prefix}.dw_sep_conv_1d"
        taps = weights.small(f"{name}.dw_conv.weight", (hidden, 1, self._taps))
        bias = weights.vector(f"{name}.dw_conv.bias", hidden)
        y = ops.depthwise_conv(y, taps, bias, before=self._taps - 1)
        y = of_channels(weights, f"{name}.pw_conv", y, hidden)
        y = ops.activation(y, self._conv_activation)
        return of_channels(weights, f"{prefix}.ext_pw_conv_1d", y, hidden)


def _placed(rows: np.ndarray, count: int) -> MediaFeatures:
    """A token for each of `rows`, and zeros behind them, `count` rows in all."""
    filled = np.pad(rows, ((0, count - len(rows)), (0, 0)))
    return MediaFeatures(filled, len(rows), placement=np.arange(len(rows), dtype=np.int32))
