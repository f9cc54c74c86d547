"""The tensors of each GGUF architecture, by the names of its Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.weights.gguf_encoder_names import ENCODER_NAMES
from pagemill.weights.gguf_module_names import (
    ATTENTION,
    BALANCED_EXPERTS,
    EXPERTS,
    FURTHER,
    GATED_EXPERT,
    GRANITE_EXPERTS,
    LATENT,
    LATENT_ROWS,
    LLAMA,
    MIXTRAL_EXPERTS,
    MLP,
    NORMS,
    QK_NORMS,
    SHARED_EXPERTS,
    TOP,
)
from pagemill.weights.gguf_name_map import GgufNames
from pagemill.weights.gguf_recurrent_names import RECURRENT_NAMES

_NORMS_BEHIND = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
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
_POST_NORM = LLAMA | _NORMS_BEHIND
_BOTH_NORMS = LLAMA | _NORMS_BEHIND | {"pre_feedforward_layernorm": "ffn_norm"}


def _llama(modules: Mapping[str, str]) -> GgufNames:
    return GgufNames(modules, TOP)


_MAX_STREAMS = 8  # of Gemma 3n
# Embeddings for each layer, of Gemma 3n and 4.
_LAYER_INPUTS = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
_LAYER_TABLES = {
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
}
_GEMMA4 = GgufNames(
    {
        "layer_scalar": "layer_output_scale.weight",
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "experts.gate_up_proj": "ffn_gate_up_exps.weight",
        "experts.down_proj": "ffn_down_exps.weight",
        **_BOTH_NORMS,
        **QK_NORMS,
        "router.proj": "ffn_gate_inp",
        "post_feedforward_layernorm_1": "post_ffw_norm_1",
        "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
        "post_feedforward_layernorm_2": "post_ffw_norm_2",
        **_LAYER_INPUTS,
    },
    {**TOP, **_LAYER_TABLES},
)
_GEMMA3N = GgufNames(
    {
        **_BOTH_NORMS,
        **QK_NORMS,
        "altup.correction_coefs": "altup_correct_coef",
        "altup.correct_output_scale": "altup_correct_scale.weight",
        "altup.prediction_coefs": "altup_predict_coef",
        "altup.modality_router": "altup_router",
        "altup.router_norm": "altup_router_norm",
        "laurel.linear_left": "laurel_l",
        "laurel.linear_right": "laurel_r",
        "laurel.post_laurel_norm": "laurel_post_norm",
        **_LAYER_INPUTS,
    },
    {**TOP, **_LAYER_TABLES},
    slices={
        f"model.{module}.{i}.weight": (f"{stored}.weight", i)
        for i in range(_MAX_STREAMS - 1)
        for module, stored in (
            ("altup_projections", "altup_proj"),
            ("altup_unembed_projections", "altup_unembd_proj"),
        )
    },
)
_BAILING_MOE_V2 = GgufNames(
    {
        **NORMS,
        **MLP,
        **EXPERTS,
        **SHARED_EXPERTS,
        **FURTHER,
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
    **RECURRENT_NAMES,
    "afmoe": _llama(
        {
            **ATTENTION,
            **QK_NORMS,
            **MLP,
            **EXPERTS,
            **SHARED_EXPERTS,
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
            **LLAMA,
            **QK_NORMS,
            "attention_layernorm": "attn_norm",
            "feedforward_layernorm": "ffn_norm",
        }
    ),
    "arcee": _llama(LLAMA),
    "bailingmoe2": _BAILING_MOE_V2,
    "bailingmoe": _llama(LLAMA | EXPERTS | SHARED_EXPERTS),
    "bitnet": _llama(
        LLAMA | {"self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm"}
    ),
    "bloom": GgufNames(
        _FUSED_ATTENTION | NORMS,
        {
            "transformer.word_embeddings": "token_embd",
            "transformer.word_embeddings_layernorm": "token_embd_norm",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        "transformer.h",
    ),
    "chatglm": GgufNames(
        {
            **NORMS,
            "self_attention.query_key_value": "attn_qkv",
            "self_attention.dense": "attn_output",
            "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        },
        {
            "transformer.embedding.word_embeddings": "token_embd",
            "transformer.encoder.final_layernorm": "output_norm",
            "transformer.output_layer": "output",
        },
        "transformer.encoder.layers",
    ),
    "cohere2": _llama(LLAMA),
    "command-r": _llama(LLAMA | QK_NORMS),
    "dbrx": GgufNames(
        {
            "norm_attn_norm.norm_1": "attn_norm",
            "norm_attn_norm.attn.Wqkv": "attn_qkv",
            "norm_attn_norm.attn.out_proj": "attn_output",
            "norm_attn_norm.norm_2": "attn_output_norm",
            "ffn.router.layer": "ffn_gate_inp",
            "ffn.experts.mlp.w1": "ffn_gate_exps.weight",
            "ffn.experts.mlp.v1": "ffn_up_exps.weight",
            "ffn.experts.mlp.w2": "ffn_down_exps.weight",
        },
        {"transformer.wte": "token_embd", "transformer.norm_f": "output_norm", "lm_head": "output"},
        "transformer.blocks",
    ),
    "deci": GgufNames(LLAMA, TOP, otherwise={"self_attn.linear_attn": "attn_output"}),
    "deepseek": _llama(LLAMA | EXPERTS | SHARED_EXPERTS),
    "deepseek2": GgufNames(
        NORMS | LATENT | MLP | BALANCED_EXPERTS | FURTHER, TOP, rows=LATENT_ROWS
    ),
    "dots1": _llama(LLAMA | QK_NORMS | BALANCED_EXPERTS),
    "ernie4_5": _llama(LLAMA),
    "ernie4_5-moe": _llama(
        {
            **LLAMA,
            **EXPERTS,
            **SHARED_EXPERTS,
            "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
        }
    ),
    "eurobert": _llama(LLAMA),
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
            **LLAMA,
            **QK_NORMS,
            **EXPERTS,
            **SHARED_EXPERTS,
            **FURTHER,
            "mlp.e_score_correction_bias": "exp_probs_b.bias",
        }
    ),
    "exaone4": _llama(_POST_NORM | QK_NORMS),
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
    "gemma": _llama(LLAMA),
    "gemma2": _llama(_BOTH_NORMS),
    "gemma-embedding": _llama(_BOTH_NORMS | QK_NORMS),
    "gemma3": _llama(_BOTH_NORMS | QK_NORMS),
    "gemma3n": _GEMMA3N,
    "gemma4": _GEMMA4,
    "glm-dsa": GgufNames(
        {
            **NORMS,
            **LATENT,
            **MLP,
            **BALANCED_EXPERTS,
            **FURTHER,
            "self_attn.indexer.wq_b": "indexer.attn_q_b",
            "self_attn.indexer.wk": "indexer.attn_k",
            "self_attn.indexer.k_norm": "indexer.k_norm",
            "self_attn.indexer.weights_proj": "indexer.proj",
        },
        TOP,
        rows=LATENT_ROWS,
    ),
    "glm4": _llama(
        {
            **LLAMA,
            "mlp.gate_up_proj": "ffn_up",
            "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
        }
    ),
    "glm4moe": _llama(
        {
            **LLAMA,
            **QK_NORMS,
            **BALANCED_EXPERTS,
            **FURTHER,
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
            **LLAMA,
            **EXPERTS,
            "post_attention_layernorm": "post_attention_norm",
            "self_attn.sinks": "attn_sinks.weight",
            "mlp.router": "ffn_gate_inp",
        }
    ),
    "gptneox": GgufNames(
        {
            **NORMS,
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
    "granite": _llama(LLAMA),
    "granitemoe": _llama({**LLAMA, **GRANITE_EXPERTS}),
    "hunyuan-dense": _llama(
        {
            **LLAMA,
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
        }
    ),
    "hunyuan-moe": _llama(
        {
            **LLAMA,
            **EXPERTS,
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
            "mlp.gate.wg": "ffn_gate_inp",
            "mlp.shared_mlp.gate_proj": "ffn_gate_shexp",
            "mlp.shared_mlp.up_proj": "ffn_up_shexp",
            "mlp.shared_mlp.down_proj": "ffn_down_shexp",
        }
    ),
    "internlm2": _llama(LLAMA),
    "jais": GgufNames(
        {**_GPT2, "mlp.c_fc2": "ffn_gate"},
        {
            "transformer.wte": "token_embd",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        "transformer.h",
    ),
    "jais2": _llama(LLAMA),
    "llama": _llama(LLAMA | MIXTRAL_EXPERTS),
    "llama-embed": _llama(LLAMA),
    "llama4": _llama(
        {
            **NORMS,
            **ATTENTION,
            "feed_forward.gate_proj": "ffn_gate",
            "feed_forward.up_proj": "ffn_up",
            "feed_forward.down_proj": "ffn_down",
            "feed_forward.router": "ffn_gate_inp",
            "feed_forward.experts.gate_proj": "ffn_gate_exps",
            "feed_forward.experts.up_proj": "ffn_up_exps",
            "feed_forward.experts.down_proj": "ffn_down_exps",
            "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
            "feed_forward.shared_expert.up_proj": "ffn_up_shexp",
            "feed_forward.shared_expert.down_proj": "ffn_down_shexp",
        }
    ),
    "minicpm": _llama(LLAMA),
    "minicpm3": _llama(NORMS | LATENT | MLP),
    "minimax-m2": _llama(
        {
            **LLAMA,
            **QK_NORMS,
            **MIXTRAL_EXPERTS,
            "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
        }
    ),
    "mistral3": _llama(LLAMA | MIXTRAL_EXPERTS),
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
    "nemotron": _llama(LLAMA),
    "olmo": _llama(LLAMA),
    "olmo2": _llama(_POST_NORM | QK_NORMS),
    "olmoe": _llama(LLAMA | QK_NORMS | EXPERTS),
    "orion": _llama(LLAMA),
    "pangu-embedded": _llama(LLAMA),
    "phi2": GgufNames(
        {
            **ATTENTION,
            "input_layernorm": "attn_norm",
            "self_attn.dense": "attn_output",
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
        },
        {**TOP, "model.final_layernorm": "output_norm"},
    ),
    "phi3": _llama(
        {**LLAMA, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    ),
    "phimoe": _llama(LLAMA | MIXTRAL_EXPERTS),
    "plamo3": GgufNames(
        {
            "pre_mixer_norm": "attn_norm",
            "mixer.qkv_proj": "attn_qkv",
            "mixer.q_norm": "attn_q_norm",
            "mixer.k_norm": "attn_k_norm",
            "mixer.o_proj": "attn_output",
            "post_mixer_norm.weight": "post_attention_norm",
            "pre_mlp_norm": "ffn_norm",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
            "post_mlp_norm.weight": "post_ffw_norm",
        },
        TOP,
        "model.layers.layers",
    ),
    "qwen": GgufNames(
        {
            "ln_1": "attn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            "ln_2": "ffn_norm",
            "mlp.w1": "ffn_up",
            "mlp.w2": "ffn_gate",
            "mlp.c_proj": "ffn_down",
        },
        {"transformer.wte": "token_embd", "transformer.ln_f": "output_norm", "lm_head": "output"},
        "transformer.h",
    ),
    "qwen2": _llama(LLAMA),
    "qwen2moe": _llama(
        {
            **LLAMA,
            **EXPERTS,
            **GATED_EXPERT,
        }
    ),
    "qwen3": GgufNames(LLAMA | QK_NORMS, {**TOP, "score": "cls.output"}),
    "qwen3moe": _llama(LLAMA | QK_NORMS | EXPERTS),
    "seed_oss": _llama({**LLAMA, "post_attention_layernorm": "post_attention_norm"}),
    "smollm3": _llama(LLAMA),
    "stablelm": _llama(LLAMA),
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
    "starcoder2": _llama({**LLAMA, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}),
    "xverse": _llama(LLAMA),
}
