"""What llama.cpp's converter does to the tensors of architectures whose layers keep a state or
convolve, and what it writes of their configuration."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from transformers import PretrainedConfig

from tests.families.gguf_converters import (
    Array,
    Converter,
    Tensors,
    gate_and_up,
    permuted,
    sigmoid,
    split_latents,
)


def _mixers(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Decay as it is used, and shapes."""
    groups = getattr(config, "n_groups", None) or config.mamba_n_groups
    changed: Tensors = {}
    for name, values in tensors.items():
        if name.endswith("A_log"):
            changed[name] = -np.exp(values)[:, None]
        elif name.endswith(".D"):
            changed[name] = values[:, None]
        elif name.endswith((".mixer.norm.weight", ".mamba.norm.weight")):
            changed[name] = values.reshape(groups, -1)
        elif name.endswith("conv1d.weight"):
            changed[name] = values[:, 0]
        else:
            changed[name.replace("dt_bias", "dt_proj.bias")] = values
    return changed


def _selective(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Decay as it is used, and shapes."""
    del config
    changed = {name: -np.exp(v) if name.endswith("A_log") else v for name, v in tensors.items()}
    return {name: v[:, 0] if "conv1d.weight" in name else v for name, v in changed.items()}


def _multiplied(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Falcon-H1's multipliers in the weights."""
    gate, down = config.mlp_multipliers
    into, states = config.attention_in_multiplier, config.mamba_n_groups * config.mamba_d_state
    inner = config.mamba_d_ssm or config.mamba_expand * config.hidden_size
    sizes = (inner, inner, states, states, config.mamba_n_heads)
    of_rows = np.repeat(np.array(config.ssm_multipliers, np.float32), sizes)
    factors = {
        "down_proj": down,
        "gate_proj": gate,
        "k_proj": config.key_multiplier * into,
        "q_proj": into,
        "v_proj": into,
        "o_proj": config.attention_out_multiplier,
        "mamba.out_proj": config.ssm_out_multiplier,
        "mamba.in_proj": of_rows[:, None] * config.ssm_in_multiplier,
        "lm_head": config.lm_head_multiplier,
        "embed_tokens": config.embedding_multiplier,
    }
    for name, values in tensors.items():
        factor = next((factor for key, factor in factors.items() if f"{key}." in name), 1.0)
        tensors[name] = (values * factor).astype(np.float32)
    return tensors


def _delta(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Decay as it is used, and the 1 that most norms add to their weights."""
    changed: Tensors = {}
    for name, values in tensors.items():
        if name.endswith("A_log"):
            changed[name] = -np.exp(values)
        elif name.endswith("conv1d.weight"):
            changed[name] = values[:, 0]
        elif name.endswith("norm.weight") and "linear_attn" not in name:
            changed[name] = values + np.float32(1)
        else:
            changed[name.replace("dt_bias", "dt_proj.bias")] = values
    return changed


def _delta_in_order(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """The rows of q, k and v of all groups one after the other, and the gate apart."""
    groups, keys = config.linear_num_key_heads, config.linear_key_head_dim
    values_of_group = config.linear_num_value_heads // groups * config.linear_value_head_dim
    ends = np.cumsum([keys, keys, values_of_group])
    changed: Tensors = {}
    for name, values in _delta(tensors, config).items():
        if "in_proj_qkvz" not in name:
            changed[name] = values
            continue
        width = values.shape[1]
        parts = np.split(values.reshape(groups, -1, width), ends, axis=1)
        q, k, v, z = (part.reshape(-1, width) for part in parts)
        changed[name.replace("qkvz", "qkv")] = np.concatenate([q, k, v])
        changed[name.replace("qkvz", "z")] = z
    return changed


def _delta_in_turn(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """The heads of values with the first of all groups first, then the second of all groups."""
    groups, size = config.linear_num_key_heads, config.linear_value_head_dim
    keys = 2 * groups * config.linear_key_head_dim

    def in_turn(values: Array, width: int) -> Array:
        by_group = values.reshape(groups, -1, width, *values.shape[1:])
        return by_group.swapaxes(0, 1).reshape(values.shape)

    changed = _delta(tensors, config)
    for name, values in changed.items():
        if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            changed[name] = np.concatenate([values[:keys], in_turn(values[keys:], size)])
        elif "in_proj_z" in name:
            changed[name] = in_turn(values, size)
        elif name.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_proj.bias")):
            changed[name] = in_turn(values, 1)
        elif "linear_attn.out_proj" in name:
            changed[name] = in_turn(values.T, size).T
    return changed


def _mamba_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        "context_length": 2**20,
        "feed_forward_length": 0,
        "head_count": 0,
        "layer_norm_rms_eps": config.layer_norm_epsilon,
        "ssm_conv_kernel": config.conv_kernel,
        "ssm_inner_size": config.intermediate_size,
        "ssm_state_size": config.state_size,
        "ssm_time_step_rank": config.time_step_rank,
        "ssm_dt_b_c_rms": hasattr(config, "mixer_rms_eps"),
    }


def _mamba2_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        "context_length": 2**20,
        "feed_forward_length": 0,
        "head_count": 0,
        "layer_norm_rms_eps": config.layer_norm_epsilon,
        "ssm_conv_kernel": config.conv_kernel,
        "ssm_inner_size": config.num_heads * config.head_dim,
        "ssm_state_size": config.state_size,
        "ssm_time_step_rank": config.num_heads,
        "ssm_group_count": config.n_groups,
    }


def _mixer_settings(config: PretrainedConfig) -> dict[str, Any]:
    inner = config.mamba_n_heads * config.mamba_d_head
    return {
        "ssm_conv_kernel": config.mamba_d_conv,
        "ssm_inner_size": inner,
        "ssm_state_size": config.mamba_d_state,
        "ssm_time_step_rank": config.mamba_n_heads,
        "ssm_group_count": config.mamba_n_groups,
    }


def _granite_hybrid_settings(config: PretrainedConfig) -> dict[str, Any]:
    attends = [kind in ("attention", "full_attention") for kind in config.layer_types]
    return {
        **_mixer_settings(config),
        "expert_shared_feed_forward_length": config.shared_intermediate_size,
        "head_count_kv": [config.num_key_value_heads * int(here) for here in attends],
        "rope_scaling_finetuned": config.position_embedding_type == "rope",
    }


def _nemotron_h_settings(config: PretrainedConfig) -> dict[str, Any]:
    kinds = config.layers_block_type
    size, kv_heads = config.intermediate_size, config.num_key_value_heads
    return {
        "ssm_conv_kernel": config.conv_kernel,
        "ssm_inner_size": config.mamba_num_heads * config.mamba_head_dim,
        "ssm_state_size": config.ssm_state_size,
        "ssm_time_step_rank": config.mamba_num_heads,
        "ssm_group_count": config.n_groups,
        "feed_forward_length": [size * int(kind == "mlp") for kind in kinds],
        "head_count_kv": [kv_heads * int(kind == "full_attention") for kind in kinds],
    }


def _nemotron_h_moe_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        **_nemotron_h_settings(config),
        **sigmoid(config),
        "feed_forward_length": config.intermediate_size,
        "expert_shared_feed_forward_length": config.moe_shared_expert_intermediate_size,
        "moe_latent_size": config.moe_latent_size,
    }


def _delta_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        "ssm_conv_kernel": config.linear_conv_kernel_dim,
        "ssm_state_size": config.linear_key_head_dim,
        "ssm_group_count": config.linear_num_key_heads,
        "ssm_time_step_rank": config.linear_num_value_heads,
        "ssm_inner_size": config.linear_value_head_dim * config.linear_num_value_heads,
        "full_attention_interval": 2,
    }


def _jamba_settings(config: PretrainedConfig) -> dict[str, Any]:
    period, first = config.attn_layer_period, config.attn_layer_offset
    attends = [layer % period == first for layer in range(config.num_hidden_layers)]
    return {
        "head_count_kv": [config.num_key_value_heads * int(here) for here in attends],
        "ssm_conv_kernel": config.mamba_d_conv,
        "ssm_inner_size": config.mamba_expand * config.hidden_size,
        "ssm_state_size": config.mamba_d_state,
        "ssm_time_step_rank": config.mamba_dt_rank,
    }


def _lfm2_settings(config: PretrainedConfig) -> dict[str, Any]:
    size = config.intermediate_size
    if getattr(config, "block_auto_adjust_ff_dim", False):
        size = int(config.block_ffn_dim_multiplier * int(2 * size / 3))
        size = -(-size // config.block_multiple_of) * config.block_multiple_of
    attends = [kind == "full_attention" for kind in config.layer_types]
    return {
        "feed_forward_length": size,
        "layer_norm_rms_eps": config.norm_eps,
        "head_count_kv": [config.num_key_value_heads * int(here) for here in attends],
        "vocab_size": config.vocab_size,
    }


def _kimi(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Decay as it is used, and latents that are projected twice."""
    changed: Tensors = {}
    for name, values in split_latents(tensors, config).items():
        if name.endswith("A_log"):
            changed[name] = -np.exp(values).reshape(1, 1, -1, 1)
        elif name.endswith("conv1d.weight"):
            changed[name] = values.reshape(1, len(values), 1, -1)
        else:
            new = re.sub(r"block_sparse_moe\.(\w+_proj)", r"mlp.\1", name)
            changed[new.replace("dt_bias", "dt_proj.bias")] = values
    return changed


def _kimi_settings(config: PretrainedConfig) -> dict[str, Any]:
    attends = [kind == "full_attention" for kind in config.layer_types]
    return {
        **sigmoid(config),
        "head_count_kv": [int(here) for here in attends],
        "ssm_conv_kernel": config.linear_conv_kernel_dim,
        "kda_head_dim": config.linear_head_dim,
        "rope_dimension_count": config.qk_rope_head_dim,
        "key_length": config.kv_lora_rank + config.qk_rope_head_dim,
        "value_length": config.kv_lora_rank,
        "key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "value_length_mla": config.v_head_dim,
        "leading_dense_block_count": 1,
    }


def _plamo2(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Decay as it is used, what norms add to their weights, and names of norms' weights."""
    added = {"post_mixer_norm": 1 / 5, "post_mlp_norm": 5**-1.5}
    changed: Tensors = {}
    for name, values in _selective(tensors, config).items():
        if name.endswith("norm.weight"):
            values = values + np.float32(added.get(name.split(".")[-2], 1))
        new = name.replace("dt_bias", "dt_proj.bias").replace("_norm_weight", "_norm.weight")
        new = new.replace(".q_weight", ".q.weight").replace(".k_weight", ".k.weight")
        changed[new] = values
    return changed


def _plamo2_settings(config: PretrainedConfig) -> dict[str, Any]:
    layers, step = config.num_hidden_layers, config.mamba_step
    attends = [layer % step == step // 2 for layer in range(layers)]
    return {
        "head_count_kv": [config.num_key_value_heads * int(here) for here in attends],
        "key_length": config.hidden_size_per_head,
        "value_length": config.hidden_size_per_head,
        "rope_freq_base": 1e4,
        "ssm_conv_kernel": config.mamba_d_conv,
        "ssm_inner_size": config.mamba_num_heads * config.hidden_size_per_head,
        "ssm_state_size": config.mamba_d_state,
        "ssm_time_step_rank": config.mamba_num_heads,
        "ssm_group_count": 0,
    }


def _rwkv7(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Shares of the previous token in one tensor, and a low-rank layer of the first layer's values,
    which has none: that of its rates."""
    changed: Tensors = {}
    for name, values in tensors.items():
        new = name.replace(".attn.", ".attention.").replace(".ffn.", ".feed_forward.")
        new = new.replace("ffn_norm", "ln2").replace("attn_norm", "ln1").replace("g_norm", "ln_x")
        for old, kind in ((".0.weight", "1"), (".2.weight", "2"), (".2.bias", "0")):
            new = new.replace(f"_lora.lora{old}", f"{kind}.weight")
        if new.endswith((".x_k", ".k_k", ".k_a", ".r_k")):
            new = f"{new}.weight"
        changed[new] = values.reshape(-1) if name.endswith("r_k") else values
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}.attention.x_"
        shares = [changed.pop(f"{prefix}{kind}{'.weight' * (kind == 'k')}") for kind in "rwkvag"]
        stack = np.stack([share.reshape(1, 1, -1) for share in shares])
        changed[f"blk.{layer}.time_mix_lerp_fused.weight"] = stack
    for kind in "012":
        name = f"model.layers.0.attention.{{}}{kind}.weight"
        changed[name.format("v")] = changed[name.format("a")]
    return changed


def _rwkv7_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        "context_length": 2**20,
        "head_count": 0,
        "layer_norm_eps": config.norm_eps,
        "wkv_head_size": config.head_dim,
        "decay_lora_rank": config.decay_low_rank_dim,
        "iclr_lora_rank": config.a_low_rank_dim,
        "value_residual_mix_lora_rank": config.v_low_rank_dim,
        "gate_lora_rank": config.gate_low_rank_dim,
    }


MAMBA = Converter(_selective, _mamba_settings)
MAMBA2 = Converter(_mixers, _mamba2_settings)
LFM2 = Converter(settings=_lfm2_settings)
GRANITE_HYBRID = Converter(
    lambda tensors, config: _mixers(permuted(gate_and_up(tensors, config), config), config),
    _granite_hybrid_settings,
)
FALCON_H1 = Converter(
    lambda tensors, config: _mixers(_multiplied(tensors, config), config), _mixer_settings
)
NEMOTRON_H = Converter(_mixers, _nemotron_h_settings)
NEMOTRON_H_MOE = Converter(_mixers, _nemotron_h_moe_settings)
QWEN3_5 = Converter(_delta_in_turn, _delta_settings)
QWEN3_NEXT = Converter(_delta_in_order, _delta_settings)
EARLY_QWEN3_NEXT = Converter(_delta, _delta_settings)
JAMBA = Converter(_selective, _jamba_settings)
KIMI_LINEAR = Converter(_kimi, _kimi_settings)
PLAMO2 = Converter(_plamo2, _plamo2_settings)
RWKV7 = Converter(_rwkv7, _rwkv7_settings)
