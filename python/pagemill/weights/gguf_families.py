"""What the metadata of each GGUF architecture means in a `config.json`, a row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pagemill.weights import gguf_computed as computed
from pagemill.weights.gguf_gemma4 import gemma4
from pagemill.weights.gguf_reader import GgufReader

Config = dict[str, Any]

_LAYER_NORM = "attention.layer_norm_epsilon"


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """A row: the names in a config.json, of which the first is taken unless `more` says otherwise.

    `keys` are copied from these keys of the metadata if they are there; `flags` are true if some
    layer has the tensor; `fixed` is what all files of the architecture have and do not state;
    `more` computes what is left. Without `attention`, no layer has one.
    """

    architectures: tuple[str, ...]
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    more: Callable[[GgufReader, Config], Config] | None = None
    attention: bool = True


_BIAS = {"attention_bias": "attn_q.bias"}
_INTERLEAVED = {"rope_interleaved": True}  # rows of q and k are permuted
_ONE_OFF = {"norm_weight_offset": 0.0}  # it is in the weights
_APART = {"gate_and_up_fused": False}
_IN_ORDER = {"qkv_by_head": False}
_CAPS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_ENCODER = {"layer_norm_eps": _LAYER_NORM}
_T5 = {
    "d_model": "embedding_length",
    "d_ff": "feed_forward_length",
    "d_kv": "attention.key_length",
    "num_layers": "block_count",
    "num_heads": "attention.head_count",
    "n_positions": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
    "relative_attention_num_buckets": "attention.relative_buckets_count",
}
_EXPERTS = {"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
_EXPERT_SIZE = {"moe_intermediate_size": "expert_feed_forward_length"}
_SHARED_SIZE = {"shared_expert_intermediate_size": "expert_shared_feed_forward_length"}
_DELTA = {
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "linear_key_head_dim": "ssm.state_size",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
}
_IN_TURN = {"linear_heads_in_turn": True}
_GRANITE = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}
_BALANCED = {
    **_EXPERTS,
    **_EXPERT_SIZE,
    "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
    "first_k_dense_replace": "leading_dense_block_count",
}
_GPT2 = {
    "n_embd": "embedding_length",
    "n_layer": "block_count",
    "n_head": "attention.head_count",
    "n_positions": "context_length",
    "n_inner": "feed_forward_length",
    "layer_norm_epsilon": _LAYER_NORM,
}


_NEMOTRON_H = GgufFamily(
    ("NemotronHForCausalLM",),
    {
        **_BALANCED,
        "n_groups": "ssm.group_count",
        "ssm_state_size": "ssm.state_size",
        "conv_kernel": "ssm.conv_kernel",
        "moe_shared_expert_intermediate_size": "expert_shared_feed_forward_length",
        "moe_latent_size": "moe_latent_size",
    },
    {
        **_BIAS,
        "use_bias": "ssm_in.bias",
        "use_conv_bias": "ssm_conv1d.bias",
        "mlp_bias": "ffn_up.bias",
    },
    more=computed.nemotron_h,
)

GGUF_FAMILIES: Mapping[str, GgufFamily] = {
    "afmoe": GgufFamily(
        ("AfmoeForCausalLM",),
        {
            **_EXPERTS,
            **_EXPERT_SIZE,
            "num_shared_experts": "expert_shared_count",
            "num_dense_layers": "leading_dense_block_count",
            "route_scale": "expert_weights_scale",
            "route_norm": "expert_weights_norm",
        },
        _BIAS,
        {"mup_enabled": True},
    ),
    "apertus": GgufFamily(("ApertusForCausalLM",), flags=_BIAS, more=computed.apertus),
    "arcee": GgufFamily(
        ("ArceeForCausalLM",),
        flags={**_BIAS, "mlp_bias": "ffn_up.bias"},
        fixed={**_INTERLEAVED, "hidden_act": "relu2"},
    ),
    "bailingmoe2": GgufFamily(
        ("BailingMoeV2ForCausalLM",),
        {**_BALANCED, "num_shared_experts": "expert_shared_count"},
        {"use_qk_norm": "attn_q_norm.weight", "use_qkv_bias": "attn_qkv.bias"},
        more=computed.without_further_layers,
    ),
    "bert": GgufFamily(("BertModel",), _ENCODER, more=computed.encoder),
    "bloom": GgufFamily(
        ("BloomForCausalLM",), {"layer_norm_epsilon": _LAYER_NORM}, fixed=_IN_ORDER
    ),
    "cohere2": GgufFamily(
        ("Cohere2ForCausalLM",), {"layer_norm_eps": _LAYER_NORM, "logit_scale": "logit_scale"}
    ),
    "command-r": GgufFamily(
        ("CohereForCausalLM",),
        {"layer_norm_eps": _LAYER_NORM, "logit_scale": "logit_scale"},
        {**_BIAS, "use_qk_norm": "attn_q_norm.weight"},
    ),
    "deci": GgufFamily(
        ("DeciLMForCausalLM",),
        flags={**_BIAS, "mlp_bias": "ffn_up.bias"},
        fixed={**_INTERLEAVED, "hidden_act": "silu"},
        more=computed.nemotron_nas,
        attention=False,
    ),
    "deepseek": GgufFamily(("DeepseekForCausalLM",), _BALANCED, _BIAS, _INTERLEAVED),
    "deepseek2": GgufFamily(
        ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM"),
        {**_BALANCED, "kv_lora_rank": "attention.kv_lora_rank"},
        more=computed.deepseek2,
    ),
    "dots1": GgufFamily(("Dots1ForCausalLM",), _BALANCED, _BIAS),
    "ernie4_5": GgufFamily(("Ernie4_5ForCausalLM",), flags={"use_bias": "attn_q.bias"}),
    "ernie4_5-moe": GgufFamily(
        ("Ernie4_5_MoeForCausalLM",),
        {
            **_EXPERT_SIZE,
            "moe_num_experts": "expert_count",
            "moe_k": "expert_used_count",
            "moe_num_shared_experts": "expert_shared_count",
            "moe_layer_interval": "interleave_moe_layer_step",
            "moe_layer_start_index": "leading_dense_block_count",
        },
        {"use_bias": "attn_q.bias"},
    ),
    "eurobert": GgufFamily(("EuroBertModel",), fixed={"hidden_act": "silu"}),
    "exaone": GgufFamily(
        ("ExaoneForCausalLM",),
        {
            "num_layers": "block_count",
            "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
        },
    ),
    "exaone-moe": GgufFamily(
        ("ExaoneMoeForCausalLM",),
        {**_BALANCED, "num_shared_experts": "expert_shared_count"},
        _BIAS,
        more=computed.exaone_moe,
    ),
    "exaone4": GgufFamily(("Exaone4ForCausalLM",)),
    "falcon": GgufFamily(
        ("FalconForCausalLM",),
        {
            "layer_norm_epsilon": _LAYER_NORM,
            "num_kv_heads": "attention.head_count_kv",
            "ffn_hidden_size": "feed_forward_length",
        },
        {"bias": "attn_qkv.bias"},
        {**_IN_ORDER, "new_decoder_architecture": True},
        computed.falcon,
    ),
    "gemma": GgufFamily(("GemmaForCausalLM",), fixed=_ONE_OFF),
    "gemma-embedding": GgufFamily(
        ("Gemma3TextModel", "Gemma3ForCausalLM"),
        fixed={**_ONE_OFF, "use_bidirectional_attention": True},
        more=computed.gemma3,
    ),
    "gemma2": GgufFamily(("Gemma2ForCausalLM",), _CAPS, fixed=_ONE_OFF, more=computed.gemma2),
    "gemma3": GgufFamily(("Gemma3ForCausalLM",), _CAPS, fixed=_ONE_OFF, more=computed.gemma3),
    "gemma4": GgufFamily(
        ("Gemma4ForCausalLM",),
        {
            **_CAPS,
            **_EXPERTS,
            **_EXPERT_SIZE,
            "top_k_experts": "expert_used_count",
            "num_attention_heads": "attention.head_count",
            "num_kv_shared_layers": "attention.shared_kv_layers",
            "hidden_size_per_layer_input": "embedding_length_per_layer_input",
        },
        {**_BIAS, "enable_moe_block": "ffn_gate_inp.weight"},
        more=gemma4,
        attention=False,  # sizes that layers do not share
    ),
    "glm4": GgufFamily(("Glm4ForCausalLM",), flags=_BIAS),
    "glm4moe": GgufFamily(
        ("Glm4MoeForCausalLM",),
        _BALANCED,
        {**_BIAS, "use_qk_norm": "attn_q_norm.weight"},
        more=computed.without_further_layers,
    ),
    "gpt2": GgufFamily(("GPT2LMHeadModel",), _GPT2, fixed={"weights_transposed": False}),
    "gpt-oss": GgufFamily(
        ("GptOssForCausalLM",),
        {
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "intermediate_size": "expert_feed_forward_length",
        },
        _BIAS,
        _APART,
        more=computed.gpt_oss,
    ),
    "gptneox": GgufFamily(
        ("GPTNeoXForCausalLM",),
        {"layer_norm_eps": _LAYER_NORM, "use_parallel_residual": "use_parallel_residual"},
        {"attention_bias": "attn_qkv.bias"},
        _IN_ORDER,
    ),
    "falcon-h1": GgufFamily(
        ("FalconH1ForCausalLM",),
        # All multipliers are in the weights.
        flags={
            **_BIAS,
            "mamba_proj_bias": "ssm_in.bias",
            "projectors_bias": "ssm_out.bias",
            "mamba_conv_bias": "ssm_conv1d.bias",
            "mlp_bias": "ffn_up.bias",
            "mamba_rms_norm": "ssm_norm.weight",
        },
        fixed={"mamba_norm_before_gate": False},
        more=computed.falcon_h1,
    ),
    "granite": GgufFamily(
        ("GraniteForCausalLM",),
        _GRANITE,
        {**_BIAS, "mlp_bias": "ffn_up.bias"},
        _INTERLEAVED,
    ),
    "granitehybrid": GgufFamily(
        ("GraniteMoeHybridForCausalLM",),
        _GRANITE,
        {
            **_BIAS,
            "mamba_proj_bias": "ssm_in.bias",
            "mamba_conv_bias": "ssm_conv1d.bias",
        },
        {**_INTERLEAVED, **_APART},
        computed.granite_hybrid,
    ),
    "granitemoe": GgufFamily(
        ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"),
        {
            **_GRANITE,
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "shared_intermediate_size": "expert_shared_feed_forward_length",
        },
        _BIAS,
        {**_INTERLEAVED, **_APART},
    ),
    "hunyuan-dense": GgufFamily(("HunYuanDenseV1ForCausalLM",), flags=_BIAS),
    "hunyuan-moe": GgufFamily(
        ("HunYuanMoEV1ForCausalLM",),
        {
            "num_experts": "expert_count",
            "moe_topk": "expert_used_count",
        },
        _BIAS,
    ),
    "internlm2": GgufFamily(
        # Its fused matrix is divided.
        ("LlamaForCausalLM", "InternLM2ForCausalLM"),
        flags=_BIAS,
        fixed=_INTERLEAVED,
    ),
    "jina-bert-v3": GgufFamily(("JinaEmbeddingsV3Model",), _ENCODER, more=computed.encoder),
    "lfm2": GgufFamily(
        ("Lfm2ForCausalLM",),
        {"conv_L_cache": "shortconv.l_cache", "norm_eps": "attention.layer_norm_rms_epsilon"},
        {"conv_bias": "shortconv.in_proj.bias"},
        {"block_auto_adjust_ff_dim": False},
        computed.layer_kinds,
    ),
    "lfm2moe": GgufFamily(
        ("Lfm2MoeForCausalLM",),
        {
            **_EXPERTS,
            **_EXPERT_SIZE,
            "conv_L_cache": "shortconv.l_cache",
            "norm_eps": "attention.layer_norm_rms_epsilon",
            "num_dense_layers": "leading_dense_block_count",
            "routed_scaling_factor": "expert_weights_scale",
        },
        {"conv_bias": "shortconv.in_proj.bias", "use_expert_bias": "exp_probs_b.bias"},
        more=computed.layer_kinds,
    ),
    "llama": GgufFamily(
        ("LlamaForCausalLM", "MixtralForCausalLM"),  # the second with experts
        flags={**_BIAS, "mlp_bias": "ffn_up.bias"},
        fixed={**_INTERLEAVED, "hidden_act": "silu"},
        more=computed.llama,
    ),
    "llama-embed": GgufFamily(("LlamaBidirectionalModel",), flags=_BIAS, fixed=_INTERLEAVED),
    "mamba": GgufFamily(
        ("MambaForCausalLM", "FalconMambaForCausalLM"),
        {
            "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
            "intermediate_size": "ssm.inner_size",
            "state_size": "ssm.state_size",
            "conv_kernel": "ssm.conv_kernel",
            "time_step_rank": "ssm.time_step_rank",
        },
        {"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"},
        more=computed.mamba,
        attention=False,
    ),
    "mamba2": GgufFamily(
        ("Mamba2ForCausalLM",),
        {
            "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
            "n_groups": "ssm.group_count",
            "state_size": "ssm.state_size",
            "conv_kernel": "ssm.conv_kernel",
        },
        {"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"},
        more=computed.mamba2,
        attention=False,
    ),
    "minicpm": GgufFamily(
        # Its scales are stated as Granite's.
        ("GraniteForCausalLM", "MiniCPMForCausalLM"),
        _GRANITE,
        fixed=_INTERLEAVED,
        more=computed.score_scale,
    ),
    "minicpm3": GgufFamily(
        ("MiniCPM3ForCausalLM",),
        {"q_lora_rank": "attention.q_lora_rank", "kv_lora_rank": "attention.kv_lora_rank"},
        # There are no keys for its scales.
        fixed={"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256},
        more=computed.minicpm3,
    ),
    "minimax-m2": GgufFamily(
        ("MiniMaxM2ForCausalLM",),
        {
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
        },
    ),
    "mistral3": GgufFamily(
        ("Ministral3ForCausalLM",), flags=_BIAS, fixed=_INTERLEAVED, more=computed.mistral3
    ),
    "modern-bert": GgufFamily(
        ("ModernBertModel",),
        {"norm_eps": _LAYER_NORM, "local_attention": "attention.sliding_window"},
        {
            "attention_bias": "attn_qkv.bias",
            "mlp_bias": "ffn_up.bias",
            "norm_bias": "ffn_norm.bias",
        },
        more=computed.modern_bert,
    ),
    "mpt": GgufFamily(
        ("MptForCausalLM",),
        {
            "d_model": "embedding_length",
            "n_layers": "block_count",
            "n_heads": "attention.head_count",
            "max_seq_len": "context_length",
            "layer_norm_epsilon": _LAYER_NORM,
        },
        more=computed.mpt,
    ),
    "nemotron": GgufFamily(
        ("NemotronForCausalLM",),
        {"norm_eps": _LAYER_NORM},
        {**_BIAS, "mlp_bias": "ffn_up.bias"},
        {**_ONE_OFF, "hidden_act": "relu2"},
    ),
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": _NEMOTRON_H,
    "nomic-bert": GgufFamily(
        ("NomicBertModel",), _ENCODER, fixed={"hidden_act": "silu"}, more=computed.encoder
    ),
    "olmo": GgufFamily(
        ("OlmoForCausalLM",),
        {"clip_qkv": "attention.clamp_kqv"},
        _BIAS,
        _INTERLEAVED,
    ),
    "olmo2": GgufFamily(("Olmo2ForCausalLM", "Olmo3ForCausalLM"), flags=_BIAS, more=computed.olmo2),
    "olmoe": GgufFamily(("OlmoeForCausalLM",), {**_EXPERTS, "clip_qkv": "attention.clamp_kqv"}),
    "pangu-embedded": GgufFamily(("PanguEmbeddedForCausalLM",), flags={"bias": "attn_q.bias"}),
    "phi2": GgufFamily(("PhiForCausalLM",), {"layer_norm_eps": _LAYER_NORM}),
    "phi3": GgufFamily(("Phi3ForCausalLM",)),
    "qwen2": GgufFamily(("Qwen2ForCausalLM",)),
    "qwen2moe": GgufFamily(
        ("Qwen2MoeForCausalLM",),
        {**_EXPERTS, **_EXPERT_SIZE, **_SHARED_SIZE},
        {"qkv_bias": "attn_q.bias"},
        more=computed.dense_layers,
    ),
    "qwen3": GgufFamily(("Qwen3ForCausalLM",), flags=_BIAS),
    "qwen3moe": GgufFamily(
        ("Qwen3MoeForCausalLM",),
        {**_EXPERTS, **_EXPERT_SIZE},
        fixed={"norm_topk_prob": True},  # all models of the family do, and there is no key
        more=computed.dense_layers,
    ),
    "qwen35": GgufFamily(
        ("Qwen3_5ForCausalLM",), _DELTA, _BIAS, {**_ONE_OFF, **_IN_TURN}, computed.qwen3_5
    ),
    "qwen35moe": GgufFamily(
        ("Qwen3_5MoeForCausalLM",),
        {**_EXPERTS, **_EXPERT_SIZE, **_SHARED_SIZE, **_DELTA},
        _BIAS,
        {**_ONE_OFF, **_IN_TURN},
        computed.qwen3_5,
    ),
    "qwen3next": GgufFamily(
        ("Qwen3NextForCausalLM",),
        {**_EXPERTS, **_EXPERT_SIZE, **_SHARED_SIZE, **_DELTA},
        _BIAS,
        _ONE_OFF,
        computed.qwen3_next,
    ),
    "seed_oss": GgufFamily(
        ("SeedOssForCausalLM",),
        flags={
            **_BIAS,
            "attention_out_bias": "attn_output.bias",
            "mlp_bias": "ffn_up.bias",
        },
    ),
    "smollm3": GgufFamily(("SmolLM3ForCausalLM",), flags=_BIAS, fixed=_INTERLEAVED),
    "stablelm": GgufFamily(
        ("StableLmForCausalLM",),
        {"layer_norm_eps": _LAYER_NORM, "use_parallel_residual": "use_parallel_residual"},
        {"use_qkv_bias": "attn_q.bias", "qk_layernorm": "attn_q_norm.weight"},
    ),
    "starcoder": GgufFamily(("GPTBigCodeForCausalLM",), _GPT2),
    "starcoder2": GgufFamily(
        ("Starcoder2ForCausalLM",), {"norm_epsilon": _LAYER_NORM}, {"use_bias": "attn_q.bias"}
    ),
    "t5encoder": GgufFamily(
        ("T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel"), _T5, more=computed.t5_encoder
    ),
}
"""By the name of the architecture in a file."""
