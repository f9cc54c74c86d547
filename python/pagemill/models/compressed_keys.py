"""The configuration of attention over compressed rows, and of residual streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pagemill.layers.compressed import CompressedIndexer, CompressedShape, Compression
from pagemill.layers.streams import MAX_STREAMS, Streams
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    SLIDING,
    DecoderSizes,
    Defaults,
    as_list,
    layer_types,
    number,
    positive_int,
    rope_parameters,
)
from pagemill.weights.json_file import shown

SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
_HEAD_DIM, _ROTATED = 512, 0.125  # and the part of a head that rotates
_MAX_TOKENS = 4096  # of a row; a power of two
_MAX_ITERATIONS = 1000


def with_rotary_parameters(config: Config) -> Config:
    """`config` with those of `main`, for layers that only slide, and of `compress`, as transformers
    writes them; published configurations have the keys of which they are made.

    Raises:
        ModelConfigError: one of these is not a number.
    """
    values: dict[str, Any] = {"num_key_value_heads": 1, "head_dim": _HEAD_DIM}
    if config.get("rope_parameters") is None:
        head_dim = positive_int(config, "head_dim", _HEAD_DIM)
        rope = number(config, "qk_rope_head_dim", head_dim * _ROTATED, least=2, most=head_dim)
        main = {"rope_theta": number(config, "rope_theta", 1e4)}
        compress = {
            **rope_parameters(config),
            "rope_theta": number(config, "compress_rope_theta", 16e4),
            "attention_factor": 1.0,
        }
        kinds = {"main": main, "compress": compress}
        share = {"partial_rotary_factor": rope / head_dim}
        values["rope_parameters"] = {kind: entry | share for kind, entry in kinds.items()}
    return Defaults(config, values)


def attention_types(config: Config, layers: int) -> Sequence[str]:
    """The kind of each layer: from `layer_types`, or the tokens of a row in `compress_ratios`; by
    default two that are heavily compressed, and then these and sparse ones in turn.

    Raises:
        ModelConfigError: they are not of `layers` layers, or not known.
    """
    types = layer_types(config, layers, (SLIDING, SPARSE, HEAVY))
    if types is not None:
        return types
    stated: object = config.get("compress_ratios")
    if stated is None:
        return [SPARSE if layer > 1 and layer % 2 else HEAVY for layer in range(layers)]
    kinds = {0: SLIDING, 4: SPARSE, 128: HEAVY}
    ratios = (as_list(stated) or [])[:layers]  # behind them those of layers that predict further
    if len(ratios) != layers or not all(type(r) is int and r in kinds for r in ratios):
        raise ModelConfigError(f"compress_ratios must list 0, 4 or 128 for each of {layers} layers")
    return [kinds[ratio] for ratio in ratios]


def read_attention(config: Config, sizes: DecoderSizes) -> CompressedShape:
    """The sizes of the attention.

    Raises:
        ModelConfigError: they do not fit each other.
    """
    if sizes.kv_heads != 1:
        raise ModelConfigError(
            f"num_key_value_heads must be 1 in this family, not {sizes.kv_heads}"
        )
    groups = positive_int(config, "o_groups", 8)
    if sizes.heads % groups:
        raise ModelConfigError(f"{sizes.heads} heads do not make o_groups={groups} groups")
    return CompressedShape(
        heads=sizes.heads,
        size=sizes.head_dim,
        query=positive_int(config, "q_lora_rank", 1024),
        window=positive_int(config, "sliding_window", 128),
        groups=groups,
        group_rank=positive_int(config, "o_lora_rank", 1024),
        eps=sizes.norm_eps,
    )


def read_compressions(config: Config, rotated: int) -> dict[str, Compression | None]:
    """That of each kind of layer; sliding ones have none. `rotated` elements of a head rotate.

    Raises:
        ModelConfigError: rows stand for another number of tokens than a power of two, or fewer
            elements than rotate are compared to choose them.
    """
    value: object = config.get("compress_rates")
    if value is not None and not isinstance(value, Mapping):
        raise ModelConfigError(f"compress_rates must be numbers by kind, it is {shown(value)}")
    rates = cast("Config", value or {})
    tokens = {
        kind: positive_int(rates, kind, default) for kind, default in ((SPARSE, 4), (HEAVY, 128))
    }
    for kind, count in tokens.items():
        if count > _MAX_TOKENS or count & (count - 1):
            raise ModelConfigError(
                f"compress_rates: {kind} must be a power of two of at most {_MAX_TOKENS}, not"
                f" {count}"
            )
    indexer = CompressedIndexer(
        heads=positive_int(config, "index_n_heads", 64),
        size=positive_int(config, "index_head_dim", 128),
        # A query sees no more rows than there are positions.
        choices=min(
            positive_int(config, "index_topk", 512),
            positive_int(config, "max_position_embeddings"),
        ),
    )
    if indexer.size < rotated:
        raise ModelConfigError(
            f"index_head_dim must be at least {rotated}, the elements that rotate; it is"
            f" {indexer.size}"
        )
    return {
        SLIDING: None,
        SPARSE: Compression(tokens[SPARSE], indexer),
        HEAVY: Compression(tokens[HEAVY]),
    }


def read_streams(config: Config, norm_eps: float) -> Streams:
    """The residual streams.

    Raises:
        ModelConfigError: they do not fit each other.
    """
    return Streams(
        count=int(number(config, "hc_mult", 4, least=1, most=MAX_STREAMS)),
        iterations=int(number(config, "hc_sinkhorn_iters", 20, least=1, most=_MAX_ITERATIONS)),
        eps=number(config, "hc_eps", 1e-6, least=0),
        norm_eps=norm_eps,
    )
