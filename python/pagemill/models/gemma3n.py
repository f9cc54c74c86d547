"""Gemma 3n (text): several streams of hidden states, of which a layer reads one and corrects all
(AltUp), a low-rank branch beside the attention (LAuReL), gates of which most are zero, layers that
attend to what an earlier one has stored, and an embedding for each layer.

Weights as Gemma 4's, without `layer_scalar`; in layers `altup.{modality_router,router_norm,
prediction_coefs,correction_coefs,correct_output_scale}` and `laurel.{linear_left,linear_right,
post_laurel_norm}`; around them `model.{altup_projections,altup_unembed_projections}.<i>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import mlp
from pagemill.layers.rotary import Rotary
from pagemill.layers.shared_kv import kv_sources, shared_kv_attention
from pagemill.layers.stack import stack
from pagemill.layers.token_layers import TokenLayers
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Renamed,
    activation,
    as_list,
    flag,
    layer_count,
    layer_types,
    number,
    positive_int,
    refuse,
)
from pagemill.models.decoder import Decoder
from pagemill.ops import ActivationKind
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_MAX_STREAMS = 8  # that `ops.concat` takes
_TINY = 1e-12  # added to mean squares, which are far above it


class Gemma3nModel(Decoder):
    """One Gemma 3n text model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.layers\.\d+\.self_attn\.(k_proj|v_proj|k_norm)\.weight": (
            "the layer attends to what an earlier one has stored"
        ),
    }

    def __init__(self, config: Config) -> None:
        refuse(config, "use_bidirectional_attention")
        self._mlp_sizes = _mlp_sizes(config)
        of_first = Renamed(
            config, {"intermediate_size": ""}, {"intermediate_size": self._mlp_sizes[0]}
        )
        types = _layer_types(config)
        super().__init__(of_first, tied_by_default=True, layer_types=types)
        sizes = self.sizes
        window = positive_int(config, "sliding_window", 512)
        self.windows = [window if kind == SLIDING else 0 for kind in types]
        shared = int(number(config, "num_kv_shared_layers", 15, least=0, most=2**20))
        try:
            self._sources = kv_sources(types, shared)
        except ValueError as error:
            raise ModelConfigError(str(error)) from error
        self.activation = activation(config, "hidden_activation", "gelu_pytorch_tanh")
        self.embedding_scale = sizes.hidden_size**0.5
        self.logits_cap = number(config, "final_logit_softcapping", 30.0, least=0.0)
        self._deviations = _deviations(config, sizes.layers)
        width = positive_int(config, "hidden_size_per_layer_input", 256)
        vocab = positive_int(config, "vocab_size_per_layer_input", 262144)
        self._tokens = TokenLayers(width, vocab, sizes.layers, sizes.norm_eps)
        self._rank = positive_int(config, "laurel_rank", 64)
        self._streams = positive_int(config, "altup_num_inputs", 4)
        self._active = int(number(config, "altup_active_idx", 0, least=0))
        if not self._active < self._streams or not 2 <= self._streams <= _MAX_STREAMS:
            raise ModelConfigError(
                f"altup_num_inputs={self._streams} must be 2 to {_MAX_STREAMS}, and"
                f" altup_active_idx={self._active} below it"
            )
        self._scaled = flag(config, "altup_correct_scale", True)
        if not self._scaled:
            unused = {r"model\.layers\.\d+\.altup\.correct_output_scale": "altup_correct_scale"}
            self.ignored = {**self.ignored, **unused}

    def hidden_by(
        self, weights: Weights, inputs: StepInputs, rotary: Sequence[Rotary | None]
    ) -> Tensor:
        start = self.embed(weights, inputs)
        streams = self._projected(weights, "altup_projections", [start] * self._streams)

        def make_layer(layer: int, x: Tensor) -> Tensor:
            nonlocal streams
            streams = self._predicted(weights, layer, streams[self._active], x)
            activated = self.layer(weights, layer, streams[self._active], rotary[layer])
            streams = self._corrected(weights, layer, streams, activated)
            token = self._tokens.embedding(weights, layer, inputs.token_ids, start)
            y = self._of_token(weights, layer, streams[self._active], token)
            streams = [streams[0], *(ops.add(stream, y) for stream in streams[1:])]
            return self._together(streams)

        stack(weights, self._together(streams), self.sizes.layers, make_layer)
        first, *others = self._projected(weights, "altup_unembed_projections", streams)
        for stream in others:
            first = ops.add(first, stream)
        return self.norm(weights, self.names.norm, ops.scale(first, 1 / self._streams))

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.input_layernorm", x)
        low = linear(weights, f"{prefix}.laurel.linear_left", y, (self._rank,))
        low = linear(weights, f"{prefix}.laurel.linear_right", low, (x.width,))
        low = ops.add(y, self.norm(weights, f"{prefix}.laurel.post_laurel_norm", low))
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm", y))
        x = ops.scale(ops.add(x, low), 2**-0.5)
        y = self.norm(weights, f"{prefix}.pre_feedforward_layernorm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        source = self._sources[layer]
        return shared_kv_attention(
            weights,
            (f"{self.prefix(layer)}.self_attn", f"{self.prefix(source)}.self_attn"),
            x,
            self.sizes.attention(scale=1.0, window=self.windows[layer]),
            rotary,
            (f"kv{layer}", f"kv{source}"),
            eps=self.sizes.norm_eps,
            bias=self.attention_parts.bias,
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        parts = replace(self.mlp_parts, deviations=self._deviations[layer])
        name, size = f"{self.prefix(layer)}.mlp", self._mlp_sizes[layer]
        return mlp(weights, name, x, size, self.activation, parts)

    def _together(self, streams: Sequence[Tensor]) -> Tensor:
        """[T, streams, H]."""
        return ops.concat(*streams, row_shape=(self._streams, self.sizes.hidden_size))

    def _projected(self, weights: Weights, name: str, streams: Sequence[Tensor]) -> list[Tensor]:
        """The first stream, and of each other what a matrix of its own makes of it, with the
        magnitude of the first."""
        first, size = streams[0], self.sizes.hidden_size
        unit = norm.rms_norm(weights, "", first, _TINY, weight=False)
        squares = ops.gated_activation(unit, first, ActivationKind.IDENTITY)
        mean = weights.constant(f"mean.{size}", [[1 / size] * size])
        magnitude = ops.linear(squares, mean, dtype="f32")
        projected = [
            linear(weights, f"model.{name}.{i}", stream, (size,))
            for i, stream in enumerate(streams[1:])
        ]
        units = [norm.rms_norm(weights, "", y, _TINY, weight=False) for y in projected]
        return [first, *(ops.moe_combine(y, magnitude) for y in units)]

    def _predicted(self, weights: Weights, layer: int, active: Tensor, x: Tensor) -> list[Tensor]:
        """Each stream of x [T, streams, H] plus a sum of all, weighted by what the router makes of
        the active one."""
        routed, count = self._routed(weights, layer, active), self._streams
        name = f"{self.prefix(layer)}.altup.prediction_coefs"

        def shares(stream: int) -> Tensor:
            rows = Part(stream * count, (stream + 1) * count, count**2)
            own = [float(i == stream) for i in range(count)]
            return self._coefficients(weights, name, routed, rows, f"stream.{stream}", own)

        return [ops.moe_combine(x, shares(stream)) for stream in range(count)]

    def _corrected(
        self, weights: Weights, layer: int, predicted: Sequence[Tensor], activated: Tensor
    ) -> list[Tensor]:
        """Each stream plus a share of what the layer has added to the active one."""
        routed, count = self._routed(weights, layer, activated), self._streams
        added = ops.add(activated, ops.scale(predicted[self._active], -1.0))
        name = f"{self.prefix(layer)}.altup.correction_coefs"

        def share(stream: int) -> Tensor:
            rows = Part(stream, stream + 1, count)
            return self._coefficients(weights, name, routed, rows, "one", [1.0])

        return [
            ops.add(x, ops.moe_combine(added, share(stream))) for stream, x in enumerate(predicted)
        ]

    def _routed(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        """[T, streams], from -1 to 1."""
        prefix = f"{self.prefix(layer)}.altup"
        y = ops.scale(self.norm(weights, f"{prefix}.router_norm", x), 1 / x.width)
        y = linear(weights, f"{prefix}.modality_router", y, (self._streams,))
        return ops.activation(y, ActivationKind.TANH)

    def _coefficients(
        self, weights: Weights, name: str, x: Tensor, rows: Part, constant: str, plus: list[float]
    ) -> Tensor:
        """These rows of a linear layer of x, plus numbers of their own: f32 [T, rows.size]."""
        weight = weights.linear(name, (rows.total, x.width), rows=rows)
        return ops.linear(x, weight, weights.constant(constant, plus), dtype="f32")

    def _of_token(self, weights: Weights, layer: int, x: Tensor, token: Tensor) -> Tensor:
        """What the token's embedding for the layer adds to all streams but the first."""
        if self._scaled:
            name = f"{self.prefix(layer)}.altup.correct_output_scale"
            x = ops.scale_columns(x, weights.vector(name, x.width))
        return self._tokens.branch(weights, self.prefix(layer), x, token, self.activation)


def _layer_types(config: Config) -> tuple[str, ...]:
    """The kind of each layer; by default every fifth is full."""
    layers = layer_count(config)
    types = layer_types(config, layers, (SLIDING, FULL))
    return types or tuple(SLIDING if (layer + 1) % 5 else FULL for layer in range(layers))


def _mlp_sizes(config: Config) -> list[int]:
    """The features of each feed-forward layer: listed, or one number for all."""
    layers, key = layer_count(config), "intermediate_size"
    listed = as_list(config.get(key))
    if listed is None:
        return [positive_int(config, key)] * layers
    if len(listed) != layers:
        raise ModelConfigError(f"{key} must list {layers} layers, it lists {len(listed)}")
    return [positive_int({key: size}, key) for size in listed]


def _deviations(config: Config, layers: int) -> list[float | None]:
    """How many deviations above the mean the cutoff of each layer's gates is, None if all stay."""
    key = "activation_sparsity_pattern"
    if config.get(key) is None:
        sparse = 10 if layers > 10 else 0
        shares = [0.95] * sparse + [0.0] * (layers - sparse)
    else:
        listed = as_list(config[key]) or []
        shares = [number({key: share}, key, 0.0, least=0.0, most=0.9999) for share in listed]
        if len(shares) != layers:
            raise ModelConfigError(f"{key} must list {layers} layers, the share that is 0 in each")
    return [NormalDist().inv_cdf(share) if share else None for share in shares]
