"""The tiny models of text among those of tiny_models.py, with the weights of `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import (
    BertConfig,
    BertModel,
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SLIDING_WINDOW = 7  # tokens; far below the prompts of the tests


def llama(**changes: Any) -> PreTrainedModel:
    """`changes` are fields of its configuration."""
    sizes = {
        "vocab_size": 257,
        "hidden_size": 96,
        "intermediate_size": 136,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
    }
    return LlamaForCausalLM(LlamaConfig(**(sizes | changes), attn_implementation="eager"))


def _tied_llama() -> PreTrainedModel:
    return llama(tie_word_embeddings=True, rms_norm_eps=1e-5)


def _llama3() -> PreTrainedModel:
    """Llama 3's rotary scaling, untied head, biases."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=193,
            hidden_size=64,
            intermediate_size=88,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=24,
            attention_bias=True,
            mlp_bias=True,
            max_position_embeddings=4096,
            rope_parameters=rope,
            attn_implementation="eager",
        )
    )


def _qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=331,
            hidden_size=80,
            intermediate_size=120,
            num_hidden_layers=3,
            num_attention_heads=5,
            num_key_value_heads=1,
            max_position_embeddings=4096,
            tie_word_embeddings=False,
            attn_implementation="eager",
        )
    )


def _qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=313,
            hidden_size=72,
            intermediate_size=112,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            attn_implementation="eager",
        )
    )


def _qwen3_moe() -> PreTrainedModel:
    """Layers 0 and 2 are dense: one is listed, the other is between sparse ones."""
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=307,
            hidden_size=96,
            intermediate_size=104,
            moe_intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=24,
            num_experts=13,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[0, 2],
            max_position_embeddings=4096,
            attn_implementation="eager",
        )
    )


def _mixtral() -> PreTrainedModel:
    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=259,
            hidden_size=64,
            intermediate_size=88,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_local_experts=5,
            num_experts_per_tok=2,
            max_position_embeddings=4096,
            attn_implementation="eager",
        )
    )


def _deepseek_v2() -> PreTrainedModel:
    """As V2: queries from their own latent, experts in groups, YaRN; with biases."""
    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 40.0,
        "mscale": 0.9,
        "mscale_all_dim": 0.7,
        "original_max_position_embeddings": 32,
    }
    return DeepseekV2ForCausalLM(
        DeepseekV2Config(
            vocab_size=269,
            hidden_size=80,
            intermediate_size=104,
            moe_intermediate_size=24,
            num_hidden_layers=3,
            first_k_dense_replace=1,
            num_attention_heads=5,
            q_lora_rank=48,
            kv_lora_rank=40,
            qk_nope_head_dim=14,
            qk_rope_head_dim=10,
            v_head_dim=22,
            n_routed_experts=12,
            n_group=4,
            topk_group=2,
            topk_method="group_limited_greedy",
            num_experts_per_tok=3,
            n_shared_experts=2,
            routed_scaling_factor=2.5,
            attention_bias=True,
            mlp_bias=True,
            max_position_embeddings=1280,
            rope_parameters=rope,
            attn_implementation="eager",
        )
    )


def _deepseek_v2_lite() -> PreTrainedModel:
    """As V2-Lite: queries from the hidden state; and a tied head."""
    return DeepseekV2ForCausalLM(
        DeepseekV2Config(
            vocab_size=271,
            hidden_size=64,
            intermediate_size=96,
            moe_intermediate_size=32,
            num_hidden_layers=3,
            first_k_dense_replace=1,
            num_attention_heads=4,
            q_lora_rank=None,
            kv_lora_rank=64,
            qk_nope_head_dim=32,
            qk_rope_head_dim=16,
            v_head_dim=32,
            n_routed_experts=7,
            topk_method="greedy",
            num_experts_per_tok=2,
            n_shared_experts=1,
            tie_word_embeddings=True,
            max_position_embeddings=4096,
            attn_implementation="eager",
        )
    )


def _gemma3() -> PreTrainedModel:
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=263,
            hidden_size=72,
            intermediate_size=104,
            num_hidden_layers=7,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=32,
            query_pre_attn_scalar=48,
            sliding_window=SLIDING_WINDOW,
            max_position_embeddings=4096,
            rope_parameters=rope,
            attn_implementation="eager",
        )
    )


def _mamba2() -> PreTrainedModel:
    return Mamba2ForCausalLM(
        Mamba2Config(
            vocab_size=241,
            hidden_size=48,
            num_heads=6,
            head_dim=16,
            n_groups=2,
            state_size=20,
            conv_kernel=4,
            expand=2,
            num_hidden_layers=3,
            chunk_size=8,
            use_bias=True,
        )
    )


def _granite_hybrid(**changes: Any) -> PreTrainedModel:
    """Attention without positions between state-space layers."""
    sizes = {
        "vocab_size": 233,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "intermediate_size": 64,
        "shared_intermediate_size": 88,
        "num_local_experts": 0,
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 24,
        "mamba_chunk_size": 8,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.3,
        "residual_multiplier": 0.6,
        "logits_scaling": 0.7,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }
    config = GraniteMoeHybridConfig(**(sizes | changes), attn_implementation="eager")
    return GraniteMoeHybridForCausalLM(config)


def _granite_experts() -> PreTrainedModel:
    """With experts and rotary positions."""
    return _granite_hybrid(
        num_local_experts=5, num_experts_per_tok=2, position_embedding_type="rope"
    )


def _bert() -> PreTrainedModel:
    return BertModel(
        BertConfig(
            vocab_size=211,
            hidden_size=60,
            intermediate_size=100,
            num_hidden_layers=3,
            num_attention_heads=5,
            max_position_embeddings=160,
            attn_implementation="eager",
        ),
        add_pooling_layer=False,
    )


MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": _bert,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v2_lite": _deepseek_v2_lite,
    "gemma3": _gemma3,
    "granite_experts": _granite_experts,
    "granite_hybrid": _granite_hybrid,
    "llama": _tied_llama,
    "llama3": _llama3,
    "mamba2": _mamba2,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
DECODERS = tuple(name for name in MAKERS if name != "bert")
