"""What llama.cpp's converter does to the tensors of each architecture, and what it writes of its
configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from transformers import PretrainedConfig

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]
Change = Callable[[Tensors, PretrainedConfig], Tensors]


def _same(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    del config
    return tensors


def _nothing(config: PretrainedConfig) -> dict[str, Any]:
    del config
    return {}


def _permuted(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Rows of q and k in each head from half-rotated order to pairs side by side."""
    head_dim = getattr(config, "head_dim", None)
    head_dim = head_dim or config.hidden_size // config.num_attention_heads
    for name, values in tensors.items():
        if ".q_proj." in name or ".k_proj." in name:
            rows = values.reshape(-1, 2, head_dim // 2, *values.shape[1:])
            tensors[name] = rows.swapaxes(1, 2).reshape(values.shape)
    return tensors


def _plus_one(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """The 1 that norms add to their weights."""
    del config
    for name, values in tensors.items():
        if name.endswith("norm.weight"):
            tensors[name] = values + np.float32(1)
    return tensors


def _transposed(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    del config
    ends = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
    return {name: v.T if name.endswith(ends) else v for name, v in tensors.items()}


def _qkv_in_order(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """The rows of all queries, then of all keys and of all values, instead of those of each KV
    head."""
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_kv_heads", heads)
    if getattr(config, "multi_query", False) and not config.new_decoder_architecture:
        kv_heads = 1
    for name, values in tensors.items():
        if "query_key_value" in name:
            dim = values.shape[0] // (heads + 2 * kv_heads)
            by_head = values.reshape(kv_heads, heads // kv_heads + 2, dim, *values.shape[1:])
            q, k, v = by_head[:, :-2], by_head[:, -2], by_head[:, -1]
            rest = values.shape[1:]
            tensors[name] = np.concatenate([part.reshape(-1, *rest) for part in (q, k, v)])
    return tensors


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


def _gate_and_up(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """The rows of gate and of up as two tensors."""
    shared = "mlp.shared_expert" if config.num_local_experts else "mlp"
    new = {
        "block_sparse_moe.input_linear": (
            "block_sparse_moe.experts.w1",
            "block_sparse_moe.experts.w3",
        ),
        "shared_mlp.input_linear": (f"{shared}.gate_proj", f"{shared}.up_proj"),
    }
    changed: Tensors = {}
    for name, values in tensors.items():
        fused = next((old for old in new if old in name), None)
        if fused is None:
            changed[name.replace("shared_mlp.output_linear", f"{shared}.down_proj")] = values
        else:
            half = values.shape[-2] // 2
            gate, up = (name.replace(fused, part) for part in new[fused])
            changed |= {gate: values[..., :half, :], up: values[..., half:, :]}
    return changed


def _gpt_oss_experts(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Gate and up apart, and matrices of experts with a row for each output."""
    del config
    changed: Tensors = {}
    for name, values in tensors.items():
        module, experts, kind = name.partition("mlp.experts.")
        if not experts:
            changed[f"{name}.weight" if name.endswith("sinks") else name] = values
            continue
        end = "bias" if kind.endswith("_bias") else "weight"
        rows = values if end == "bias" else values.swapaxes(1, 2)
        if "down" in kind:
            changed[f"{module}{experts}down_proj.{end}"] = rows
            continue
        for first, part in enumerate(("gate", "up")):
            changed[f"{module}{experts}{part}_proj.{end}"] = rows[:, first::2]
    return changed


def _divided(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """InternLM2's rows of q, k and v of each KV head as three matrices under Llama's names."""
    heads, kv_heads, dim = (
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
    )
    changed: Tensors = {}
    for name, values in tensors.items():
        if ".wqkv." not in name:
            changed[name] = values
            continue
        by_head = values.reshape(kv_heads, heads // kv_heads + 2, dim, *values.shape[1:])
        parts = {"q": by_head[:, :-2], "k": by_head[:, -2], "v": by_head[:, -1]}
        for what, part in parts.items():
            new = name.replace("attention.wqkv", f"self_attn.{what}_proj")
            changed[new] = part.reshape(-1, *values.shape[1:])
    return changed


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


def _split_latents(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """The projection of latents in two: to keys, transposed, and to values."""
    nope, heads = config.qk_nope_head_dim, config.num_attention_heads
    changed: Tensors = {}
    for name, values in tensors.items():
        if "kv_b_proj" not in name:
            changed[name] = values
            continue
        by_head = values.reshape(heads, -1, values.shape[1])
        changed[name.replace("kv_b", "k_b")] = by_head[:, :nope].swapaxes(1, 2)
        changed[name.replace("kv_b", "v_b")] = by_head[:, nope:]
    return changed


def _full_sizes(config: PretrainedConfig) -> tuple[int, int]:
    """Of Gemma 4's layers without a window: the size of heads, the number of key-value heads."""
    own = config.per_layer_config[config.layer_types.index("full_attention")]
    return own.head_dim, own.num_key_value_heads


def _gemma4(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Names that have no kind, and divisors that leave a part of wide heads as it is."""
    changed: Tensors = {}
    for name, values in tensors.items():
        layer = name.split(".")[2]
        if name.endswith("router.scale"):
            changed[f"blk.{layer}.ffn_gate_inp.scale"] = values
        elif name.endswith("per_expert_scale"):
            changed[f"blk.{layer}.ffn_down_exps.scale"] = values
        else:
            plain = name.endswith("layer_scalar") or ".experts." in name
            changed[f"{name}.weight" if plain else name] = values
    rope, (dim, _) = config.rope_parameters["full_attention"], _full_sizes(config)
    rotated = int(dim * rope["partial_rotary_factor"] / 2)
    divisors = [1.0] * rotated + [1e30] * (dim // 2 - rotated)
    return changed | {"rope_freqs.weight": np.array(divisors, np.float32)}


def _gemma4_settings(config: PretrainedConfig) -> dict[str, Any]:
    layers, size = config.num_hidden_layers, config.intermediate_size
    slides = [kind == "sliding_attention" for kind in config.layer_types]
    full_dim, full_heads = _full_sizes(config)
    shared = config.num_kv_shared_layers
    settings: dict[str, Any] = {
        "shared_kv_layers": shared,
        "embedding_length_per_layer_input": config.hidden_size_per_layer_input or 0,
        "sliding_window_pattern": slides,
        "key_length": full_dim,
        "key_length_swa": config.head_dim,
        "rope_dimension_count": full_dim,
        "rope_dimension_count_swa": config.head_dim,
        "rope_freq_base_swa": config.rope_parameters["sliding_attention"]["rope_theta"],
        "expert_used_count": config.top_k_experts,
    }
    if config.use_double_wide_mlp:
        sizes = [size if layer < layers - shared else 2 * size for layer in range(layers)]
        settings["feed_forward_length"] = sizes
    if full_heads != config.num_key_value_heads:
        heads = [config.num_key_value_heads if slide else full_heads for slide in slides]
        settings["head_count_kv"] = heads
    return settings


def _mistral3_settings(config: PretrainedConfig) -> dict[str, Any]:
    rope = config.rope_parameters
    return {
        "rope_scaling_yarn_log_mul": rope["mscale_all_dim"],
        "attn_temperature_scale": rope["llama_4_scaling_beta"],
    }


def _minicpm3_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        "key_length": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "rope_dimension_count": config.qk_rope_head_dim,
    }


def _gpt2_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {"feed_forward_length": config.n_inner or 4 * config.hidden_size}


def _windows(config: PretrainedConfig) -> dict[str, Any]:
    types = config.layer_types
    if "sliding_attention" not in types:
        return {}
    return {"sliding_window_pattern": [kind == "sliding_attention" for kind in types]}


def _sigmoid(config: PretrainedConfig) -> dict[str, Any]:
    del config
    return {"expert_gating_func": gguf.ExpertGatingFuncType.SIGMOID}


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
        **_sigmoid(config),
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


def _mpt_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        "context_length": config.max_seq_len,
        "feed_forward_length": 4 * config.d_model,
        "head_count": config.n_heads,
        "max_alibi_bias": config.attn_config.alibi_bias_max,
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


def _latent_settings(config: PretrainedConfig) -> dict[str, Any]:
    key = config.qk_nope_head_dim + config.qk_rope_head_dim
    return {
        "rope_dimension_count": config.qk_rope_head_dim,
        "key_length": key,
        "value_length": config.v_head_dim,
    }


def _split_latent_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        **_latent_settings(config),
        **_sigmoid(config),
        "head_count_kv": 1,
        "leading_dense_block_count": 1,
        "key_length": config.kv_lora_rank + config.qk_rope_head_dim,
        "value_length": config.kv_lora_rank,
        "key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "value_length_mla": config.v_head_dim,
    }


@dataclass(frozen=True)
class Converter:
    """What is particular to an architecture: `change` of the tensors of a checkpoint before they
    are named, and `settings` beyond `_SETTINGS`, by what writes them, or instead."""

    change: Change = _same
    settings: Callable[[PretrainedConfig], Mapping[str, Any]] = _nothing


def _nemotron_nas_settings(config: PretrainedConfig) -> dict[str, Any]:
    heads = config.num_attention_heads
    attentions = [block["attention"] for block in config.block_configs]
    groups = [attention.get("n_heads_in_group") for attention in attentions]
    factors = [block["ffn"].get("ffn_mult") or 0.0 for block in config.block_configs]
    widths = [int(2 * factor * config.hidden_size / 3) for factor in factors]
    return {
        "head_count": [0 if attention.get("no_op") else heads for attention in attentions],
        "head_count_kv": [heads // group if group else 0 for group in groups],
        "feed_forward_length": [-(-width // 256) * 256 for width in widths],
        "key_length": config.hidden_size // heads,
        "rope_freq_base": config.rope_theta,
    }


PLAIN = Converter()
LLAMA = Converter(_permuted)
GEMMA = Converter(_plus_one)
GPT2 = Converter(_transposed, _gpt2_settings)
BIG_CODE = Converter(settings=lambda config: {**_gpt2_settings(config), "head_count_kv": 1})
IN_ORDER = Converter(
    _qkv_in_order,
    lambda config: {
        "feed_forward_length": getattr(config, "intermediate_size", 4 * config.hidden_size),
        "context_length": getattr(config, "max_position_embeddings", 2048),
    },
)
FALCON = Converter(
    _qkv_in_order,
    lambda config: {
        "feed_forward_length": config.ffn_hidden_size,
        "head_count_kv": config.num_kv_heads if config.new_decoder_architecture else 1,
    },
)
NEMOTRON = Converter(_plus_one, lambda config: {"layer_norm_eps": config.norm_eps})
WINDOWS = Converter(settings=_windows)
EXAONE_MOE = Converter(
    settings=lambda config: {**_windows(config), **_sigmoid(config), "leading_dense_block_count": 1}
)
SIGMOID = Converter(settings=_sigmoid)
DEEPSEEK = Converter(
    _permuted, lambda config: {"expert_shared_count": 2, "leading_dense_block_count": 1}
)
MAMBA = Converter(_selective, _mamba_settings)
MAMBA2 = Converter(_mixers, _mamba2_settings)
LFM2 = Converter(settings=_lfm2_settings)
GRANITE_EXPERTS = Converter(
    lambda tensors, config: _permuted(_gate_and_up(tensors, config), config),
    lambda config: {
        "expert_shared_feed_forward_length": getattr(config, "shared_intermediate_size", None)
    },
)
GRANITE_HYBRID = Converter(
    lambda tensors, config: _mixers(_permuted(_gate_and_up(tensors, config), config), config),
    _granite_hybrid_settings,
)
FALCON_H1 = Converter(
    lambda tensors, config: _mixers(_multiplied(tensors, config), config), _mixer_settings
)
NEMOTRON_NAS = Converter(_permuted, _nemotron_nas_settings)
NEMOTRON_H = Converter(_mixers, _nemotron_h_settings)
NEMOTRON_H_MOE = Converter(_mixers, _nemotron_h_moe_settings)
HUNYUAN_MOE = Converter(settings=lambda config: {"expert_used_count": config.moe_topk[0]})
INTERNLM2 = Converter(lambda tensors, config: _permuted(_divided(tensors, config), config))
GEMMA4 = Converter(_gemma4, _gemma4_settings)
MINICPM3 = Converter(settings=_minicpm3_settings)
MISTRAL3 = Converter(_permuted, _mistral3_settings)
MINICPM = Converter(_permuted, lambda config: {"attention_scale": None})
QWEN3_5 = Converter(_delta_in_turn, _delta_settings)
QWEN3_NEXT = Converter(_delta_in_order, _delta_settings)
EARLY_QWEN3_NEXT = Converter(_delta, _delta_settings)
GPT_OSS = Converter(
    _gpt_oss_experts,
    lambda config: {"expert_feed_forward_length": config.intermediate_size},
)
MPT = Converter(settings=_mpt_settings)
LATENT = Converter(settings=_latent_settings)
SPLIT_LATENT = Converter(_split_latents, _split_latent_settings)
