"""The encoder of audio of Gemma 4: a conformer whose attention reads a few vectors in front of
each, with biases by each query and the distance, and caps their sums with scores; convolutions of
each channel read a vector and those in front of it.

Weights: under `audio_tower.` those of normed_subsampling.py behind `subsample_conv_projection.`, in
layer i `layers.<i>.{feed_forward1, feed_forward2}.{pre_layer_norm, ffw_layer_1, ffw_layer_2,
post_layer_norm}`, `norm_pre_attn`, `self_attn.{q_proj, k_proj, v_proj, post, relative_k_proj,
per_dim_scale}`, `norm_post_attn`, `lconv1d.{pre_layer_norm, linear_start, depthwise_conv1d,
conv_norm, linear_end}` and `norm_out`, with linear layers of clamped_linear.py, and `output_proj`;
and `embed_audio.embedding_projection`. All may be behind `model.`.

Source: arXiv 2303.01037, and `Gemma4AudioModel` of `transformers`.
"""

from __future__ import annotations

import math

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.gemma4_mel import LEAST_SAMPLES, gemma4_log_mel
from pagemill.models.audio.log_mel import SAMPLING_RATE
from pagemill.models.audio.normed_subsampling import NormedSubsampling
from pagemill.models.base import Config, EncoderInputs, MediaPart, MediaTraits, ModelConfigError
from pagemill.models.clamped_linear import clamped_linear
from pagemill.models.config_keys import (
    Defaults,
    activation,
    as_list,
    epsilon,
    flag,
    layer_count,
    number,
    positive_int,
)
from pagemill.ops import ActivationKind
from pagemill.ops.depthwise_conv import MAX_TAPS
from pagemill.ops.head_tables import HeadTables
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_START, _END = "<|audio>", "<audio|>"
MOST_SECONDS = 30
"""Of audio: the extractor cuts longer ones off."""
_MOST_TOKENS = 25 * MOST_SECONDS
_EPS = 1e-6  # of the norms that do not have the configuration's
_MOST_DISTANCES = 1 << 10
_LONGEST_WAVE = 10_000.0  # over 2 pi, in positions
_UNREACHED = 1e9  # activations are far below: published models clamp them at 1e10
# Those of the configuration's class: published checkpoints may leave some out.
_DEFAULTS = {
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "subsampling_conv_channels": [128, 32],
    "conv_kernel_size": 5,
    "attention_chunk_size": 12,
    "attention_context_left": 13,
    "output_proj_dims": 1536,
}


class Gemma4AudioEncoder:
    """A `TiledModel` (base.py) for a language model with `width` features."""

    def __init__(self, config: Config, width: int, placeholder: int) -> None:
        config = Defaults(config, _DEFAULTS)
        self._hidden = positive_int(config, "hidden_size")
        self._layers = layer_count(config)
        self._heads = positive_int(config, "num_attention_heads")
        self._head_dim, rest = divmod(self._hidden, self._heads)
        if rest or self._hidden % 2:
            raise ModelConfigError(
                f"{self._heads} heads cannot share hidden_size {self._hidden}, which must be even"
            )
        self._window = _window(config)
        self._cap = number(config, "attention_logit_cap", 50.0, least=1e-3)
        self._taps = positive_int(config, "conv_kernel_size")
        if self._taps > MAX_TAPS:
            raise ModelConfigError(
                f"conv_kernel_size is {self._taps}; at most {MAX_TAPS} are supported"
            )
        self._activation = activation(config, "hidden_act", "silu")
        self._clamps = flag(config, "use_clipped_linears", True)
        self._bound = number(config, "gradient_clipping", 1e10, least=1e-3, most=1e38)
        self._residual = number(config, "residual_weight", 0.5)
        self._eps = epsilon(config, "rms_norm_eps", 1e-6)
        self._outputs = positive_int(config, "output_proj_dims")
        first, second = _channels(config)
        # What is behind both convolutions has a quarter of as many frequencies.
        self._frames = NormedSubsampling(first, (first, second), self._hidden, self._eps)
        self._width = width
        self.traits = MediaTraits(
            rows=1,
            channels=self._frames.channels,
            tokens=1,
            width=width,
            placeholders={"audio": placeholder},
            any_size=True,
            most_tokens=_MOST_TOKENS,
            step_rows=_MOST_TOKENS,
        )

    def layout(self, audio: PreparedMedia) -> list[MediaPart]:
        return [_START, audio, _END]

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        samples, most = audio.values, MOST_SECONDS * SAMPLING_RATE
        if samples.ndim != 1 or not LEAST_SAMPLES <= len(samples) <= most:
            raise ValueError(
                f"audio of this model must be [samples], from {LEAST_SAMPLES} to {most} of them"
                f" ({MOST_SECONDS} s), got {list(samples.shape)}"
            )
        rows = self._frames.features(gemma4_log_mel(samples, self._frames.bins))
        return MediaFeatures(rows, len(rows))

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        named = weights.has("model.embed_audio.embedding_projection.weight")
        parts = weights.within("model.") if named else weights
        tower = parts.within("audio_tower.")
        x = self._frames.output(tower.within("subsample_conv_projection."), inputs.media.rows)
        for layer in range(self._layers):
            x = self._layer(tower, f"layers.{layer}", x)
        x = linear(tower, "output_proj", x, (self._outputs,), bias=True)
        x = norm.rms_norm(parts, "", x, self._eps, weight=False)
        return linear(parts, "embed_audio.embedding_projection", x, (self._width,))

    def _layer(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        x = self._fed_forward(weights, f"{prefix}.feed_forward1", x)
        y = norm.rms_norm(weights, f"{prefix}.norm_pre_attn", self._bounded(x), _EPS)
        y = self._bounded(self._attended(weights, f"{prefix}.self_attn", y))
        x = ops.add(x, norm.rms_norm(weights, f"{prefix}.norm_post_attn", y, _EPS))
        x = ops.add(x, self._convolved(weights, f"{prefix}.lconv1d", x))
        x = self._fed_forward(weights, f"{prefix}.feed_forward2", x)
        return norm.rms_norm(weights, f"{prefix}.norm_out", self._bounded(x), _EPS)

    def _fed_forward(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        y = norm.rms_norm(weights, f"{prefix}.pre_layer_norm", self._bounded(x), _EPS)
        y = self._linear(weights, f"{prefix}.ffw_layer_1", y, 4 * self._hidden)
        y = self._linear(
            weights, f"{prefix}.ffw_layer_2", ops.activation(y, self._activation), self._hidden
        )
        y = norm.rms_norm(weights, f"{prefix}.post_layer_norm", self._bounded(y), _EPS)
        return ops.add(x, ops.scale(y, self._residual))

    def _attended(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        heads, dim, reach = self._heads, self._head_dim, self._window - 1
        q, k, v = (
            clamped_linear(weights, f"{prefix}.{of}_proj", x, (heads, dim), clamps=self._clamps)
            for of in "qkv"
        )
        q = ops.scale_columns(q, weights.softplus(f"{prefix}.per_dim_scale", dim, repeats=heads))
        of_queries = dim**-0.5 / math.log(2)
        tables = HeadTables(
            module=f"{prefix}.relative_k_proj",
            table="waves",
            shape=(self._window, self._hidden),
            # From keys in front of a query by the reach on; it sees none behind itself.
            rows=[max(0, reach - entry) for entry in range(2 * reach + 1)],
            heads=Part(0, heads, heads),
            head_dim=dim,
            factor=of_queries,
            bias=False,
            values=_waves(self._window, self._hidden),
        )
        y = ops.attention(
            q,
            k,
            v,
            scale=of_queries * math.log(1 + math.e) / math.log(2),
            causal=True,
            window=self._window,
            biases=ops.head_linear(q, weights.head_tables(tables), dtype="f32"),
            soft_cap=self._cap,
        )
        return self._linear(weights, f"{prefix}.post", y, self._hidden)

    def _convolved(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        hidden = self._hidden
        y = norm.rms_norm(weights, f"{prefix}.pre_layer_norm", x, self._eps)
        y = self._linear(weights, f"{prefix}.linear_start", y, 2 * hidden)
        y, gate = ops.split(y, hidden)
        y = ops.gated_activation(gate, y, ActivationKind.SIGMOID)
        taps = weights.small(f"{prefix}.depthwise_conv1d.weight", (hidden, 1, self._taps))
        y = self._bounded(ops.depthwise_conv(y, taps, None, before=self._taps - 1))
        y = norm.rms_norm(weights, f"{prefix}.conv_norm", y, self._eps)
        y = ops.activation(y, self._activation)
        return self._linear(weights, f"{prefix}.linear_end", y, hidden)

    def _linear(self, weights: Weights, name: str, x: Tensor, features: int) -> Tensor:
        return clamped_linear(weights, name, x, (features,), clamps=self._clamps)

    def _bounded(self, x: Tensor) -> Tensor:
        if self._bound >= _UNREACHED:
            return x
        return ops.activation(x, ActivationKind.IDENTITY, limit=self._bound, lower=-self._bound)


def _window(config: Config) -> int:
    """How many vectors each attends to: itself and those in front of it."""
    chunk = positive_int(config, "attention_chunk_size")
    past = positive_int(config, "attention_context_left") - 1
    # Half of what a chunk sees is where positions begin.
    is_centered = past > 0 and (chunk + past) // 2 == past
    if config.get("attention_context_right", 0) != 0 or not is_centered or past > _MOST_DISTANCES:
        raise ModelConfigError(
            f"attention_chunk_size is {chunk} and attention_context_left {past + 1}: the latter"
            f" must be one larger, at most {_MOST_DISTANCES + 1}, and attention_context_right 0"
        )
    return past


def _channels(config: Config) -> tuple[int, int]:
    stated = config["subsampling_conv_channels"]
    found = as_list(stated) or []
    if len(found) != 2 or any(type(each) is not int or each < 1 for each in found) or found[0] % 4:
        raise ModelConfigError(
            f"subsampling_conv_channels is {shown(stated)}; it must be two numbers, of which the"
            " first is a multiple of 4"
        )
    return found[0], found[1]


def _waves(positions: int, width: int) -> np.ndarray:
    """Sines, and behind them cosines, of positions from 0 on: [positions, width]."""
    half = width // 2
    step = math.log(_LONGEST_WAVE) / max(half - 1, 1)
    angles = np.arange(positions)[:, None] * np.exp(-step * np.arange(half))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
