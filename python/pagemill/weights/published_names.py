"""Names of tensors as checkpoints were published, by model type, where layers use those that
`transformers` writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation

Names = Sequence[tuple[str, str]]
"""Patterns of starts of names, and what replaces them; each is applied to what the ones before it
have made."""

_STEP: Names = (
    (r"(model\.layers\.\d+\.)moe\.router_bias$", r"\1mlp.gate.e_score_correction_bias"),
    (r"(model\.layers\.\d+\.)moe\.gate\.", r"\1mlp.gate."),
    (r"(model\.layers\.\d+\.)moe\.", r"\1mlp.experts."),
    (r"(model\.layers\.\d+\.)share_expert\.", r"\1mlp.shared_experts."),
    (r"(model\.layers\.\d+\.)transformer\.(?=shared_head\.)", r"\1"),  # of MTP layers
)
_STEP_WITH_IMAGES: Names = (
    *_STEP,
    (r"model\.(?=embed_tokens\.|layers\.|norm\.)", "model.language_model."),
)
_INTERNVL_LAYER = r"(vision_tower\.encoder\.layer\.\d+\.)"
_INTERNVL: Names = (
    (r"mlp1\.0\.", "multi_modal_projector.layer_norm."),
    (r"mlp1\.1\.", "multi_modal_projector.linear_1."),
    (r"mlp1\.3\.", "multi_modal_projector.linear_2."),
    (r"vision_model\.(embeddings|encoder)\.", r"vision_tower.\1."),
    (r"(vision_tower\.embeddings\.)class_embedding$", r"\1cls_token"),
    (r"(vision_tower\.embeddings\.)position_embedding$", r"\1position_embeddings"),
    (r"(vision_tower\.embeddings\.)patch_embedding\.", r"\1patch_embeddings.projection."),
    (r"vision_tower\.encoder\.layers\.", "vision_tower.encoder.layer."),
    (rf"{_INTERNVL_LAYER}attn\.proj\.", r"\1attention.projection_layer."),
    (rf"{_INTERNVL_LAYER}attn\.", r"\1attention."),
    (rf"{_INTERNVL_LAYER}norm1\.", r"\1layernorm_before."),
    (rf"{_INTERNVL_LAYER}norm2\.", r"\1layernorm_after."),
    (rf"{_INTERNVL_LAYER}ls([12])$", r"\1lambda_\2"),
)
# Models for retrieval, which are a model of text and images and a layer.
_RETRIEVAL: Names = (
    (r"vlm\.language_model\.(?=embed_tokens\.|layers\.|norm\.)", "model.language_model."),
    (r"vlm\.", ""),
    (r"(embedding_proj_layer|custom_text_proj)\.", "linear."),
)
_LAYER = r"model\.(?:language_model\.)?layers\.\d+\."
_MISTRAL_LAYER = rf"({_LAYER})"
_MISTRAL_ATTENTION = rf"({_LAYER}self_attn\.(?:indexer\.)?)"
_MISTRAL_EXPERTS = rf"({_LAYER}mlp\.(?:experts\.\d+\.|shared_experts\.)?)"
_MISTRAL_LARGE4_TEXT: Names = (
    (rf"{_MISTRAL_LAYER}attention\.", r"\1self_attn."),
    (rf"{_MISTRAL_ATTENTION}w([qo])\.", r"\1\2_proj."),
    (rf"{_MISTRAL_ATTENTION}wkv_a_with_mqa\.", r"\1kv_a_proj_with_mqa."),
    (rf"{_MISTRAL_ATTENTION}wkv_b\.", r"\1kv_b_proj."),
    (rf"{_MISTRAL_ATTENTION}kv_a_norm\.", r"\1kv_a_layernorm."),
    (rf"{_MISTRAL_ATTENTION}ssmax_scaling\.s$", r"\1softmax_scaling.scale"),
    (rf"{_MISTRAL_ATTENTION}ssmax_scaling\.b$", r"\1softmax_scaling.bias"),
    (rf"{_MISTRAL_LAYER}attention_norm\.", r"\1input_layernorm."),
    (rf"{_MISTRAL_LAYER}ffn_norm\.", r"\1post_attention_layernorm."),
    (rf"{_MISTRAL_LAYER}feed_forward\.", r"\1mlp."),
    (rf"{_MISTRAL_LAYER}(gate|experts|shared_experts)\.", r"\1mlp.\2."),
    (rf"{_MISTRAL_EXPERTS}w1\.", r"\1gate_proj."),
    (rf"{_MISTRAL_EXPERTS}w2\.", r"\1down_proj."),
    (rf"{_MISTRAL_EXPERTS}w3\.", r"\1up_proj."),
)
_MISTRAL_LARGE4: Names = (
    (r"tok_embeddings\.", "model.language_model.embed_tokens."),
    (r"lerope\.alpha$", "model.language_model.rotary_emb.alpha"),
    (r"(?=layers\.|norm\.)", "model.language_model."),
    (r"output\.", "lm_head."),
    (r"vision_encoder\.", "model.vision_tower."),
    (
        r"(pre_mm_projector_norm|patch_merger|vision_language_adapter)\.",
        r"model.multi_modal_projector.\1.",
    ),
    *_MISTRAL_LARGE4_TEXT,
)
# Norms of checkpoints that were made of those of TensorFlow, such as the first BERT's.
_FIRST_NORMS: Names = (
    (r"(.*LayerNorm)\.gamma$", r"\1.weight"),
    (r"(.*LayerNorm)\.beta$", r"\1.bias"),
)
# Parameters of torch's own attention, which are no layer's.
_SIGLIP: Names = ((r"(vision_model\.head\.attention\.in_proj)_", r"\1."),)
_NAMES: Mapping[str, Names] = {
    "albert": _FIRST_NORMS,
    "bert": _FIRST_NORMS,
    "colmodernvbert": ((r"vlm\.", "model."), (r"embedding_proj_layer\.", "linear.")),
    "colpali": _RETRIEVAL,
    "colqwen2": _RETRIEVAL,
    "colqwen3": _RETRIEVAL,
    "deepseek_v4": (
        (r"embed\.", "model.embed_tokens."),
        (r"hc_head_", "model.hc_head.hc_"),
        (r"(?=norm\.|layers\.)", "model."),
        (r"((?:model\.layers|mtp)\.\d+\.attn)\.kv_norm\.", r"\1.norm."),
    ),
    "deepseek_vl_v2": ((r"model\.vision_model\.transformer\.", "model.vision_model.encoder."),),
    "electra": _FIRST_NORMS,
    "ernie": _FIRST_NORMS,
    "esm": _FIRST_NORMS,
    "gpt_neox_japanese": ((r"(.+\.attention\.dense)_bias$", r"\1.bias"),),
    "hy_v4": (
        (r"(.+)\.hc_pre\.hc_", r"\1.hc_"),
        (r"(.+\.hc_)attn_layer\.hc_", r"\1attn_"),
        (r"(.+\.hc_)mlp_layer\.hc_", r"\1ffn_"),
        (r"(model\.hc_head\.hc_)head_", r"\1"),
        (r"(.+)\.learnable_sink_param$", r"\1.sinks"),
        (r"(.+)\.linear_gate\.", r"\1.gate_proj."),
    ),
    "internvl_chat": _INTERNVL,
    "janus": ((r"(model\.vision_model\..*\.self_attn\.)projection_layer\.", r"\1out_proj."),),
    "mistral_large4": _MISTRAL_LARGE4,
    "mistral_large4_text": _MISTRAL_LARGE4_TEXT,
    "qianfan_ocr": _INTERNVL,
    "roberta": _FIRST_NORMS,
    # Matrices of low rank, which are parameters without a module.
    "rwkv6": ((r"(rwkv\.blocks\.\d+\.attention\.time_(?:maa|decay)_w[12])$", r"\1.weight"),),
    "siglip": _SIGLIP,
    "siglip2": _SIGLIP,
    "step3_text": _STEP,
    "step3_vl": _STEP_WITH_IMAGES,
    "step3p5": _STEP,
    "step3p7": _STEP_WITH_IMAGES,
    # Jina embeddings 3, whose adapters lie beside the weights.
    "xlm-roberta": ((r"(.+)\.parametrizations\.weight\.original$", r"\1.weight"),),
}


def as_layers_use(
    model_type: object, tensors: Mapping[str, TensorLocation]
) -> Mapping[str, TensorLocation]:
    """The tensors of a checkpoint by the names that layers use.

    Raises:
        WeightsError: two have one name.
    """
    names = _NAMES.get(model_type) if isinstance(model_type, str) else None
    if names is None:
        return tensors
    compiled = [(re.compile(pattern), replacement) for pattern, replacement in names]
    renamed: dict[str, TensorLocation] = {}
    for stored, location in tensors.items():
        name = stored
        for pattern, replacement in compiled:
            if (match := pattern.match(name)) is not None:
                name = match.expand(replacement) + name[match.end() :]
        if name in renamed:
            raise WeightsError(f"{location.file}: {stored} and another tensor are both {name}")
        renamed[name] = location if name == stored else replace(location, name=name)
    return renamed
