"""Writes checkpoints of the suite's families as GGUF files, the way llama.cpp's converter does.

Names of tensors come from the `gguf` package, and so do those of the metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file
from transformers import PretrainedConfig, PreTrainedModel

from tests.families.gguf_converters import PLAIN, Array, Converter, Tensors

_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(.*)")

# Fields of configurations, and what writes them; each is written if it has a value.
_SETTINGS = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "head_count",
    "num_key_value_heads": "head_count_kv",
    "rms_norm_eps": "layer_norm_rms_eps",
    "layer_norm_eps": "layer_norm_eps",
    "layer_norm_epsilon": "layer_norm_eps",
    "norm_epsilon": "layer_norm_eps",
    "sliding_window": "sliding_window",
    "logit_scale": "logit_scale",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention_multiplier": "attention_scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",
    "n_routed_experts": "expert_count",
    "moe_num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_k": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "num_shared_experts": "expert_shared_count",
    "moe_num_shared_experts": "expert_shared_count",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "routed_scaling_factor": "expert_weights_scale",
    "route_scale": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
    "route_norm": "expert_weights_norm",
    "first_k_dense_replace": "leading_dense_block_count",
    "num_dense_layers": "leading_dense_block_count",
    "moe_layer_start_index": "leading_dense_block_count",
    "moe_layer_interval": "interleave_moe_layer_step",
    "use_parallel_residual": "parallel_residual",
    "head_dim": "key_length",
    "conv_L_cache": "shortconv_l_cache",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
}


def write_gguf(
    model: PreTrainedModel,
    checkpoint: Path,
    architecture: str,
    path: Path,
    converter: Converter = PLAIN,
    formats: Mapping[str, gguf.GGMLQuantizationType] | None = None,
) -> None:
    """Write the checkpoint of `model` to `path`: tensors whose names in the file end in a key of
    `formats` in its format, all others in f32."""
    config = model.config
    config.allow_global_per_layer_attribute_access = True  # Gemma 4's have both
    writer = gguf.GGUFWriter(path, architecture)
    settings: dict[str, Any] = {
        setting: getattr(config, name)
        for name, setting in _SETTINGS.items()
        if getattr(config, name, None) is not None
    }
    rope = getattr(config, "rope_parameters", None) or {}
    settings |= _rope(rope.get("full_attention", rope), config)
    settings |= converter.settings(config)
    loaded = load_file(checkpoint / "model.safetensors")
    for name in ("alpha_p", "alpha_n", "beta", "eps"):
        tensors = [loaded.pop(key) for key in sorted(loaded) if key.endswith(f".act_fn.{name}")]
        if tensors:
            settings[f"xielu_{name}"] = [tensor.item() for tensor in tensors]
    for setting, value in settings.items():
        if value is not None:
            getattr(writer, f"add_{setting}")(value)
    tensors = converter.change(_stacked(loaded), config)
    tensors |= _factors(rope, model)
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    layers = max(config.num_hidden_layers, getattr(config, "num_decoder_layers", 0))
    names = gguf.get_tensor_name_map(arch, layers)
    for name, values in tensors.items():
        stored, values = _stored(names, name), np.ascontiguousarray(values)
        kind = next((kind for end, kind in (formats or {}).items() if stored.endswith(end)), None)
        values = values if kind is None else gguf.quants.quantize(values, kind)
        writer.add_tensor(stored, values, raw_dtype=kind)
    writer.add_token_list([f"<{i}>" for i in range(config.vocab_size)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _rope(rope: Mapping[str, Any], config: PretrainedConfig) -> dict[str, Any]:
    if not rope:
        return {}
    settings: dict[str, Any] = {"rope_freq_base": rope["rope_theta"]}
    head_dim = getattr(config, "head_dim", None)
    head_dim = head_dim or config.hidden_size // config.num_attention_heads
    if rope.get("partial_rotary_factor", 1) != 1:
        settings["rope_dimension_count"] = int(head_dim * rope["partial_rotary_factor"])
    original = rope.get("original_max_position_embeddings")
    if rope["rope_type"] in ("linear", "yarn"):
        settings["rope_scaling_type"] = gguf.RopeScalingType(rope["rope_type"])
        settings["rope_scaling_factor"] = rope["factor"]
    if rope["rope_type"] in ("yarn", "longrope"):
        settings["rope_scaling_orig_ctx_len"] = original
    if rope.get("mscale_all_dim"):
        settings["rope_scaling_yarn_log_mul"] = 0.1 * rope["mscale_all_dim"]
    return settings


def _factors(rope: Mapping[str, Any], model: PreTrainedModel) -> Tensors:
    """Divisors of frequencies."""
    if rope.get("rope_type") == "longrope":
        return {
            f"rope_factors_{kind}.weight": np.array(rope[f"{kind}_factor"], np.float32)
            for kind in ("long", "short")
        }
    if rope.get("rope_type") != "llama3":
        return {}
    scaled = model.model.rotary_emb.inv_freq.numpy()
    dims = 2 * len(scaled)
    plain = rope["rope_theta"] ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    return {"rope_freqs.weight": (plain / scaled).astype(np.float32)}


def _stacked(tensors: Tensors) -> Tensors:
    """The matrices of all experts of a layer as one tensor."""
    changed: Tensors = {}
    experts: dict[str, dict[int, Array]] = {}
    for name, values in tensors.items():
        match = _EXPERT.fullmatch(name)
        if match is None:
            changed[name] = values
        else:
            experts.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = values
    for name, by_number in experts.items():
        changed[name] = np.stack([by_number[i] for i in range(len(by_number))])
    return changed


def _stored(names: gguf.TensorNameMap, name: str) -> str:
    if name.startswith(("rope_", "blk.", "cls.")):
        return name
    name = name.replace("e_score_correction_bias", "e_score_correction.bias")
    name = re.sub(r"backbone(\.layers\.\d+\.)mixer(\.experts\.)", r"model\1mlp\2", name)
    name = re.sub(r"\.expert_bias$", ".expert_bias.bias", name)
    suffixes = (".weight", ".bias")
    # Some names are in there without their prefix.
    short = name.removeprefix("transformer.").removeprefix("model.")
    stored = names.get_name(name, suffixes) or names.get_name(short, suffixes)
    assert stored is not None, name
    return stored
