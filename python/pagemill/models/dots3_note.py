"""dots3.note: its text. Latent attention whose result each head gates and whose keys have a norm in
front of their rotation; layers see the tokens that an indexer chooses, or those in a window, with
heads of another shape. Experts as DeepSeek V3's.

Weights as DeepSeek-V3.2's, plus `self_attn.{g_proj,k_rope_only_layernorm}`; layers with a window
have no `self_attn.indexer`.

Configurations are read as `transformers` writes them, with `per_layer_config`, and as published:
shapes of layers with a window are in `swa_*`, and full attention is that with an indexer.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pagemill.layers.base import Weights
from pagemill.layers.latent import LatentShape, latent_attention
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary, RotaryTable
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Defaults,
    as_list,
    flag,
    layer_count,
    layer_types,
    make_rotary_table,
    number,
    positive_int,
    refuse,
    rope_parameters,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.indexer_keys import read_indexer
from pagemill.models.latent_keys import read_latent
from pagemill.ops.trace import Tensor

_INDEXED = "indexed_attention"
_SIZES = {
    "num_attention_heads": 128,
    "q_lora_rank": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 8e7,
}
_SLIDING_SIZES = {
    "num_attention_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "head_dim": 256,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}
_SLIDING_BASE = 5e4  # of rotary positions


class Dots3NoteModel(Decoder):
    """One dots3.note text model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"(vision_encoder|audio_encoder|audio_adapter)\..*": "text alone is served",
    }

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _SIZES)
        refuse(config, "text_config")
        layers = layer_count(config)
        types = _layer_types(config, layers)
        super().__init__(config, eps=("rms_norm_eps", 1e-5), layer_types=types)
        window = positive_int(config, "sliding_window_size", 512)
        window = positive_int(config, "sliding_window", window)
        self._latents = [
            _read_latent(config, layer, kind, self.sizes.norm_eps, window)
            for layer, kind in enumerate(types)
        ]
        self.rotary = [
            _read_rotary(config, kind, latent.rope)
            for kind, latent in zip(types, self._latents, strict=True)
        ]
        self.interleaved = True
        self.mlp_parts = MlpParts()
        self._indexers = [
            read_indexer(config, latent, heads=64, interleaved=True) if kind == _INDEXED else None
            for kind, latent in zip(types, self._latents, strict=True)
        ]
        self.is_sparse = _sparse_layers(config, layers)
        experts = read_grouped_experts(config, self.activation, count=256, size=1536)
        size = positive_int(config, "moe_shared_expert_intermediate_size", 1536)
        size = positive_int(config, "shared_experts_intermediate_size", size)
        self.experts = replace(experts, shared=size * positive_int(config, "n_shared_experts", 1))

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        return latent_attention(
            weights,
            f"{self.prefix(layer)}.{self.names.attention}",
            x,
            self._latents[layer],
            rotary,
            f"kv{layer}",
            bias=self.attention_parts.bias,
            sparse=self._indexers[layer],
        )


def _layer_types(config: Config, layers: int) -> list[str]:
    """Whether each layer has an indexer, a window, or neither."""
    types = layer_types(config, layers, (FULL, SLIDING, _INDEXED))
    if types is None:
        slides = flag(config, "use_sliding_window", True)
        types = tuple(
            SLIDING if slides and i >= 2 and i % 4 != 1 else _INDEXED for i in range(layers)
        )
    if flag(config, "use_dsa", config.get("per_layer_config") is None):
        return [_INDEXED if kind == FULL else kind for kind in types]
    if config.get("use_dsa") is None:
        return list(types)
    return [FULL if kind == _INDEXED else kind for kind in types]


def _sparse_layers(config: Config, layers: int) -> list[bool]:
    """Whether each layer has experts."""
    dense = int(number(config, "first_k_dense_replace", 1, least=0))
    sparse = sparse_layers(config, layers, dense=dense)
    if config.get("mlp_layer_types") is not None:
        return sparse
    marks = as_list(config.get("moe_layer_freq"))
    if marks is None:
        every = positive_int(config, "moe_layer_freq", 1)
        marks = [i % every == 0 for i in range(layers)]
    if len(marks) != layers:
        raise ModelConfigError(f"moe_layer_freq must be a number, or list {layers} layers")
    return [has and bool(mark) for has, mark in zip(sparse, marks, strict=True)]


def _read_latent(config: Config, layer: int, kind: str, eps: float, window: int) -> LatentShape:
    """The attention of a layer."""
    sizes = ChainMap(_layer_sizes(config, layer, kind), cast("dict[str, Any]", config))
    latent, hidden = read_latent(sizes), positive_int(config, "hidden_size")
    if latent.query is None:
        raise ModelConfigError("q_lora_rank=null is not supported by this family")
    return replace(
        latent,
        scale=(latent.nope + latent.rope) ** -0.5,
        eps=eps,
        query_scale=(hidden / latent.query) ** 0.5,
        latent_scale=(hidden / latent.latent) ** 0.5,
        gate="g_proj",
        gate_by_head=True,
        rope_norm="k_rope_only_layernorm",
        window=window if kind == SLIDING else 0,
    )


def _layer_sizes(config: Config, layer: int, kind: str) -> dict[str, Any]:
    """The keys that a layer has of its own."""
    of_layers = config.get("per_layer_config")
    if isinstance(of_layers, Mapping):
        own = cast("Config", of_layers).get(str(layer), {})
        if not isinstance(own, Mapping):
            raise ModelConfigError(f"per_layer_config needs an object for layer {layer}")
        return dict(cast("Config", own))
    if kind != SLIDING:
        return {}
    sizes = {key: positive_int(config, f"swa_{key}", size) for key, size in _SLIDING_SIZES.items()}
    rope = sizes.pop("head_dim") - sizes["qk_nope_head_dim"]
    return {**sizes, "qk_rope_head_dim": positive_int(config, "swa_qk_rope_head_dim", rope)}


def _read_rotary(config: Config, kind: str, size: int) -> RotaryTable:
    """The table of `size` elements of layers of this kind, whatever share of heads they are."""
    if config.get("rope_parameters") is None and kind == SLIDING:
        base = number(config, "swa_rope_theta", _SLIDING_BASE)
        rope: Config = {"rope_type": "default", "rope_theta": base}
    else:
        rope = rope_parameters(config, kind)
    rope = {**rope, "partial_rotary_factor": 1.0}
    return make_rotary_table(
        ChainMap({"rope_parameters": rope}, cast("dict[str, Any]", config)), size
    )
