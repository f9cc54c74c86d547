"""What the metadata of each GGUF architecture means in a `config.json`, a row each."""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.weights import gguf_computed as computed
from pagemill.weights.gguf_family import (
    APART,
    BALANCED,
    BIAS,
    EXPERT_SIZE,
    EXPERTS,
    GRANITE,
    INTERLEAVED,
    LAYER_NORM,
    ONE_OFF,
    SHARED_SIZE,
    GgufFamily,
)
from pagemill.weights.gguf_gemma3n import gemma3n
from pagemill.weights.gguf_gemma4 import gemma4
from pagemill.weights.gguf_recurrent import RECURRENT_FAMILIES

_IN_ORDER = {"qkv_by_head": False}
_CAPS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_ENCODER = {"layer_norm_eps": LAYER_NORM}
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
_GPT2 = {
    "n_embd": "embedding_length",
    "n_layer": "block_count",
    "n_head": "attention.head_count",
    "n_positions": "context_length",
    "n_inner": "feed_forward_length",
    "layer_norm_epsilon": LAYER_NORM,
}

GGUF_FAMILIES: Mapping[str, GgufFamily] = {
    **RECURRENT_FAMILIES,
    "afmoe": GgufFamily(
        ("AfmoeForCausalLM",),
        {
            **EXPERTS,
            **EXPERT_SIZE,
            "num_shared_experts": "expert_shared_count",
            "num_dense_layers": "leading_dense_block_count",
            "route_scale": "expert_weights_scale",
            "route_norm": "expert_weights_norm",
        },
        BIAS,
        {"mup_enabled": True},
    ),
    "apertus": GgufFamily(("ApertusForCausalLM",), flags=BIAS, more=computed.apertus),
    "arcee": GgufFamily(
        ("ArceeForCausalLM",),
        flags={**BIAS, "mlp_bias": "ffn_up.bias"},
        fixed={**INTERLEAVED, "hidden_act": "relu2"},
    ),
    "bailingmoe": GgufFamily(
        # Its fused matrix is divided, and a head of normalized rows has them.
        ("DeepseekForCausalLM", "BailingMoeForCausalLM"),
        BALANCED,
        fixed=INTERLEAVED,
    ),
    "bailingmoe2": GgufFamily(
        ("BailingMoeV2ForCausalLM",),
        {**BALANCED, "num_shared_experts": "expert_shared_count"},
        {"use_qk_norm": "attn_q_norm.weight", "use_qkv_bias": "attn_qkv.bias"},
        more=computed.without_further_layers,
    ),
    "bert": GgufFamily(("BertModel",), _ENCODER, more=computed.encoder),
    "bitnet": GgufFamily(
        ("BitNetForCausalLM",), {"hidden_act": "hidden_activation"}, BIAS, more=computed.bitnet
    ),
    "bloom": GgufFamily(("BloomForCausalLM",), {"layer_norm_epsilon": LAYER_NORM}, fixed=_IN_ORDER),
    "chatglm": GgufFamily(
        ("ChatGLMModel", "ChatGLMForConditionalGeneration"),
        {
            "num_layers": "block_count",
            "ffn_hidden_size": "feed_forward_length",
            "multi_query_group_num": "attention.head_count_kv",
            "seq_length": "context_length",
            "layernorm_epsilon": "attention.layer_norm_rms_epsilon",
        },
        {"add_qkv_bias": "attn_qkv.bias"},
        more=computed.chatglm,
    ),
    "cohere2": GgufFamily(
        ("Cohere2ForCausalLM",), {"layer_norm_eps": LAYER_NORM, "logit_scale": "logit_scale"}
    ),
    "command-r": GgufFamily(
        ("CohereForCausalLM",),
        {"layer_norm_eps": LAYER_NORM, "logit_scale": "logit_scale"},
        {**BIAS, "use_qk_norm": "attn_q_norm.weight"},
    ),
    "dbrx": GgufFamily(
        ("DbrxForCausalLM",),
        {
            "d_model": "embedding_length",
            "n_layers": "block_count",
            "n_heads": "attention.head_count",
            "max_seq_len": "context_length",
        },
        fixed={"weights_transposed": False},
        more=computed.dbrx,
    ),
    "deci": GgufFamily(
        ("DeciLMForCausalLM",),
        flags={**BIAS, "mlp_bias": "ffn_up.bias"},
        fixed={**INTERLEAVED, "hidden_act": "silu"},
        more=computed.nemotron_nas,
        attention=False,
    ),
    "deepseek": GgufFamily(("DeepseekForCausalLM",), BALANCED, BIAS, INTERLEAVED),
    "deepseek2": GgufFamily(
        ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM"),
        {**BALANCED, "kv_lora_rank": "attention.kv_lora_rank"},
        more=computed.deepseek2,
    ),
    "dots1": GgufFamily(("Dots1ForCausalLM",), BALANCED, BIAS),
    "ernie4_5": GgufFamily(("Ernie4_5ForCausalLM",), flags={"use_bias": "attn_q.bias"}),
    "ernie4_5-moe": GgufFamily(
        ("Ernie4_5_MoeForCausalLM",),
        {
            **EXPERT_SIZE,
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
        {**BALANCED, "num_shared_experts": "expert_shared_count"},
        BIAS,
        more=computed.exaone_moe,
    ),
    "exaone4": GgufFamily(("Exaone4ForCausalLM",)),
    "falcon": GgufFamily(
        ("FalconForCausalLM",),
        {
            "layer_norm_epsilon": LAYER_NORM,
            "num_kv_heads": "attention.head_count_kv",
            "ffn_hidden_size": "feed_forward_length",
        },
        {"bias": "attn_qkv.bias"},
        {**_IN_ORDER, "new_decoder_architecture": True},
        computed.falcon,
    ),
    "gemma": GgufFamily(("GemmaForCausalLM",), fixed=ONE_OFF),
    "gemma-embedding": GgufFamily(
        ("Gemma3TextModel", "Gemma3ForCausalLM"),
        fixed={**ONE_OFF, "use_bidirectional_attention": True},
        more=computed.gemma3,
    ),
    "gemma2": GgufFamily(("Gemma2ForCausalLM",), _CAPS, fixed=ONE_OFF, more=computed.gemma2),
    "gemma3": GgufFamily(("Gemma3ForCausalLM",), _CAPS, fixed=ONE_OFF, more=computed.gemma3),
    "gemma3n": GgufFamily(
        ("Gemma3nForCausalLM",),
        {
            "final_logit_softcapping": "final_logit_softcapping",
            "num_attention_heads": "attention.head_count",
            "num_key_value_heads": "attention.head_count_kv",
            "head_dim": "attention.key_length",
            "sliding_window": "attention.sliding_window",
            "num_kv_shared_layers": "attention.shared_kv_layers",
            "hidden_size_per_layer_input": "embedding_length_per_layer_input",
            "altup_active_idx": "altup.active_idx",
            "altup_num_inputs": "altup.num_inputs",
        },
        BIAS,
        more=gemma3n,
        attention=False,  # feed-forward layers of several sizes
    ),
    "gemma4": GgufFamily(
        ("Gemma4ForCausalLM",),
        {
            **_CAPS,
            **EXPERTS,
            **EXPERT_SIZE,
            "top_k_experts": "expert_used_count",
            "num_attention_heads": "attention.head_count",
            "num_kv_shared_layers": "attention.shared_kv_layers",
            "hidden_size_per_layer_input": "embedding_length_per_layer_input",
        },
        {**BIAS, "enable_moe_block": "ffn_gate_inp.weight"},
        more=gemma4,
        attention=False,  # sizes that layers do not share
    ),
    "glm-dsa": GgufFamily(
        ("GlmMoeDsaForCausalLM",),
        {
            **BALANCED,
            "kv_lora_rank": "attention.kv_lora_rank",
            "index_n_heads": "attention.indexer.head_count",
            "index_head_dim": "attention.indexer.key_length",
            "index_topk": "attention.indexer.top_k",
        },
        fixed={"indexer_rope_interleave": True},
        more=computed.glm_dsa,
    ),
    "glm4": GgufFamily(("Glm4ForCausalLM",), flags=BIAS),
    "glm4moe": GgufFamily(
        ("Glm4MoeForCausalLM",),
        BALANCED,
        {**BIAS, "use_qk_norm": "attn_q_norm.weight"},
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
        BIAS,
        APART,
        more=computed.gpt_oss,
    ),
    "gptneox": GgufFamily(
        ("GPTNeoXForCausalLM",),
        {"layer_norm_eps": LAYER_NORM, "use_parallel_residual": "use_parallel_residual"},
        {"attention_bias": "attn_qkv.bias"},
        _IN_ORDER,
    ),
    "granite": GgufFamily(
        ("GraniteForCausalLM",),
        GRANITE,
        {**BIAS, "mlp_bias": "ffn_up.bias"},
        INTERLEAVED,
    ),
    "granitemoe": GgufFamily(
        ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"),
        {
            **GRANITE,
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "shared_intermediate_size": "expert_shared_feed_forward_length",
        },
        BIAS,
        {**INTERLEAVED, **APART},
    ),
    "hunyuan-dense": GgufFamily(("HunYuanDenseV1ForCausalLM",), flags=BIAS),
    "hunyuan-moe": GgufFamily(
        ("HunYuanMoEV1ForCausalLM",),
        {
            "num_experts": "expert_count",
            "moe_topk": "expert_used_count",
        },
        BIAS,
    ),
    "internlm2": GgufFamily(
        # Its fused matrix is divided.
        ("LlamaForCausalLM", "InternLM2ForCausalLM"),
        flags=BIAS,
        fixed=INTERLEAVED,
    ),
    "jais": GgufFamily(
        ("JAISLMHeadModel",),
        {**_GPT2, "alibi_bias_max": "attention.max_alibi_bias"},
        # Scales are in the tables of tokens and of the head.
        fixed={
            "activation_function": "swiglu",
            "position_embedding_type": "alibi",
            "mup_scale_qk_dot_by_d": True,
            "weights_transposed": False,
        },
    ),
    "jais2": GgufFamily(
        ("Jais2ForCausalLM",),
        {"layer_norm_eps": LAYER_NORM},
        {**BIAS, "mlp_bias": "ffn_up.bias"},
        {"hidden_act": "relu2"},
    ),
    "jina-bert-v2": GgufFamily(
        ("JinaBertModel",),
        _ENCODER,
        fixed={"position_embedding_type": "alibi", "feed_forward_type": "geglu"},
        more=computed.encoder,
    ),
    "jina-bert-v3": GgufFamily(("JinaEmbeddingsV3Model",), _ENCODER, more=computed.encoder),
    "llama": GgufFamily(
        ("LlamaForCausalLM", "MixtralForCausalLM"),  # the second with experts
        flags={**BIAS, "mlp_bias": "ffn_up.bias"},
        fixed={**INTERLEAVED, "hidden_act": "silu"},
        more=computed.llama,
    ),
    "llama-embed": GgufFamily(("LlamaBidirectionalModel",), flags=BIAS, fixed=INTERLEAVED),
    "llama4": GgufFamily(
        ("Llama4ForCausalLM",),
        {
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "interleave_moe_layer_step": "interleave_moe_layer_step",
            "intermediate_size": "expert_feed_forward_length",
            "intermediate_size_mlp": "feed_forward_length",
        },
        BIAS,
        APART,
        computed.llama4,
    ),
    "minicpm": GgufFamily(
        # Its scales are stated as Granite's.
        ("GraniteForCausalLM", "MiniCPMForCausalLM"),
        GRANITE,
        fixed=INTERLEAVED,
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
        ("Ministral3ForCausalLM",), flags=BIAS, fixed=INTERLEAVED, more=computed.mistral3
    ),
    "modern-bert": GgufFamily(
        ("ModernBertModel",),
        {
            "norm_eps": LAYER_NORM,
            "local_attention": "attention.sliding_window",
            "hidden_activation": "hidden_activation",
        },
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
            "layer_norm_epsilon": LAYER_NORM,
        },
        more=computed.mpt,
    ),
    "nemotron": GgufFamily(
        ("NemotronForCausalLM",),
        {"norm_eps": LAYER_NORM},
        {**BIAS, "mlp_bias": "ffn_up.bias"},
        {**ONE_OFF, "hidden_act": "relu2"},
    ),
    "nomic-bert": GgufFamily(
        ("NomicBertModel",), _ENCODER, fixed={"hidden_act": "silu"}, more=computed.encoder
    ),
    "nomic-bert-moe": GgufFamily(
        ("NomicBertModel",),
        {
            **_ENCODER,
            "num_experts": "expert_count",
            "moe_top_k": "expert_used_count",
            "moe_every_n_layers": "moe_every_n_layers",
        },
        {
            "qkv_proj_bias": "attn_qkv.bias",
            "mlp_fc1_bias": "ffn_up.bias",
            "mlp_fc2_bias": "ffn_down.bias",
        },
        {"activation_function": "gelu", "hidden_act": "gelu", "weights_transposed": False},
        more=computed.encoder,
    ),
    "olmo": GgufFamily(
        ("OlmoForCausalLM",),
        {"clip_qkv": "attention.clamp_kqv"},
        BIAS,
        INTERLEAVED,
    ),
    "olmo2": GgufFamily(("Olmo2ForCausalLM", "Olmo3ForCausalLM"), flags=BIAS, more=computed.olmo2),
    "olmoe": GgufFamily(("OlmoeForCausalLM",), {**EXPERTS, "clip_qkv": "attention.clamp_kqv"}),
    "orion": GgufFamily(("OrionForCausalLM",), {"rms_norm_eps": LAYER_NORM}),
    "pangu-embedded": GgufFamily(("PanguEmbeddedForCausalLM",), flags={"bias": "attn_q.bias"}),
    "phi2": GgufFamily(("PhiForCausalLM",), {"layer_norm_eps": LAYER_NORM}),
    "phi3": GgufFamily(("Phi3ForCausalLM",)),
    "phimoe": GgufFamily(
        ("PhimoeForCausalLM",),
        {"num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"},
        BIAS,
        {"lm_head_bias": True},
    ),
    "plamo3": GgufFamily(("Plamo3ForCausalLM",), fixed=ONE_OFF, more=computed.plamo3),
    "qwen": GgufFamily(
        ("QWenLMHeadModel",),
        {
            "seq_length": "context_length",
            "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
        },
    ),
    "qwen2": GgufFamily(("Qwen2ForCausalLM",)),
    "qwen2moe": GgufFamily(
        ("Qwen2MoeForCausalLM",),
        {**EXPERTS, **EXPERT_SIZE, **SHARED_SIZE},
        {"qkv_bias": "attn_q.bias"},
        more=computed.dense_layers,
    ),
    "qwen3": GgufFamily(("Qwen3ForCausalLM",), flags=BIAS),
    "qwen3moe": GgufFamily(
        ("Qwen3MoeForCausalLM",),
        {**EXPERTS, **EXPERT_SIZE},
        fixed={"norm_topk_prob": True},  # all models of the family do, and there is no key
        more=computed.dense_layers,
    ),
    "seed_oss": GgufFamily(
        ("SeedOssForCausalLM",),
        flags={
            **BIAS,
            "attention_out_bias": "attn_output.bias",
            "mlp_bias": "ffn_up.bias",
        },
    ),
    "smollm3": GgufFamily(("SmolLM3ForCausalLM",), flags=BIAS, fixed=INTERLEAVED),
    "stablelm": GgufFamily(
        ("StableLmForCausalLM",),
        {"layer_norm_eps": LAYER_NORM, "use_parallel_residual": "use_parallel_residual"},
        {"use_qkv_bias": "attn_q.bias", "qk_layernorm": "attn_q_norm.weight"},
    ),
    "starcoder": GgufFamily(("GPTBigCodeForCausalLM",), _GPT2),
    "starcoder2": GgufFamily(
        ("Starcoder2ForCausalLM",), {"norm_epsilon": LAYER_NORM}, {"use_bias": "attn_q.bias"}
    ),
    "t5": GgufFamily(
        (
            "T5ForConditionalGeneration",
            "MT5ForConditionalGeneration",
            "UMT5ForConditionalGeneration",
        ),
        {
            **_T5,
            "num_decoder_layers": "decoder_block_count",
            "decoder_start_token_id": "decoder_start_token_id",
        },
        more=computed.t5,
    ),
    "t5encoder": GgufFamily(
        ("T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel"), _T5, more=computed.t5_encoder
    ),
    "xverse": GgufFamily(("LlamaForCausalLM", "XverseForCausalLM"), flags=BIAS, fixed=INTERLEAVED),
}
"""By the name of the architecture in a file."""
