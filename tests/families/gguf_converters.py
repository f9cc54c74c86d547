"""What llama.cpp's converter does to the tensors of each architecture, and what it writes of its
configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
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


def permuted(tensors: Tensors, config: PretrainedConfig) -> Tensors:
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


def _jais(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Scales of embeddings and of logits are in two tables."""
    changed = _transposed(tensors, config)
    for name in [name for name in changed if name.endswith(".c_fc2.weight")]:
        changed[name] = changed[name].T
    table, scale = (
        changed["transformer.wte.weight"],
        config.mup_output_alpha * config.mup_width_scale,
    )
    return changed | {
        "transformer.wte.weight": table * np.float32(config.mup_embeddings_scale),
        "lm_head.weight": table * np.float32(scale),
    }


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


def gate_and_up(tensors: Tensors, config: PretrainedConfig) -> Tensors:
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


def _divided_in_order(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Ling's rows of all queries, keys and values as three matrices."""
    rows = config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads
    ends = np.cumsum(rows) * (config.hidden_size // config.num_attention_heads)
    changed: Tensors = {}
    for name, values in tensors.items():
        if "query_key_value" not in name:
            changed[name] = values
            continue
        for what, part in zip("qkv", np.split(values, ends[:2]), strict=True):
            new = name.replace("attention.query_key_value", f"self_attn.{what}_proj")
            changed[new] = part
    return permuted(changed, config)


def _llama4_experts(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Gate and up apart, and matrices of experts with a row for each output."""
    del config
    changed: Tensors = {}
    for name, values in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(values.swapaxes(1, 2), 2, axis=1)
            prefix = name.removesuffix("gate_up_proj")
            changed |= {f"{prefix}gate_proj.weight": gate, f"{prefix}up_proj.weight": up}
        elif name.endswith("experts.down_proj"):
            changed[f"{name}.weight"] = values.swapaxes(1, 2)
        else:
            changed[name] = values
    return changed


def _dbrx_experts(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Stacks of matrices, with a row for each output."""
    shape = (config.ffn_config.moe_num_experts, config.ffn_config.ffn_hidden_size, -1)
    changed: Tensors = {}
    for name, values in tensors.items():
        if ".experts.mlp." in name:
            stack = values.reshape(shape)
            changed[f"{name}.weight"] = stack.swapaxes(1, 2) if name.endswith("w2") else stack
        else:
            changed[name] = values
    return changed


def _plamo3(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """What norms add to their weights."""
    del config
    added = {"post_mixer_norm": 1 / 5, "post_mlp_norm": 5**-1.5}
    for name, values in tensors.items():
        if name.endswith("norm.weight"):
            tensors[name] = values + np.float32(added.get(name.split(".")[-2], 1))
    return tensors


def split_latents(tensors: Tensors, config: PretrainedConfig) -> Tensors:
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


def windows(config: PretrainedConfig) -> dict[str, Any]:
    types = config.layer_types
    if "sliding_attention" not in types:
        return {}
    return {"sliding_window_pattern": [kind == "sliding_attention" for kind in types]}


def sigmoid(config: PretrainedConfig) -> dict[str, Any]:
    del config
    return {"expert_gating_func": gguf.ExpertGatingFuncType.SIGMOID}


def _mpt_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        "context_length": config.max_seq_len,
        "feed_forward_length": 4 * config.d_model,
        "head_count": config.n_heads,
        "max_alibi_bias": config.attn_config.alibi_bias_max,
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
        **sigmoid(config),
        "head_count_kv": 1,
        "leading_dense_block_count": 1,
        "key_length": config.kv_lora_rank + config.qk_rope_head_dim,
        "value_length": config.kv_lora_rank,
        "key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "value_length_mla": config.v_head_dim,
    }


def _dbrx_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        "context_length": config.max_seq_len,
        "feed_forward_length": config.ffn_config.ffn_hidden_size,
        "head_count_kv": config.attn_config.kv_n_heads,
        "rope_freq_base": config.attn_config.rope_theta,
        "clamp_kqv": config.attn_config.clip_qkv,
        "expert_count": config.ffn_config.moe_num_experts,
        "expert_used_count": config.ffn_config.moe_top_k,
    }


def _gemma3n(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Matrices of streams as one tensor, and names that have no kind."""
    changed: Tensors = {}
    for name, values in tensors.items():
        if "altup_" not in name:
            changed[f"{name}.weight" if name.endswith("_scale") else name] = values
    for module in ("altup_projections", "altup_unembed_projections"):
        streams = range(config.altup_num_inputs - 1)
        stack = [tensors[f"model.{module}.{i}.weight"] for i in streams]
        changed[f"model.{module}.weight"] = np.stack(stack)
    return changed


def _gemma3n_settings(config: PretrainedConfig) -> dict[str, Any]:
    shares = torch.tensor(config.activation_sparsity_pattern, dtype=torch.float32)
    return {
        **windows(config),
        "altup_active_idx": config.altup_active_idx,
        "altup_num_inputs": config.altup_num_inputs,
        "embedding_length_per_layer_input": config.hidden_size_per_layer_input,
        "shared_kv_layers": config.num_kv_shared_layers,
        "activation_sparsity_scale": torch.distributions.Normal(0, 1).icdf(shares).tolist(),
        "rope_freq_base_swa": config.rope_parameters["sliding_attention"]["rope_theta"],
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


def t5_settings(config: PretrainedConfig) -> dict[str, Any]:
    return {
        "context_length": config.n_positions,
        "embedding_length": config.d_model,
        "feed_forward_length": config.d_ff,
        "head_count": config.num_heads,
        "head_count_kv": None,
        "key_length": config.d_kv,
        "layer_norm_rms_eps": config.layer_norm_epsilon,
        "relative_attn_buckets_count": config.relative_attention_num_buckets,
    }


def _t5_decoder_settings(config: PretrainedConfig) -> dict[str, Any]:
    return t5_settings(config) | {
        "decoder_block_count": config.num_decoder_layers,
        "decoder_start_token_id": config.decoder_start_token_id,
        "tokenizer_model": "t5",
        "token_scores": [-float(index) for index in range(config.vocab_size)],
        "pad_token_id": config.pad_token_id,
        "eos_token_id": config.eos_token_id,
        "unk_token_id": 0,
    }


def _t5_head(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Checkpoints of all but UMT5 repeat the table of tokens, or have a head of its own."""
    if config.model_type == "umt5":
        return tensors
    return tensors | {"lm_head.weight": tensors["shared.weight"]}


def _bitnet(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """The names of the first models of the family, which the converter knows."""
    del config
    renamed = {"attn_sub_norm": "inner_attn_ln", "ffn_sub_norm": "ffn_layernorm"}
    changed: Tensors = {}
    for name, values in tensors.items():
        for new, old in renamed.items():
            name = name.replace(new, old)
        changed[name] = values
    return changed


PLAIN = Converter()
T5 = Converter(_t5_head, _t5_decoder_settings)
BITNET = Converter(_bitnet)
LLAMA = Converter(permuted)
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
WINDOWS = Converter(settings=windows)
EXAONE_MOE = Converter(
    settings=lambda config: {**windows(config), **sigmoid(config), "leading_dense_block_count": 1}
)
SIGMOID = Converter(settings=sigmoid)
DEEPSEEK = Converter(
    permuted, lambda config: {"expert_shared_count": 2, "leading_dense_block_count": 1}
)
GRANITE_EXPERTS = Converter(
    lambda tensors, config: permuted(gate_and_up(tensors, config), config),
    lambda config: {
        "expert_shared_feed_forward_length": getattr(config, "shared_intermediate_size", None)
    },
)
NEMOTRON_NAS = Converter(permuted, _nemotron_nas_settings)
HUNYUAN_MOE = Converter(settings=lambda config: {"expert_used_count": config.moe_topk[0]})
INTERNLM2 = Converter(lambda tensors, config: permuted(_divided(tensors, config), config))
GEMMA4 = Converter(_gemma4, _gemma4_settings)
MINICPM3 = Converter(settings=_minicpm3_settings)
MISTRAL3 = Converter(permuted, _mistral3_settings)
MINICPM = Converter(permuted, lambda config: {"attention_scale": None})
GPT_OSS = Converter(
    _gpt_oss_experts,
    lambda config: {"expert_feed_forward_length": config.intermediate_size},
)
JAIS = Converter(
    _jais,
    lambda config: {
        **_gpt2_settings(config),
        "feed_forward_length": config.n_inner,
        "max_alibi_bias": 8.0,
    },
)
MPT = Converter(settings=_mpt_settings)
LATENT = Converter(settings=_latent_settings)
SPLIT_LATENT = Converter(split_latents, _split_latent_settings)
BAILING_MOE = Converter(
    _divided_in_order, lambda config: {"expert_shared_count": 2, "leading_dense_block_count": 0}
)
CHATGLM = Converter(settings=lambda config: {"rope_freq_base": 2e4})
DBRX = Converter(_dbrx_experts, _dbrx_settings)
GLM_DSA = Converter(
    split_latents,
    lambda config: {
        **_split_latent_settings(config),
        "indexer_head_count": config.index_n_heads,
        "indexer_key_length": config.index_head_dim,
        "indexer_top_k": config.index_topk,
    },
)
LLAMA4 = Converter(
    _llama4_experts,
    lambda config: {
        "feed_forward_length": config.intermediate_size_mlp,
        "expert_feed_forward_length": config.intermediate_size,
        "interleave_moe_layer_step": config.interleave_moe_layer_step,
    },
)
ORION = Converter(settings=lambda config: {"layer_norm_eps": config.layer_norm_eps})
PLAMO3 = Converter(
    _plamo3,
    lambda config: {
        "sliding_window_pattern": 2,
        "rope_freq_base_swa": config.rope_parameters["sliding_attention"]["rope_theta"],
    },
)
QWEN = Converter(settings=lambda config: {"feed_forward_length": 2 * config.intermediate_size})
GEMMA3N = Converter(_gemma3n, _gemma3n_settings)
