"""What the configuration of some GGUF architectures has beside copied keys: each function takes the
file and what is known of its configuration, and returns the rest."""

from __future__ import annotations

from typing import Any

from pagemill.weights.gguf_reader import GgufReader
from pagemill.weights.gguf_rotary import read_rope

Config = dict[str, Any]

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


def glm_dsa(reader: GgufReader, config: Config) -> Config:
    """DeepSeek's, and the layers that choose tokens."""
    deepseek = deepseek2(reader, config)
    chooses = reader.layers_with("indexer.attn_q_b.weight")
    layers = deepseek["num_hidden_layers"]
    return {
        **{key: value for key, value in deepseek.items() if key != "architectures"},
        "indexer_types": ["full" if i in chooses else "shared" for i in range(layers)],
    }


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


def t5(reader: GgufReader, config: Config) -> Config:
    """There is no key for the scale of what the head reads. Models whose head is the table of
    tokens have it, and so have those without gates, T5 1.0, of which some files repeat it."""
    kind = t5_encoder(reader, config)
    gated = kind["feed_forward_proj"] != "relu"
    return {**kind, "scale_decoder_outputs": config["tie_word_embeddings"] or not gated}


def bitnet(reader: GgufReader, config: Config) -> Config:
    """The first models of the family had another activation than those of its configuration."""
    del reader
    return {"hidden_act": config.get("hidden_act", "silu")}


def modern_bert(reader: GgufReader, config: Config) -> Config:
    every = reader.find_int("attention.sliding_window_pattern") or 3
    layers = config["num_hidden_layers"]
    kinds = ["sliding_attention" if i % every else "full_attention" for i in range(layers)]
    local = {"rope_type": "default", "rope_theta": reader.number("rope.freq_base_swa", 10000.0)}
    return {
        "layer_types": kinds,
        "rope_parameters": {
            "full_attention": config["rope_parameters"],
            "sliding_attention": local,
        },
    }


def chatglm(reader: GgufReader, config: Config) -> Config:
    del reader
    return {"padded_vocab_size": config["vocab_size"], "kv_channels": config["head_dim"]}


def dbrx(reader: GgufReader, config: Config) -> Config:
    return {
        "attn_config": {
            "kv_n_heads": config["num_key_value_heads"],
            "rope_theta": config["rope_parameters"]["rope_theta"],
            "clip_qkv": reader.number("attention.clamp_kqv", 0.0),
        },
        "ffn_config": {
            "ffn_hidden_size": reader.integer("feed_forward_length"),
            "moe_num_experts": reader.integer("expert_count"),
            "moe_top_k": reader.integer("expert_used_count"),
        },
    }


def llama4(reader: GgufReader, config: Config) -> Config:
    """There is no key for norms of queries and keys: models of 128 experts have none. Chunks and
    layers without positions are those of all models."""
    del config
    if reader.find("attention.sliding_window") == 0:
        raise reader.error("a Llama 4 without chunked attention is not supported")
    return {"use_qk_norm": reader.integer("expert_count") != 128}


def plamo3(reader: GgufReader, config: Config) -> Config:
    """Windows of layers: listed, or of all but every n-th."""
    sliding = {"rope_type": "default", "rope_theta": reader.number("rope.freq_base_swa", 10000.0)}
    rope = {"full_attention": config["rope_parameters"], "sliding_attention": sliding}
    window = reader.integer("attention.sliding_window")
    if "layer_types" not in config:
        return {"rope_parameters": rope, "sliding_window": None, "window_size": window}
    windows = [window if kind == "sliding_attention" else None for kind in config["layer_types"]]
    return {"rope_parameters": rope, "sliding_window": windows}
