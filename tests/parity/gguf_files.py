"""Writes the tiny models of `tiny_models.py` as GGUF files, the way converters do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf.quants import dequantize, quantize
from transformers import PreTrainedModel

ARCHITECTURES = {
    "gemma3": "gemma3",
    "llama": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
}
# Offsets and values of the f16 scales of formats that the `gguf` package only reads; random blocks
# with these have values up to 0.1.
_SCALES = {
    "IQ1_M": (),  # in nibbles of four words
    "IQ1_S": ((0, 6e-3),),
    "IQ2_S": ((0, 6e-4),),
    "IQ2_XS": ((0, 6e-4),),
    "IQ2_XXS": ((0, 6e-4),),
    "IQ3_S": ((0, 2e-4),),
    "IQ3_XXS": ((0, 2e-4),),
    "IQ4_NL": ((0, 8e-4),),
    "IQ4_XS": ((0, 3e-5),),
    "Q2_K": ((80, 2e-3), (82, 3e-3)),
    "Q3_K": ((108, 8e-4),),
}
Array = npt.NDArray[np.float32]

_LAYER = {
    "input_layernorm": "attn_norm",
    "mlp.down_proj": "ffn_down",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.k_proj": "attn_k",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.v_proj": "attn_v",
}
_LLAMA_NORMS = {"post_attention_layernorm": "ffn_norm"}
_NORMS = {
    "gemma3": {
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "pre_feedforward_layernorm": "ffn_norm",
    },
    "llama": _LLAMA_NORMS,
    "qwen2": _LLAMA_NORMS,
    "qwen3": _LLAMA_NORMS,
    "qwen3moe": _LLAMA_NORMS,
}
_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(model: PreTrainedModel, family: str, path: Path, matrix_type: str) -> None:
    """Save `model` with matrices of `matrix_type` ("Q4_0", ...), and round its own weights to what
    was saved, so that it is the reference of the file."""
    architecture = ARCHITECTURES[family]
    writer = gguf.GGUFWriter(path, architecture)
    _write_settings(writer, model, architecture)
    kind = gguf.GGMLQuantizationType[matrix_type]
    tied = model.config.tie_word_embeddings
    for name, parameter in _parameters(model):
        if tied and name == "lm_head.weight":
            continue
        values = parameter.detach().numpy().astype(np.float32)
        permute = architecture == "llama" and ("q_proj" in name or "k_proj" in name)
        stored = _interleave(values, model.config.head_dim) if permute else values
        if family == "gemma3" and name.endswith("norm.weight"):
            stored = stored + np.float32(1)
        gguf_name = _tensor_name(name, architecture)
        if values.ndim == 1:
            writer.add_tensor(gguf_name, stored)
            continue
        # A matrix whose rows are not a whole number of blocks is stored as f16.
        whole = values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
        row_kind = kind if whole else gguf.GGMLQuantizationType.F16
        data = _blocks(stored, row_kind)
        writer.add_tensor(gguf_name, data, raw_dtype=row_kind)
        rounded = dequantize(data, row_kind)
        rounded = _halves(rounded, model.config.head_dim) if permute else rounded
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(rounded.reshape(values.shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _blocks(values: Array, kind: gguf.GGMLQuantizationType) -> npt.NDArray[np.uint8]:
    """`values` in blocks of `kind`; random blocks if the package only reads them."""
    if kind.name not in _SCALES:
        return quantize(values, kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(values.size)
    data = rng.integers(0, 256, (values.size // elements, size), dtype=np.uint8)
    for offset, scale in _SCALES[kind.name]:
        data[:, offset : offset + 2] = np.array([scale], "<f2").view(np.uint8)
    if kind.name == "IQ1_M":
        nibbles = np.float16(6e-3).view(np.uint16) >> np.array([0, 4, 8, 12]) & 15
        data[:, 49::2] = data[:, 49::2] & 15 | nibbles.astype(np.uint8) << 4
    return data.reshape(*values.shape[:-1], -1)


def _parameters(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """All parameters, with the experts' gate and up projections as separate views."""
    for name, parameter in model.named_parameters():
        if not name.endswith("gate_up_proj"):
            yield name if name.endswith(("weight", "bias")) else f"{name}.weight", parameter
            continue
        half = parameter.shape[1] // 2
        experts = name.removesuffix("gate_up_proj")
        yield f"{experts}gate_proj.weight", parameter.detach()[:, :half]
        yield f"{experts}up_proj.weight", parameter.detach()[:, half:]


def _interleave(weight: Array, head_dim: int) -> Array:
    """Rows of each head from half-rotated order to pairs side by side."""
    rows = weight.reshape(-1, 2, head_dim // 2, weight.shape[1])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(weight.shape)


def _halves(weight: Array, head_dim: int) -> Array:
    """The inverse of `_interleave`."""
    rows = weight.reshape(-1, head_dim // 2, 2, weight.shape[-1])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(weight.shape)


def _tensor_name(name: str, architecture: str) -> str:
    module, _, kind = name.rpartition(".")
    if module in _TOP:
        return f"{_TOP[module]}.{kind}"
    _, _, layer, inner = module.split(".", 3)
    return f"blk.{layer}.{(_LAYER | _NORMS[architecture])[inner]}.{kind}"


def _write_settings(writer: gguf.GGUFWriter, model: PreTrainedModel, architecture: str) -> None:
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "num_local_experts", None):
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if architecture.startswith("qwen3"):
        writer.add_key_length(config.head_dim)
    if architecture == "qwen3moe":
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if architecture != "gemma3":
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        return
    full = config.rope_parameters["full_attention"]
    writer.add_rope_freq_base(full["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType(full["rope_type"]))
    writer.add_rope_scaling_factor(full["factor"])
    writer.add_key_length(config.head_dim)
    writer.add_sliding_window(config.sliding_window)
