"""What the configuration of some GGUF architectures has beside copied keys: each function takes the
file and what is known of its configuration, and returns the rest."""

from __future__ import annotations

from typing import Any

from pagemill.weights.gguf_reader import GgufReader
from pagemill.weights.gguf_rotary import read_rope

Config = dict[str, Any]

_LAYER_NORM = "attention.layer_norm_epsilon"
_SIGMOID = 2  # of expert_gating_func


def llama(reader: GgufReader, config: Config) -> Config:
    del config
    if reader.number("expert_count", 0) == 0:
        return {}
    # Mixtral has no name of its own.
    return {
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": reader.integer("expert_count"),
        "num_experts_per_tok": reader.integer("expert_used_count"),
    }


def dense_layers(reader: GgufReader, config: Config) -> Config:
    """There is no key for layers without experts."""
    del config
    return {"mlp_only_layers": reader.layers_with("ffn_gate.weight")}


def gemma2(reader: GgufReader, config: Config) -> Config:
    # The 27B models are the only ones whose query scale is not their head size. GGUF has no key for
    # it; the number of their layers tells them.
    del reader
    scalar = config["head_dim"]
    if config["num_hidden_layers"] == 46:
        scalar = config["hidden_size"] // config["num_attention_heads"]
    return {"query_pre_attn_scalar": scalar}


def gemma3(reader: GgufReader, config: Config) -> Config:
    scalar = config["head_dim"]
    if config["num_hidden_layers"] == 62:
        scalar = config["hidden_size"] // config["num_attention_heads"]
    sliding = {"rope_type": "default", "rope_theta": reader.number("rope.freq_base_swa", 10000.0)}
    return {
        "sliding_window": reader.integer("attention.sliding_window"),
        "query_pre_attn_scalar": scalar,
        "rope_parameters": {
            "full_attention": config["rope_parameters"],
            "sliding_attention": sliding,
        },
    }


def olmo2(reader: GgufReader, config: Config) -> Config:
    """OLMo 3 has no name of its own; its sliding layers have no scaling."""
    if "sliding_window" not in config:
        return {}
    rope = config["rope_parameters"]
    sliding = {"rope_type": "default", "rope_theta": rope["rope_theta"]}
    return {
        "architectures": ["Olmo3ForCausalLM"],
        "rope_parameters": {"full_attention": rope, "sliding_attention": sliding},
    }


def falcon(reader: GgufReader, config: Config) -> Config:
    del config
    return {"num_ln_in_parallel_attn": 2 if reader.layers_with("attn_norm_2.weight") else 1}


def without_further_layers(reader: GgufReader, config: Config) -> Config:
    """`block_count` includes layers that predict further tokens."""
    further = reader.find_int("nextn_predict_layers") or 0
    return {
        "num_hidden_layers": config["num_hidden_layers"] - further,
        "num_nextn_predict_layers": further,
    }


def exaone_moe(reader: GgufReader, config: Config) -> Config:
    fewer = dict(without_further_layers(reader, config))
    sparse, count = reader.layers_with("ffn_gate_inp.weight"), fewer["num_hidden_layers"]
    if "layer_types" in config:
        types = config["layer_types"]
        fewer |= {"layer_types": types[:count], "mtp_layer_types": types[count:]}
    kinds = ["sparse" if layer in sparse else "dense" for layer in range(count)]
    return {**fewer, "mlp_layer_types": kinds}


def apertus(reader: GgufReader, config: Config) -> Config:
    """The numbers of xIELU, which are metadata of a name of their own."""
    del config
    metadata = reader.gguf.metadata
    return {
        f"xielu_{name}": metadata.get(f"xielu.{name}") for name in ("alpha_p", "alpha_n", "beta")
    }


def gpt_oss(reader: GgufReader, config: Config) -> Config:
    """The correction range of YaRN is not rounded, for which there is no key."""
    del reader
    return {"rope_parameters": {**config["rope_parameters"], "truncate": False}}


def deepseek2(reader: GgufReader, config: Config) -> Config:
    rotary = reader.integer("rope.dimension_count")
    rope = {k: v for k, v in config["rope_parameters"].items() if k != "partial_rotary_factor"}
    weight = reader.number("rope.scaling.yarn_log_multiplier", 0.0) * 10  # the key has a tenth
    if weight:
        rope |= {"mscale": weight, "mscale_all_dim": weight}
    key = reader.find_int("attention.key_length_mla") or reader.integer("attention.key_length")
    value = reader.find_int("attention.value_length_mla")
    deepseek: Config = {
        **without_further_layers(reader, config),
        "rope_parameters": rope,
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": key - rotary,
        "v_head_dim": value or reader.integer("attention.value_length"),
        "q_lora_rank": reader.find_int("attention.q_lora_rank"),
        "num_key_value_heads": config["num_attention_heads"],
        "head_dim": rotary,
    }
    scores = reader.number("expert_gating_func", 0)
    # Earlier converters do not write the key for all models whose experts are balanced.
    if scores == _SIGMOID or (not scores and reader.layers_with("exp_probs_b.bias")):
        return deepseek | {"architectures": ["DeepseekV3ForCausalLM"]}
    if reader.number("expert_group_count", 1) > 1:
        deepseek["topk_method"] = "group_limited_greedy"
    return deepseek


def score_scale(reader: GgufReader, config: Config) -> Config:
    """Granite's multiplier of scores, of models that have another one and do not state it."""
    del reader
    return {"attention_multiplier": config.get("attention_multiplier", config["head_dim"] ** -0.5)}


def minicpm3(reader: GgufReader, config: Config) -> Config:
    rotary, heads = reader.integer("rope.dimension_count"), config["num_attention_heads"]
    key, rope = reader.integer("attention.key_length"), config["rope_parameters"]
    return {
        "rope_parameters": {k: v for k, v in rope.items() if k != "partial_rotary_factor"},
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": key - rotary,
        "v_head_dim": config["hidden_size"] // heads,
        "head_dim": rotary,
    }


def mistral3(reader: GgufReader, config: Config) -> Config:
    rope = dict(config["rope_parameters"])
    if weight := reader.number("rope.scaling.yarn_log_multiplier", 0.0):
        rope |= {"mscale": 1.0, "mscale_all_dim": weight}
    if beta := reader.number("attention.temperature_scale", 0.0):
        rope["llama_4_scaling_beta"] = beta
    return {"rope_parameters": rope}


def _mixer_sizes(reader: GgufReader) -> Config:
    heads, inner = reader.integer("ssm.time_step_rank"), reader.integer("ssm.inner_size")
    return {
        "mamba_d_ssm": inner,
        "mamba_expand": inner // reader.integer("embedding_length"),
        "mamba_n_heads": heads,
        "mamba_d_head": inner // heads,
        "mamba_n_groups": reader.integer("ssm.group_count"),
        "mamba_d_state": reader.integer("ssm.state_size"),
        "mamba_d_conv": reader.integer("ssm.conv_kernel"),
    }


def falcon_h1(reader: GgufReader, config: Config) -> Config:
    del config
    return _mixer_sizes(reader)


def granite_hybrid(reader: GgufReader, config: Config) -> Config:
    attends, layers = reader.layers_with("attn_q.weight"), config["num_hidden_layers"]
    # The key that converters use to say so, if it is there.
    rotates = reader.find("rope.scaling.finetuned") is not False
    sizes: Config = {}
    shared, first = reader.tensor("blk.0.ffn_up_shexp.weight"), reader.tensor("blk.0.ffn_up.weight")
    if (wide := shared or first) is not None:
        sizes["shared_intermediate_size"] = wide.shape[0]
    if (experts := reader.tensor("blk.0.ffn_up_exps.weight")) is not None:
        sizes["intermediate_size"] = experts.shape[-2]
        sizes["num_local_experts"] = reader.integer("expert_count")
        sizes["num_experts_per_tok"] = reader.integer("expert_used_count")
    return {
        **score_scale(reader, config),
        **_mixer_sizes(reader),
        **sizes,
        "layer_types": ["attention" if i in attends else "mamba" for i in range(layers)],
        "position_embedding_type": "rope" if rotates else "nope",
    }


_NEMOTRON_TENSORS = {
    "M": "ssm_in.weight",
    "*": "attn_q.weight",
    "-": "ffn_up.weight",
    "E": "ffn_up_exps.weight",
}


def nemotron_nas(reader: GgufReader, config: Config) -> Config:
    """A layer without queries has no attention; one without keys has a linear layer instead."""
    heads = reader.integer("attention.head_count")
    head_dim = reader.find_int("attention.key_length") or config["hidden_size"] // heads
    blocks: list[Config] = []
    of_layers = (
        reader.by_layer(key)
        for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    )
    for queries, keys, width in zip(*of_layers, strict=True):
        if keys and heads % keys:
            raise reader.error(f"{heads} heads cannot share {keys} key-value heads")
        attention = {
            "no_op": not queries,
            "replace_with_linear": not keys,
            "n_heads_in_group": heads // keys if keys else None,
        }
        blocks.append(
            {"attention": attention, "ffn": {"no_op": not width, "intermediate_size": width}}
        )
    return {
        "num_attention_heads": heads,
        "head_dim": head_dim,
        "rope_parameters": read_rope(reader, head_dim),
        "block_configs": blocks,
    }


def nemotron_h(reader: GgufReader, config: Config) -> Config:
    kinds = dict[int, str]()
    for kind, tensor in _NEMOTRON_TENSORS.items():
        kinds |= dict.fromkeys(reader.layers_with(tensor), kind)
    heads = reader.integer("ssm.time_step_rank")
    return {
        "hybrid_override_pattern": "".join(
            kinds.get(i, "?") for i in range(config["num_hidden_layers"])
        ),
        "mamba_num_heads": heads,
        "mamba_head_dim": reader.integer("ssm.inner_size") // heads,
        "layer_norm_epsilon": reader.number(_LAYER_NORM, config["rms_norm_eps"]),
    }


def mpt(reader: GgufReader, config: Config) -> Config:
    del config
    return {
        "attn_config": {
            "alibi_bias_max": reader.number("attention.max_alibi_bias", 8.0),
            "clip_qkv": reader.number("attention.clamp_kqv", 0.0),
        },
        "expansion_ratio": reader.integer("feed_forward_length")
        // reader.integer("embedding_length"),
    }


def layer_kinds(reader: GgufReader, config: Config) -> Config:
    """LFM2's layers by what they have."""
    attends = reader.layers_with("attn_q.weight")
    kinds = [
        "full_attention" if i in attends else "conv" for i in range(config["num_hidden_layers"])
    ]
    return {"layer_types": kinds}


def qwen3_next(reader: GgufReader, config: Config) -> Config:
    attends, layers = reader.layers_with("attn_q.weight"), config["num_hidden_layers"]
    kinds = ["full_attention" if i in attends else "linear_attention" for i in range(layers)]
    values = reader.integer("ssm.inner_size") // reader.integer("ssm.time_step_rank")
    return {"layer_types": kinds, "linear_value_head_dim": values}


def encoder(reader: GgufReader, config: Config) -> Config:
    """Tables have the rows that converters keep: RoBERTa's begin at the first position."""
    types, positions = reader.tensor("token_types.weight"), reader.tensor("position_embd.weight")
    return {
        "type_vocab_size": types.shape[0] if types else 0,
        "max_position_embeddings": positions.shape[0]
        if positions
        else config["max_position_embeddings"],
    }


def t5_encoder(reader: GgufReader, config: Config) -> Config:
    """There is no key for activations: those with gates are T5 1.1's."""
    del config
    gated = reader.tensor("enc.blk.0.ffn_gate.weight") is not None
    return {"feed_forward_proj": "gated-gelu" if gated else "relu"}


def modern_bert(reader: GgufReader, config: Config) -> Config:
    every, layers = (
        reader.number("attention.sliding_window_pattern", 3),
        config["num_hidden_layers"],
    )
    kinds = ["sliding_attention" if i % every else "full_attention" for i in range(layers)]
    local = {"rope_type": "default", "rope_theta": reader.number("rope.freq_base_swa", 10000.0)}
    return {
        "layer_types": kinds,
        "rope_parameters": {
            "full_attention": config["rope_parameters"],
            "sliding_attention": local,
        },
    }


def qwen3_5(reader: GgufReader, config: Config) -> Config:
    fewer = without_further_layers(reader, config)
    return fewer | qwen3_next(reader, config | fewer)


def mamba(reader: GgufReader, config: Config) -> Config:
    """Falcon-Mamba has no name of its own, and no key for the epsilon of its mixers."""
    del config
    if not reader.find("ssm.dt_b_c_rms"):
        return {}
    return {"architectures": ["FalconMambaForCausalLM"], "mixer_rms_eps": 1e-6}


def mamba2(reader: GgufReader, config: Config) -> Config:
    del config
    heads = reader.integer("ssm.time_step_rank")
    return {"num_heads": heads, "head_dim": reader.integer("ssm.inner_size") // heads}
