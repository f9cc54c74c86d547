"""PLaMo 3: Llama with norms of queries and keys, norms behind the branches whose weights count from
less than 1, and sliding windows with rotary positions of their own.

Weights: `model.layers.layers.<i>.{pre_mixer_norm, mixer.{qkv_proj,q_norm,k_norm,o_proj},
post_mixer_norm, pre_mlp_norm, mlp.{gate_up_proj,down_proj}, post_mlp_norm}`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Renamed,
    as_list,
    layer_count,
    number,
    positive_int,
    refuse,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_BEHIND_ATTENTION = 5**-1  # of what others add to their weights, these norms add to theirs
_BEHIND_MLP = 5**-1.5


class Plamo3Model(Decoder):
    """One PLaMo 3 model."""

    names = DecoderNames(
        layers="model.layers.layers",
        attention_norm="pre_mixer_norm",
        attention="mixer",
        feed_forward_norm="pre_mlp_norm",
    )

    def __init__(self, config: Config) -> None:
        refuse(config, "attention_bias", "mlp_bias")
        windows = _windows(config)
        types = [SLIDING if window else FULL for window in windows]
        keys = {"rope_local_base_freq": "rope_local_theta"}
        super().__init__(Renamed(config, keys), tied_by_default=True, layer_types=types)
        self.windows = windows
        self.norm_offset = number(config, "norm_weight_offset", 1.0)
        self.attention_parts = AttentionParts(
            qkv=("qkv_proj",), qk_norm=QkNorm(self.sizes.norm_eps, offset=self.norm_offset)
        )
        self.mlp_parts = MlpParts(up=("gate_up_proj",))

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)

        def norm_behind(name: str, y: Tensor, share: float) -> Tensor:
            eps, offset = self.sizes.norm_eps, share * self.norm_offset
            return norm.rms_norm(weights, f"{prefix}.{name}", y, eps, weight_offset=offset)

        y = self.norm(weights, f"{prefix}.{self.names.attention_norm}", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, norm_behind("post_mixer_norm", y, _BEHIND_ATTENTION))
        y = self.norm(weights, f"{prefix}.{self.names.feed_forward_norm}", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, norm_behind("post_mlp_norm", y, _BEHIND_MLP))


def _windows(config: Config) -> Sequence[int]:
    """The window of each layer, 0 = full: listed, or one that all but every n-th layer have."""
    layers = layer_count(config)
    listed = as_list(config.get("interleaved_sliding_window", config.get("sliding_window")))
    if listed is None:
        every, window = positive_int(config, "sliding_window_pattern", 8), "window_size"
        size = positive_int(config, window, 2048)
        return [size if (layer + 1) % every else 0 for layer in range(layers)]
    if len(listed) != layers:
        raise ModelConfigError(f"sliding_window must list {layers} layers, it is {shown(listed)}")
    return [
        0 if window is None else positive_int({"sliding_window": window}, "sliding_window")
        for window in listed
    ]
