"""Nemotron-NAS: Llama whose layers were searched one by one. `block_configs` has the KV heads and
the feed-forward width of each layer; either part may be a single linear layer, or absent.

Weights as Llama's; a linear layer in place of the attention is `self_attn.linear_attn`, in place of
the feed-forward part `mlp.linear_mlp`; a part that is absent has no norm. DeciLM 7B, of the same
architecture, lists KV heads in `num_key_value_heads_per_layer` and has no `block_configs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from pagemill.layers.base import Weights
from pagemill.layers.decoder import rotary_attention
from pagemill.layers.linear import own_columns, row_parallel
from pagemill.layers.mlp import mlp
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Defaults, as_list, flag, number, positive_int, refuse
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_LINEAR = 0  # the size of a part that is a single linear layer
_WIDTH_STEP = 256  # `ffn_mult` makes widths that are multiples of this
_UNSUPPORTED_ATTENTION = (
    "llama4",
    "mamba",
    "num_sink_tokens",
    "sparsify",
    "unshifted_sink",
    "window_length",
)


class NemotronNasModel(Decoder):
    """One Nemotron-NAS model, or DeciLM 7B."""

    def __init__(self, config: Config) -> None:
        blocks = config.get("block_configs")
        if blocks is not None:  # each layer has a width of its own
            config = Defaults(config, {"intermediate_size": _WIDTH_STEP})
        super().__init__(config)
        if config.get("position_embedding_type", "rope") != "rope":
            raise ModelConfigError(
                "position_embedding_type must be rope, it is"
                f" {shown(config['position_embedding_type'])}"
            )
        layers = self.sizes.layers
        # KV heads and widths by layer: _LINEAR for a linear layer, None if the part is absent.
        self._kv_heads: list[int | None]
        self._widths: list[int | None]
        if blocks is None:
            self._kv_heads = _listed_heads(config, layers, self.sizes.heads)
            self._widths = [self.sizes.intermediate_size] * layers
            return
        entries = as_list(blocks) or []
        if len(entries) != layers:
            raise ModelConfigError(f"block_configs must list {layers} layers")
        heads, hidden = self.sizes.heads, self.sizes.hidden_size
        self._kv_heads = [_read_kv_heads(_part(block, "attention"), heads) for block in entries]
        self._widths = [_read_width(_part(block, "ffn"), hidden) for block in entries]

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix, names = self.prefix(layer), self.names
        if self._kv_heads[layer] is not None:
            y = self.norm(weights, f"{prefix}.{names.attention_norm}", x)
            x = self.add(x, self.attention(weights, layer, y, rotary))
        if self._widths[layer] is not None:
            y = self.norm(weights, f"{prefix}.{names.feed_forward_norm}", x)
            x = self.add(x, self.feed_forward(weights, layer, y))
        return x

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        name, parts = f"{self.prefix(layer)}.{self.names.attention}", self.attention_parts
        kv_heads = self._kv_heads[layer]
        if not kv_heads:
            return _linear_part(weights, f"{name}.linear_attn", x, bias=parts.output_bias)
        shape = replace(self.sizes.attention(), kv_heads=kv_heads)
        return rotary_attention(weights, name, x, shape, rotary, f"kv{layer}", parts)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name, parts = f"{self.prefix(layer)}.{self.names.feed_forward}", self.mlp_parts
        width = self._widths[layer]
        if not width:
            return _linear_part(weights, f"{name}.linear_mlp", x, bias=parts.bias)
        return mlp(weights, name, x, width, self.activation, parts)


def _linear_part(weights: Weights, name: str, x: Tensor, *, bias: bool) -> Tensor:
    """x [T, H] -> [T, H] by one linear layer, of which ranks divide the columns."""
    columns = weights.shard.part(x.width, weights.block_elements(f"{name}.weight"))
    own = own_columns(x, columns, (columns.size,))
    return row_parallel(weights, name, own, x.width, columns=columns, bias=bias)


def _part(block: object, key: str) -> Config:
    """What an entry of `block_configs` says of a part of its layer."""
    part = cast("Config", block).get(key) if isinstance(block, Mapping) else None
    if not isinstance(part, Mapping):
        raise ModelConfigError(f"block_configs must list objects with an object {key}")
    return cast("Config", part)


def _read_kv_heads(config: Config, heads: int) -> int | None:
    """The KV heads of a layer with `heads` query heads."""
    refuse(config, *_UNSUPPORTED_ATTENTION)
    if flag(config, "no_op", False):
        return None
    if flag(config, "replace_with_linear", False):
        return _LINEAR
    group = positive_int(config, "n_heads_in_group")
    if heads % group:
        raise ModelConfigError(f"{heads} heads do not make groups of n_heads_in_group={group}")
    return heads // group


def _read_width(config: Config, hidden: int) -> int | None:
    """The width of a layer's feed-forward part: stated, or a factor of two thirds of `hidden`."""
    refuse(config, "moe", "sparsify")
    if flag(config, "no_op", False):
        return None
    if flag(config, "replace_with_linear", False):
        return _LINEAR
    if config.get("ffn_mult") is None:
        return positive_int(config, "intermediate_size")
    width = int(2 * number(config, "ffn_mult", 1.0, least=1e-3) * hidden / 3)
    return max(-(-width // _WIDTH_STEP), 1) * _WIDTH_STEP


def _listed_heads(config: Config, layers: int, heads: int) -> list[int | None]:
    """The KV heads of each layer of DeciLM 7B."""
    key = "num_key_value_heads_per_layer"
    if config.get(key) is None:
        raise ModelConfigError(f"the configuration needs block_configs or {key}")
    listed = [positive_int({key: count}, key) for count in as_list(config[key]) or []]
    if len(listed) != layers or any(heads % count for count in listed):
        raise ModelConfigError(
            f"{key} must list {layers} layers, a divisor of {heads} heads for each"
        )
    return list(listed)
