"""The tensors of each GGUF architecture whose layers keep a state or convolve, by the names of its
Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.weights.gguf_module_names import (
    ATTENTION,
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
    TOP,
)
from pagemill.weights.gguf_name_map import GgufNames

_BACKBONE_TOP = {
    "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm",
    "lm_head": "output",
}
_LFM2 = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    **ATTENTION,
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
_LFM2_TOP = {**TOP, "model.embedding_norm": "token_embd_norm"}
_DELTA = {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
_NEGATED_EXP = (".A_log",)
_MIXER_ROWS = (".mixer.norm.weight", ".mamba.norm.weight")


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
_QWEN3_5 = GgufNames(
    {
        **LLAMA,
        **QK_NORMS,
        **EXPERTS,
        **GATED_EXPERT,
        **_DELTA,
        **FURTHER,
        "post_attention_layernorm": "post_attention_norm",
        "linear_attn.in_proj_b": "ssm_beta",
        "linear_attn.in_proj_a": "ssm_alpha",
    },
    TOP,
    negated_exp=_NEGATED_EXP,
)
_RWKV7 = GgufNames(
    {
        "attn_norm": "attn_norm",
        "attn.r_proj": "time_mix_receptance",
        "attn.k_proj": "time_mix_key",
        "attn.v_proj": "time_mix_value",
        "attn.o_proj": "time_mix_output",
        "attn.g_norm": "time_mix_ln",
        "attn.k_k": "time_mix_k_k.weight",
        "attn.k_a": "time_mix_k_a.weight",
        "attn.r_k": "time_mix_r_k.weight",
        **{
            f"attn.{name}_lora.lora.{module}": f"time_mix_{name}{stored}"
            for name in "wavg"
            for module, stored in (("2.bias", "0.weight"), ("0", "1"), ("2", "2"))
        },
        "ffn_norm": "attn_norm_2",
        "ffn.x_k": "channel_mix_lerp_k.weight",
        "ffn.key": "channel_mix_key",
        "ffn.value": "channel_mix_value",
    },
    {
        "model.embeddings": "token_embd",
        "model.layers.0.pre_norm": "token_embd_norm",
        "model.norm": "output_norm",
        "lm_head": "output",
    },
    slices={f"attn.x_{name}": ("time_mix_lerp_fused.weight", i) for i, name in enumerate("rwkvag")},
)


RECURRENT_NAMES: Mapping[str, GgufNames] = {
    "falcon-h1": GgufNames(
        {
            **ATTENTION,
            **_mixer("mamba"),
            "input_layernorm": "attn_norm",
            "pre_ff_layernorm.weight": "ffn_norm",
            "feed_forward.gate_proj": "ffn_gate",
            "feed_forward.up_proj": "ffn_up",
            "feed_forward.down_proj": "ffn_down",
        },
        {**TOP, "model.final_layernorm": "output_norm"},
        negated_exp=_NEGATED_EXP,
        rows=_MIXER_ROWS,
    ),
    "granitehybrid": GgufNames(
        {**LLAMA, **GRANITE_EXPERTS, **_mixer("mamba")},
        TOP,
        negated_exp=_NEGATED_EXP,
        rows=_MIXER_ROWS,
        otherwise={
            "shared_mlp.gate_proj": "ffn_gate",
            "shared_mlp.up_proj": "ffn_up",
            "shared_mlp.down_proj": "ffn_down",
        },
    ),
    "jamba": GgufNames(
        {
            **ATTENTION,
            "input_layernorm": "attn_norm",
            "pre_ff_layernorm": "ffn_norm",
            "mamba.in_proj": "ssm_in",
            "mamba.conv1d": "ssm_conv1d",
            "mamba.x_proj": "ssm_x",
            "mamba.dt_proj": "ssm_dt",
            "mamba.dt_layernorm": "ssm_dt_norm",
            "mamba.b_layernorm": "ssm_b_norm",
            "mamba.c_layernorm": "ssm_c_norm",
            "mamba.A_log": "ssm_a",
            "mamba.D": "ssm_d",
            "mamba.out_proj": "ssm_out",
            "feed_forward.gate_proj": "ffn_gate",
            "feed_forward.up_proj": "ffn_up",
            "feed_forward.down_proj": "ffn_down",
            "feed_forward.router": "ffn_gate_inp",
            "feed_forward.experts.gate_proj": "ffn_gate_exps",
            "feed_forward.experts.up_proj": "ffn_up_exps",
            "feed_forward.experts.down_proj": "ffn_down_exps",
        },
        {**TOP, "model.final_layernorm": "output_norm"},
        negated_exp=_NEGATED_EXP,
    ),
    "kimi-linear": GgufNames(
        {
            **NORMS,
            **ATTENTION,
            **LATENT,
            **MLP,
            **MIXTRAL_EXPERTS,
            "block_sparse_moe.gate.e_score_correction_bias": "exp_probs_b.bias",
            "block_sparse_moe.shared_experts.gate_proj": "ffn_gate_shexp",
            "block_sparse_moe.shared_experts.up_proj": "ffn_up_shexp",
            "block_sparse_moe.shared_experts.down_proj": "ffn_down_shexp",
            "self_attn.q_conv1d": "ssm_conv1d_q",
            "self_attn.k_conv1d": "ssm_conv1d_k",
            "self_attn.v_conv1d": "ssm_conv1d_v",
            "self_attn.f_a_proj": "ssm_f_a",
            "self_attn.f_b_proj": "ssm_f_b",
            "self_attn.g_a_proj": "ssm_g_a",
            "self_attn.g_b_proj": "ssm_g_b",
            "self_attn.b_proj": "ssm_beta",
            "self_attn.dt_bias": "ssm_dt.bias",
            "self_attn.A_log": "ssm_a",
            "self_attn.o_norm": "ssm_norm",
        },
        TOP,
        negated_exp=_NEGATED_EXP,
        rows=LATENT_ROWS,
    ),
    "lfm2": GgufNames(_LFM2, _LFM2_TOP),
    "lfm2moe": GgufNames(_LFM2 | _LFM2_EXPERTS, _LFM2_TOP),
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
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": _NEMOTRON_H,
    "plamo2": GgufNames(
        {
            # Some have no kind in files.
            "post_mixer_norm.weight": "post_attention_norm",
            "post_mlp_norm.weight": "post_ffw_norm",
            "mixer.B_norm_weight": "ssm_b_norm",
            "mixer.C_norm_weight": "ssm_c_norm",
            "mixer.dt_norm_weight": "ssm_dt_norm",
            "mixer.q_weight": "attn_q_norm.weight",
            "mixer.k_weight": "attn_k_norm.weight",
            "mixer.dt_bias": "ssm_dt.bias",
            "mixer.A_log": "ssm_a",
            "mixer.D": "ssm_d",
            "pre_mixer_norm": "attn_norm",
            "mixer.qkv_proj": "attn_qkv",
            "mixer.o_proj": "attn_output",
            "mixer.in_proj": "ssm_in",
            "mixer.conv1d": "ssm_conv1d",
            "mixer.bcdt_proj": "ssm_x",
            "mixer.dt_proj": "ssm_dt",
            "mixer.out_proj": "ssm_out",
            "pre_mlp_norm": "ffn_norm",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        },
        TOP,
        "model.layers.layers",
        negated_exp=_NEGATED_EXP,
    ),
    "qwen35": _QWEN3_5,
    "qwen35moe": _QWEN3_5,
    "qwen3next": GgufNames(
        {
            **LLAMA,
            **QK_NORMS,
            **EXPERTS,
            **GATED_EXPERT,
            **_DELTA,
            "post_attention_layernorm": "post_attention_norm",
            "linear_attn.in_proj_qkvz": "ssm_in",  # of files of earlier converters
            "linear_attn.in_proj_ba": "ssm_ba",
        },
        TOP,
        negated_exp=_NEGATED_EXP,
    ),
    "rwkv7": _RWKV7,
}
