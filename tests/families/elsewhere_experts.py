"""Families with experts that `transformers` does not have, or older names of those that it has, as
in `elsewhere.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from tests.families.elsewhere import Elsewhere, Tensors, join_qkv

EXAONE_MOE_FIRST = Elsewhere("ExaoneMoEForCausalLM")
PHIMOE = Elsewhere("PhiMoEForCausalLM")
LLAMA4 = Elsewhere(
    "Llama4ForConditionalGeneration", names={"^": "language_model."}, nest="text_config"
)
# As its first checkpoint was published.
MIMO_V2 = Elsewhere(
    "MiMoV2FlashForCausalLM",
    keys={
        "layer_types": "of_transformers",
        "mlp_layer_types": "of_transformers",
        "rope_parameters": "of_transformers",
        "rms_norm_eps": "layernorm_epsilon",
    },
    fields={
        "hybrid_layer_pattern": [0, 1, 0, 1],
        "moe_layer_freq": [0, 1, 1, 0],
        "rope_theta": 1e6,
        "swa_rope_theta": 1e4,
        "partial_rotary_factor": 0.5,
        "swa_num_attention_heads": 8,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 20,
        "swa_v_head_dim": 14,
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
    },
)


UNUSED_ENCODERS = tuple(
    f"{name}.norm.weight" for name in ("vision_encoder", "audio_encoder", "audio_adapter")
)


def _add_encoders(tensors: Tensors, config: Mapping[str, Any]) -> None:
    """The checkpoint has tensors of encoders, too."""
    del config
    tensors.update({name: torch.ones(3) for name in UNUSED_ENCODERS})


DOTS3_NOTE = Elsewhere(
    "Dots3NoteForCausalLM",
    keys={
        "layer_types": "of_transformers",
        "mlp_layer_types": "of_transformers",
        "per_layer_config": "of_transformers",
        "rope_parameters": "of_transformers",
        "shared_experts_intermediate_size": "moe_shared_expert_intermediate_size",
        "sliding_window": "sliding_window_size",
    },
    fields={
        "model_type": "dots3_note",
        "layer_types": [f"{kind}_attention" for kind in ("full", "full", "sliding", "sliding")],
        "first_k_dense_replace": 1,
        "moe_layer_freq": [1, 1, 1, 0],
        "rope_theta": 1e6,
        "swa_rope_theta": 1e4,
        "swa_num_attention_heads": 4,
        "swa_q_lora_rank": 30,
        "swa_kv_lora_rank": 36,
        "swa_head_dim": 20,
        "swa_qk_nope_head_dim": 12,
        "swa_v_head_dim": 18,
    },
    join=_add_encoders,
)


def _split_stacks(tensors: Tensors, config: Mapping[str, Any]) -> None:
    """Stacks of experts become those of published files; a layer behind the last one is added."""
    del config
    for name in [key for key in tensors if key.endswith("experts.gate_up_proj")]:
        gate, up = (part.contiguous() for part in tensors.pop(name).chunk(2, 1))
        experts = name.removesuffix("gate_up_proj")
        tensors |= {f"{experts}gate_proj.weight": gate, f"{experts}up_proj.weight": up}
        tensors[f"{experts}down_proj.weight"] = tensors.pop(f"{experts}down_proj")
    tensors["model.layers.4.enorm.weight"] = torch.ones(3)


STEP3_ENCODER = ("vision_model.conv1", "vit_downsampler2", "vit_large_projector")


def _add_encoder(tensors: Tensors, config: Mapping[str, Any]) -> None:
    del config
    for name in STEP3_ENCODER:
        tensors[f"{name}.weight"] = torch.ones(3)


STEP3_WITH_IMAGES = Elsewhere(
    "Step3VLForConditionalGeneration",
    fields={"model_type": "step3_vl"},
    nest="text_config",
    join=_add_encoder,
)
# As its first checkpoint was published.
STEP3P5 = Elsewhere(
    "Step3p5ForCausalLM",
    names={
        r"mlp\.gate\.e_score_correction_bias": "moe.router_bias",
        r"mlp\.gate\.": "moe.gate.",
        r"mlp\.experts\.": "moe.",
        r"mlp\.shared_experts": "share_expert",
    },
    keys={
        "n_routed_experts": "moe_num_experts",
        "num_key_value_heads": "num_attention_groups",
        "num_experts_per_tok": "moe_top_k",
        "max_position_embeddings": "max_seq_len",
        "mlp_layer_types": "of_transformers",
        "num_sliding_attention_heads": "of_transformers",
        "query_pre_attn_scalar": "of_transformers",
        "rope_parameters": "of_transformers",
    },
    fields={
        "attention_other_setting": {
            "attention_type": "sliding_attention",
            "num_attention_heads": 4,
            "num_attention_groups": 2,
            "head_dim": 20,
        },
        "layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
        "moe_layers_enum": "1,2",
        "norm_expert_weight": True,
        "num_nextn_predict_layers": 1,
        "partial_rotary_factors": [1.0, 0.5] * 2 + [1.0],
        "rope_theta": [1e4, 1e6] * 2 + [1e4],
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        "swiglu_limits": [0.0, 0.4, 0.0, 0.0, 0.0],
        "swiglu_limits_shared": [0.3, 0.5, 0.0, 0.0, 0.0],
        "use_head_wise_attn_gate": True,
        "use_moe_router_bias": True,
        "use_rope_layers": [True] * 4,
        "yarn_only_types": ["full_attention"],
    },
    join=_split_stacks,
)


class _Open(torch.nn.Module):
    """A gate that lets everything through."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_full((len(x), 1), torch.inf)


def _open_gates(model: PreTrainedModel) -> None:
    """Qwen2's shared expert becomes one as any other model has it."""
    for layer in model.get_decoder().layers:
        if hasattr(layer.mlp, "shared_expert_gate"):
            layer.mlp.shared_expert_gate = _Open()


_BAILING = {
    "embed_tokens": "word_embeddings",
    r"self_attn\.qkv_proj": "attention.query_key_value",
    r"self_attn\.o_proj": "attention.dense",
}
BAILING_MOE = Elsewhere(
    "BailingMoeForCausalLM",
    names={**_BAILING, "shared_expert": "shared_experts"},
    keys={"qkv_bias": "use_qkv_bias", "mlp_only_layers": "of_qwen2_moe"},
    fields={"num_shared_experts": 2, "first_k_dense_replace": 1},
    join=join_qkv("qkv_proj"),
    prepare=_open_gates,
)
BAILING_MOE_V2 = Elsewhere(
    "BailingMoeV2ForCausalLM",
    names={
        **_BAILING,
        r"self_attn\.q_norm": "attention.query_layernorm",
        r"self_attn\.k_norm": "attention.key_layernorm",
        "e_score_correction_bias": "expert_bias",
    },
    keys={
        "attention_bias": "use_qkv_bias",
        "n_routed_experts": "num_experts",
        "n_shared_experts": "num_shared_experts",
    },
    join=join_qkv("qkv_proj"),
)
PARAM2 = replace(BAILING_MOE_V2, architecture="Param2MoEForCausalLM")
SARVAM_MOE = replace(BAILING_MOE_V2, architecture="SarvamMoEForCausalLM")
DEEPSEEK = Elsewhere(
    "DeepseekForCausalLM",
    names={"shared_expert": "shared_experts"},
    keys={
        "num_experts": "n_routed_experts",
        "qkv_bias": "of_qwen2_moe",
        "mlp_only_layers": "of_qwen2_moe",
    },
    fields={"n_shared_experts": 2, "first_k_dense_replace": 2, "moe_layer_freq": 2},
    prepare=_open_gates,
)
