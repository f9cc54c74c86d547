"""Whisper's encoder: log-mel frames of audio to a vector for each two of them.

Weights: `conv1` and `conv2` (mel_convolutions.py), `embed_positions`, `layers.<i>.{
self_attn_layer_norm, self_attn.{q,k,v,out}_proj, final_layer_norm, fc1, fc2}`, with biases except
that of `k_proj`, and `layer_norm`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.embedding import add_positions
from pagemill.layers.linear import linear
from pagemill.models.audio.mel_convolutions import STRIDE, MelConvolutions
from pagemill.models.base import Config, MediaTraits, ModelConfigError
from pagemill.models.config_keys import activation, layer_count, positive_int
from pagemill.ops.trace import Tensor

_EPS = 1e-5
_LONGEST_WAVE = 10_000.0  # of `sinusoids`, in vectors, times 2 pi
PAIR = 2
"""Vectors of an encoder that some models average."""
MOST_VECTORS = 1 << 16
"""That `sinusoids` may have in an encoder: they are constants of its program."""


class WhisperEncoder:
    """One encoder, of a configuration with the keys of Whisper, or with the usual ones; with
    `key_bias`, `k_proj` has a bias, too. With `rows_apart`, an item may have rows behind its first
    `max_tokens` ones, which these do not attend to."""

    def __init__(self, config: Config, *, key_bias: bool = False, rows_apart: bool = False) -> None:
        self._key_bias = key_bias
        self.hidden_size = _size(config, "d_model", "hidden_size")
        self.layers = layer_count(config, _name(config, "encoder_layers", "num_hidden_layers"))
        self.bins = positive_int(config, "num_mel_bins", 80)
        self.max_tokens = positive_int(config, "max_source_positions", 1500)
        self.convolutions = MelConvolutions(self.bins, self.hidden_size)
        self._intermediate = _size(config, "encoder_ffn_dim", "intermediate_size")
        self._activation = activation(config, "activation_function", "gelu")
        heads = _size(config, "encoder_attention_heads", "num_attention_heads")
        head_dim, rest = divmod(self.hidden_size, heads)
        if rest:
            raise ModelConfigError(f"{heads} heads cannot share {self.hidden_size} features")
        shape = attention.AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5)
        self._shape = replace(shape, window=self.max_tokens, chunked=True) if rows_apart else shape

    @property
    def channels(self) -> int:
        """Elements of a row of `features`."""
        return self.convolutions.channels

    @property
    def max_frames(self) -> int:
        """Of the audio that the encoder has positions for."""
        return STRIDE * self.max_tokens

    def paired_traits(self, *, width: int, placeholder: int, most_tokens: int) -> MediaTraits:
        """Those of audio of any length whose tokens are averages of pairs, of `width` elements."""
        return MediaTraits(
            rows=PAIR,
            channels=self.channels,
            tokens=1,
            width=width,
            placeholders={"audio": placeholder},
            any_size=True,
            most_tokens=most_tokens,
        )

    def averaged(self, x: Tensor, pairs: Tensor) -> Tensor:
        """x [T, hidden] -> [N, hidden]: the average of rows `pairs`, i32 [N], and those after
        them."""
        both = ops.select_rows(x, pairs, count=PAIR)
        first, second = ops.split(both, self.hidden_size)
        return ops.scale(ops.add(first, second), 1 / PAIR)

    def features(self, mel: np.ndarray, tokens: int | None = None) -> np.ndarray:
        """Log-mel frames [bins, frames], an even number of at most `max_frames`, as rows [frames /
        2, channels], or the first `tokens` of them.

        Raises:
            ValueError: the frames are others.
        """
        bins, frames = mel.shape
        if bins != self.bins or frames % STRIDE or not 0 < frames <= self.max_frames:
            raise ValueError(
                f"audio must be [{self.bins}, frames], an even number of at most"
                f" {self.max_frames}, got {list(mel.shape)}"
            )
        return self.convolutions.features(mel, tokens)

    def hidden(self, weights: Weights, rows: Tensor, positions: Tensor) -> Tensor:
        """`features` [T, channels] and positions i32 [T], from 0 in each audio -> [T, hidden],
        normalized."""
        return self.normalized(weights, self.states(weights, rows, positions))

    def states(self, weights: Weights, rows: Tensor, positions: Tensor) -> Tensor:
        """As `hidden`, but not normalized."""
        x = self.convolutions.output(weights, rows)
        x = add_positions(
            weights,
            "embed_positions",
            x,
            positions,
            self.max_tokens,
            bounded=not self._shape.chunked,
        )
        return self.layered(weights, x)

    def layered(self, weights: Weights, x: Tensor) -> Tensor:
        """x [T, hidden], vectors with positions, behind all layers."""
        for layer in range(self.layers):
            x = self._layer(weights, f"layers.{layer}", x)
        return x

    def normalized(self, weights: Weights, x: Tensor, name: str = "layer_norm") -> Tensor:
        """x [N, hidden], what `states` returns, normalized."""
        return norm.layer_norm(weights, name, x, _EPS)

    def _layer(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        inner, hidden = f"{prefix}.self_attn", self.hidden_size
        heads = (self._shape.heads, self._shape.head_dim)
        y = norm.layer_norm(weights, f"{prefix}.self_attn_layer_norm", x, _EPS)
        q = linear(weights, f"{inner}.q_proj", y, heads, bias=True)
        k = linear(weights, f"{inner}.k_proj", y, heads, bias=self._key_bias)
        v = linear(weights, f"{inner}.v_proj", y, heads, bias=True)
        y = attention.attend_both_ways(q, k, v, self._shape)
        x = ops.add(x, linear(weights, f"{inner}.out_proj", y, (hidden,), bias=True))
        y = norm.layer_norm(weights, f"{prefix}.final_layer_norm", x, _EPS)
        y = linear(weights, f"{prefix}.fc1", y, (self._intermediate,), bias=True)
        y = ops.activation(y, self._activation)
        return ops.add(x, linear(weights, f"{prefix}.fc2", y, (hidden,), bias=True))


def sinusoids(count: int, width: int) -> np.ndarray:
    """The positions of `count` vectors as sines and cosines of waves from 1 to `_LONGEST_WAVE`:
    [count, width].

    Raises:
        ModelConfigError: vectors of this `width` have no such halves.
    """
    half, rest = divmod(width, 2)
    if rest or half < 2:
        raise ModelConfigError(f"the d_model of audio_config is {width}; it must be even, above 2")
    angles = np.arange(count)[:, None] / _LONGEST_WAVE ** (np.arange(half) / (half - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _size(config: Config, key: str, usual: str) -> int:
    return positive_int(config, _name(config, key, usual))


def _name(config: Config, key: str, usual: str) -> str:
    return key if key in config else usual
