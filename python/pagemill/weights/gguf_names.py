"""The tensors of each GGUF architecture, by the names of its Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.weights.gguf_encoder_names import ENCODER_NAMES
from pagemill.weights.gguf_name_map import GgufNames

_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}

_BACKBONE_TOP = {
    "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm",
    "lm_head": "output",
}

_ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
_QK_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_NORMS_BEHIND = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_MLP = {
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# The matrices of all experts of a layer are one tensor.
_EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
_MIXTRAL_EXPERTS = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
}
_SHARED_EXPERTS = {
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
_GATED_EXPERT = {
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
_BALANCED_EXPERTS = {
    **_EXPERTS,
    **_SHARED_EXPERTS,
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
}
_GRANITE_EXPERTS = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.gate_proj": "ffn_gate_exps",
    "block_sparse_moe.experts.up_proj": "ffn_up_exps",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps",
    "shared_mlp.gate_proj": "ffn_gate_shexp",
    "shared_mlp.up_proj": "ffn_up_shexp",
    "shared_mlp.down_proj": "ffn_down_shexp",
}
_GPT2 = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_FUSED_ATTENTION = {
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}
_LFM2 = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    **_ATTENTION,
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
}
_LFM2_EXPERTS = {
    "feed_forward.gate": "ffn_gate_inp",
    "feed_forward.expert_bias": "exp_probs_b.bias",
    "feed_forward.experts.w1": "ffn_gate_exps",
    "feed_forward.experts.w2": "ffn_down_exps",
    "feed_forward.experts.w3": "ffn_up_exps",
}
_LFM2_TOP = {**_TOP, "model.embedding_norm": "token_embd_norm"}
_LATENT = {
    "self_attn.q_proj": "attn_q",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "self_attn.k_b_proj": "attn_k_b",
    "self_attn.v_b_proj": "attn_v_b",
    "self_attn.o_proj": "attn_output",
}
# Of layers that predict further tokens.
_FURTHER = {
    "eh_proj": "nextn.eh_proj",
    "embed_tokens": "nextn.embed_tokens",
    "enorm": "nextn.enorm",
    "hnorm": "nextn.hnorm",
    "shared_head.head": "nextn.shared_head_head",
    "shared_head.norm": "nextn.shared_head_norm",
}
_DELTA = {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
_LLAMA = _NORMS | _ATTENTION | _MLP
_POST_NORM = _LLAMA | _NORMS_BEHIND
_BOTH_NORMS = _LLAMA | _NORMS_BEHIND | {"pre_feedforward_layernorm": "ffn_norm"}


def _mixer(prefix: str) -> dict[str, str]:
    """A mixer of Mamba-2."""
    return {
        f"{prefix}.in_proj": "ssm_in",
        f"{prefix}.conv1d": "ssm_conv1d",
        f"{prefix}.dt_bias": "ssm_dt.bias",
        f"{prefix}.A_log": "ssm_a",
        f"{prefix}.D": "ssm_d",
        f"{prefix}.norm": "ssm_norm",
        f"{prefix}.out_proj": "ssm_out",
    }


_NEGATED_EXP = (".A_log",)
_MIXER_ROWS = (".mixer.norm.weight", ".mamba.norm.weight")
_LATENT_ROWS = (".k_b_proj.weight", ".v_b_proj.weight")


def _llama(modules: Mapping[str, str]) -> GgufNames:
    return GgufNames(modules, _TOP)


_NEMOTRON_H = GgufNames(
    {
        **_mixer("mixer"),
        "norm": "attn_norm",
        "mixer.q_proj": "attn_q",
        "mixer.k_proj": "attn_k",
        "mixer.v_proj": "attn_v",
        "mixer.o_proj": "attn_output",
        "mixer.up_proj": "ffn_up",
        "mixer.down_proj": "ffn_down",
        "mixer.gate": "ffn_gate_inp",
        "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
        "mixer.experts.up_proj": "ffn_up_exps",
        "mixer.experts.down_proj": "ffn_down_exps",
        "mixer.shared_experts.up_proj": "ffn_up_shexp",
        "mixer.shared_experts.down_proj": "ffn_down_shexp",
        "mixer.fc1_latent_proj": "ffn_latent_down",
        "mixer.fc2_latent_proj": "ffn_latent_up",
    },
    _BACKBONE_TOP,
    "backbone.layers",
    negated_exp=_NEGATED_EXP,
    rows=_MIXER_ROWS,
)


_GEMMA4 = GgufNames(
    {
        "layer_scalar": "layer_output_scale.weight",
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "experts.gate_up_proj": "ffn_gate_up_exps.weight",
        "experts.down_proj": "ffn_down_exps.weight",
        **_BOTH_NORMS,
        **_QK_NORMS,
        "router.proj": "ffn_gate_inp",
        "post_feedforward_layernorm_1": "post_ffw_norm_1",
        "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
        "post_feedforward_layernorm_2": "post_ffw_norm_2",
        "per_layer_input_gate": "inp_gate",
        "per_layer_projection": "proj",
        "post_per_layer_input_norm": "post_norm",
    },
    {
        **_TOP,
        "model.embed_tokens_per_layer": "per_layer_token_embd",
        "model.per_layer_model_projection": "per_layer_model_proj",
        "model.per_layer_projection_norm": "per_layer_proj_norm",
    },
)

_QWEN3_5 = GgufNames(
    {
        **_LLAMA,
        **_QK_NORMS,
        **_EXPERTS,
        **_GATED_EXPERT,
        **_DELTA,
        **_FURTHER,
        "post_attention_layernorm": "post_attention_norm",
        "linear_attn.in_proj_b": "ssm_beta",
        "linear_attn.in_proj_a": "ssm_alpha",
    },
    _TOP,
    negated_exp=_NEGATED_EXP,
)

_BAILING_MOE_V2 = GgufNames(
    {
        **_NORMS,
        **_MLP,
        **_EXPERTS,
        **_SHARED_EXPERTS,
        **_FURTHER,
        "attention.query_key_value": "attn_qkv",
        "attention.query_layernorm": "attn_q_norm",
        "attention.key_layernorm": "attn_k_norm",
        "attention.dense": "attn_output",
        "mlp.gate.expert_bias": "exp_probs_b.bias",
    },
    {"model.word_embeddings": "token_embd", "model.norm": "output_norm", "lm_head": "output"},
)

GGUF_NAMES: Mapping[str, GgufNames] = {
    **ENCODER_NAMES,
    "afmoe": _llama(
        {
            **_ATTENTION,
            **_QK_NORMS,
            **_MLP,
            **_EXPERTS,
            **_SHARED_EXPERTS,
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            "pre_mlp_layernorm": "ffn_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "self_attn.gate_proj": "attn_gate",
            "mlp.router.gate": "ffn_gate_inp",
            "mlp.expert_bias": "exp_probs_b.bias",
        }
    ),
    "apertus": _llama(
        {
            **_LLAMA,
            **_QK_NORMS,
            "attention_layernorm": "attn_norm",
            "feedforward_layernorm": "ffn_norm",
        }
    ),
    "arcee": _llama(_LLAMA),
    "bailingmoe2": _BAILING_MOE_V2,
    "bloom": GgufNames(
        _FUSED_ATTENTION | _NORMS,
        {
            "transformer.word_embeddings": "token_embd",
            "transformer.word_embeddings_layernorm": "token_embd_norm",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        "transformer.h",
    ),
    "cohere2": _llama(_LLAMA),
    "command-r": _llama(_LLAMA | _QK_NORMS),
    "deci": GgufNames(_LLAMA, _TOP, otherwise={"self_attn.linear_attn": "attn_output"}),
    "deepseek": _llama(_LLAMA | _EXPERTS | _SHARED_EXPERTS),
    "deepseek2": GgufNames(
        _NORMS | _LATENT | _MLP | _BALANCED_EXPERTS | _FURTHER, _TOP, rows=_LATENT_ROWS
    ),
    "dots1": _llama(_LLAMA | _QK_NORMS | _BALANCED_EXPERTS),
    "ernie4_5": _llama(_LLAMA),
    "ernie4_5-moe": _llama(
        {
            **_LLAMA,
            **_EXPERTS,
            **_SHARED_EXPERTS,
            "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
        }
    ),
    "eurobert": _llama(_LLAMA),
    "exaone": GgufNames(
        {
            "ln_1": "attn_norm",
            "attn.attention.q_proj": "attn_q",
            "attn.attention.k_proj": "attn_k",
            "attn.attention.v_proj": "attn_v",
            "attn.attention.out_proj": "attn_output",
            "ln_2": "ffn_norm",
            "mlp.c_fc_0": "ffn_gate",
            "mlp.c_fc_1": "ffn_up",
            "mlp.c_proj": "ffn_down",
        },
        {"transformer.wte": "token_embd", "transformer.ln_f": "output_norm", "lm_head": "output"},
        "transformer.h",
    ),
    "exaone-moe": _llama(
        {
            **_LLAMA,
            **_QK_NORMS,
            **_EXPERTS,
            **_SHARED_EXPERTS,
            **_FURTHER,
            "mlp.e_score_correction_bias": "exp_probs_b.bias",
        }
    ),
    "exaone4": _llama(_POST_NORM | _QK_NORMS),
    "falcon": GgufNames(
        {
            **_FUSED_ATTENTION,
            "input_layernorm": "attn_norm",
            "ln_mlp": "attn_norm",
            "ln_attn": "attn_norm_2",
        },
        {
            "transformer.word_embeddings": "token_embd",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        "transformer.h",
    ),
    "gemma": _llama(_LLAMA),
    "gemma2": _llama(_BOTH_NORMS),
    "gemma-embedding": _llama(_BOTH_NORMS | _QK_NORMS),
    "gemma3": _llama(_BOTH_NORMS | _QK_NORMS),
    "gemma4": _GEMMA4,
    "glm4": _llama(
        {
            **_LLAMA,
            "mlp.gate_up_proj": "ffn_up",
            "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
        }
    ),
    "glm4moe": _llama(
        {
            **_LLAMA,
            **_QK_NORMS,
            **_BALANCED_EXPERTS,
            **_FURTHER,
            "post_attention_layernorm": "post_attention_norm",
        }
    ),
    "gpt2": GgufNames(
        _GPT2,
        {
            "transformer.wte": "token_embd",
            "transformer.wpe": "position_embd",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        "transformer.h",
    ),
    "gpt-oss": _llama(
        {
            **_LLAMA,
            **_EXPERTS,
            "post_attention_layernorm": "post_attention_norm",
            "self_attn.sinks": "attn_sinks.weight",
            "mlp.router": "ffn_gate_inp",
        }
    ),
    "gptneox": GgufNames(
        {
            **_NORMS,
            "attention.query_key_value": "attn_qkv",
            "attention.dense": "attn_output",
            "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        },
        {
            "gpt_neox.embed_in": "token_embd",
            "gpt_neox.final_layer_norm": "output_norm",
            "embed_out": "output",
        },
        "gpt_neox.layers",
    ),
    "falcon-h1": GgufNames(
        {
            **_ATTENTION,
            **_mixer("mamba"),
            "input_layernorm": "attn_norm",
            "pre_ff_layernorm.weight": "ffn_norm",
            "feed_forward.gate_proj": "ffn_gate",
            "feed_forward.up_proj": "ffn_up",
            "feed_forward.down_proj": "ffn_down",
        },
        {**_TOP, "model.final_layernorm": "output_norm"},
        negated_exp=_NEGATED_EXP,
        rows=_MIXER_ROWS,
    ),
    "granite": _llama(_LLAMA),
    "granitehybrid": GgufNames(
        {**_LLAMA, **_GRANITE_EXPERTS, **_mixer("mamba")},
        _TOP,
        negated_exp=_NEGATED_EXP,
        rows=_MIXER_ROWS,
        otherwise={
            "shared_mlp.gate_proj": "ffn_gate",
            "shared_mlp.up_proj": "ffn_up",
            "shared_mlp.down_proj": "ffn_down",
        },
    ),
    "granitemoe": _llama({**_LLAMA, **_GRANITE_EXPERTS}),
    "hunyuan-dense": _llama(
        {
            **_LLAMA,
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
        }
    ),
    "hunyuan-moe": _llama(
        {
            **_LLAMA,
            **_EXPERTS,
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
            "mlp.gate.wg": "ffn_gate_inp",
            "mlp.shared_mlp.gate_proj": "ffn_gate_shexp",
            "mlp.shared_mlp.up_proj": "ffn_up_shexp",
            "mlp.shared_mlp.down_proj": "ffn_down_shexp",
        }
    ),
    "internlm2": _llama(_LLAMA),
    "lfm2": GgufNames(_LFM2, _LFM2_TOP),
    "lfm2moe": GgufNames(_LFM2 | _LFM2_EXPERTS, _LFM2_TOP),
    "llama": _llama(_LLAMA | _MIXTRAL_EXPERTS),
    "llama-embed": _llama(_LLAMA),
    "mamba": GgufNames(
        {
            "norm": "attn_norm",
            "mixer.in_proj": "ssm_in",
            "mixer.conv1d": "ssm_conv1d",
            "mixer.x_proj": "ssm_x",
            "mixer.dt_proj": "ssm_dt",
            "mixer.A_log": "ssm_a",
            "mixer.D": "ssm_d",
            "mixer.out_proj": "ssm_out",
        },
        _BACKBONE_TOP,
        "backbone.layers",
        negated_exp=_NEGATED_EXP,
    ),
    "mamba2": GgufNames(
        {"norm": "attn_norm", **_mixer("mixer")},
        _BACKBONE_TOP,
        "backbone.layers",
        negated_exp=_NEGATED_EXP,
        rows=_MIXER_ROWS,
    ),
    "minicpm": _llama(_LLAMA),
    "minicpm3": _llama(_NORMS | _LATENT | _MLP),
    "minimax-m2": _llama(
        {
            **_LLAMA,
            **_QK_NORMS,
            **_MIXTRAL_EXPERTS,
            "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
        }
    ),
    "mistral3": _llama(_LLAMA | _MIXTRAL_EXPERTS),
    "mpt": GgufNames(
        {
            "norm_1": "attn_norm",
            "attn.Wqkv": "attn_qkv",
            "attn.out_proj": "attn_output",
            "norm_2": "ffn_norm",
            "ffn.up_proj": "ffn_up",
            "ffn.down_proj": "ffn_down",
        },
        {"transformer.wte": "token_embd", "transformer.norm_f": "output_norm", "lm_head": "output"},
        "transformer.blocks",
    ),
    "nemotron": _llama(_LLAMA),
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": _NEMOTRON_H,
    "olmo": _llama(_LLAMA),
    "olmo2": _llama(_POST_NORM | _QK_NORMS),
    "olmoe": _llama(_LLAMA | _QK_NORMS | _EXPERTS),
    "pangu-embedded": _llama(_LLAMA),
    "phi2": GgufNames(
        {
            **_ATTENTION,
            "input_layernorm": "attn_norm",
            "self_attn.dense": "attn_output",
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
        },
        {**_TOP, "model.final_layernorm": "output_norm"},
    ),
    "phi3": _llama(
        {**_LLAMA, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    ),
    "qwen2": _llama(_LLAMA),
    "qwen2moe": _llama(
        {
            **_LLAMA,
            **_EXPERTS,
            **_GATED_EXPERT,
        }
    ),
    "qwen3": _llama(_LLAMA | _QK_NORMS),
    "qwen35": _QWEN3_5,
    "qwen35moe": _QWEN3_5,
    "qwen3moe": _llama(_LLAMA | _QK_NORMS | _EXPERTS),
    "qwen3next": GgufNames(
        {
            **_LLAMA,
            **_QK_NORMS,
            **_EXPERTS,
            **_GATED_EXPERT,
            **_DELTA,
            "post_attention_layernorm": "post_attention_norm",
            "linear_attn.in_proj_qkvz": "ssm_in",  # of files of earlier converters
            "linear_attn.in_proj_ba": "ssm_ba",
        },
        _TOP,
        negated_exp=_NEGATED_EXP,
    ),
    "seed_oss": _llama({**_LLAMA, "post_attention_layernorm": "post_attention_norm"}),
    "smollm3": _llama(_LLAMA),
    "stablelm": _llama(_LLAMA),
    "starcoder": GgufNames(
        _GPT2,
        {
            "transformer.wte": "token_embd",
            "transformer.wpe": "position_embd",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        "transformer.h",
    ),
    "starcoder2": _llama({**_LLAMA, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}),
}
