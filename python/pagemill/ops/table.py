"""The ops by name, with the module of each torch reference (imported at first use)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

OPS: dict[str, str] = {
    "activation": "pagemill.ops.activation",
    "add": "pagemill.ops.add",
    "add_rms_norm": "pagemill.ops.add_rms_norm",
    "adjust_logits": "pagemill.ops.adjust_logits",
    "all_gather": "pagemill.ops.all_gather",
    "all_reduce": "pagemill.ops.all_reduce",
    "all_reduce_add_rms_norm": "pagemill.ops.all_reduce_add_rms_norm",
    "apply_adapter": "pagemill.ops.apply_adapter",
    "argmax": "pagemill.ops.argmax",
    "attention": "pagemill.ops.attention",
    "causal_conv": "pagemill.ops.causal_conv",
    "compress_tokens": "pagemill.ops.compress_tokens",
    "concat": "pagemill.ops.concat",
    "count_tokens": "pagemill.ops.count_tokens",
    "depthwise_conv": "pagemill.ops.depthwise_conv",
    "draw_tokens": "pagemill.ops.draw_tokens",
    "embedding": "pagemill.ops.embedding",
    "gated_activation": "pagemill.ops.gated_activation",
    "gated_delta": "pagemill.ops.gated_delta",
    "gated_recurrence": "pagemill.ops.gated_recurrence",
    "grouped_linear": "pagemill.ops.grouped_linear",
    "head_linear": "pagemill.ops.head_linear",
    "kv_write": "pagemill.ops.kv_write",
    "latent_attention": "pagemill.ops.latent_attention",
    "latent_write": "pagemill.ops.latent_write",
    "layer_norm": "pagemill.ops.layer_norm",
    "linear": "pagemill.ops.linear",
    "mask_tokens": "pagemill.ops.mask_tokens",
    "matrix_wkv": "pagemill.ops.matrix_wkv",
    "merge_attention": "pagemill.ops.merge_attention",
    "mix_streams": "pagemill.ops.mix_streams",
    "moe_combine": "pagemill.ops.moe_combine",
    "moe_route": "pagemill.ops.moe_route",
    "paged_attention": "pagemill.ops.paged_attention",
    "pool": "pagemill.ops.pool",
    "rms_norm": "pagemill.ops.rms_norm",
    "rotary": "pagemill.ops.rotary",
    "rotary_kv_write": "pagemill.ops.rotary_kv_write",
    "scale": "pagemill.ops.scale",
    "scatter_rows": "pagemill.ops.scatter_rows",
    "score_tokens": "pagemill.ops.score_tokens",
    "select_rows": "pagemill.ops.select_rows",
    "select_tokens": "pagemill.ops.select_tokens",
    "selective_scan": "pagemill.ops.selective_scan",
    "sparse_relu": "pagemill.ops.sparse_relu",
    "split": "pagemill.ops.split",
    "state_space_scan": "pagemill.ops.state_space_scan",
    "stream_weights": "pagemill.ops.stream_weights",
    "take_tokens": "pagemill.ops.take_tokens",
    "unfold": "pagemill.ops.unfold",
    "wkv": "pagemill.ops.wkv",
}


def reference(op: str) -> Callable[..., Any]:
    """The function `reference(inputs, attributes, step) -> outputs` of `op`.

    Raises:
        ValueError: no op has this name.
    """
    if op not in OPS:
        raise ValueError(f"unknown op {op!r}; known: {', '.join(OPS)}")
    return importlib.import_module(OPS[op]).reference
