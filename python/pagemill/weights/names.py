"""Maps between tensor names of GGUF and of Hugging Face checkpoints, by GGUF architecture."""

from __future__ import annotations

import re

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)\.([^.]+)")

_DECODER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}

_LLAMA_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

# The matrices of all experts of a layer are one tensor.
_LLAMA_EXPERTS = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
}

_QWEN3_LAYER = _LLAMA_LAYER | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}

_QWEN3_EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}

_GEMMA3_LAYER = _LLAMA_LAYER | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

_LAYERS = {
    "gemma3": _GEMMA3_LAYER,
    "llama": _LLAMA_LAYER | _LLAMA_EXPERTS,
    "qwen2": _LLAMA_LAYER,
    "qwen3": _QWEN3_LAYER,
    "qwen3moe": _QWEN3_LAYER | _QWEN3_EXPERTS,
}


def gguf_name(architecture: str, name: str) -> str | None:
    """The name of tensor `name` in a GGUF file of `architecture`; None if it has no such tensor.

    >>> gguf_name("llama", "model.layers.7.self_attn.q_proj.weight")
    'blk.7.attn_q.weight'
    """
    if name in _DECODER:
        return _DECODER[name]
    match = _LAYER.fullmatch(name)
    if match is None:
        return None
    module, _, kind = match[2].rpartition(".")
    layer_names = _LAYERS[architecture]
    return f"blk.{match[1]}.{layer_names[module]}.{kind}" if module in layer_names else None


def layer_name(architecture: str, stored: str) -> str:
    """The name that layers use for the tensor `stored` of a GGUF file of `architecture`; `stored`
    itself if none do.

    >>> layer_name("llama", "blk.7.attn_q.weight")
    'model.layers.7.self_attn.q_proj.weight'
    """
    for name, known in _DECODER.items():
        if known == stored:
            return name
    match = _BLOCK.fullmatch(stored)
    if match is None:
        return stored
    names = (name for name, known in _LAYERS[architecture].items() if known == match[2])
    module = next(names, None)
    return stored if module is None else f"model.layers.{match[1]}.{module}.{match[3]}"
