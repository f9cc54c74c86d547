"""Model families by the architecture in a config.json; imported at first use."""

from __future__ import annotations

import importlib

from pagemill.models.base import Model, ModelConfigError

ARCHITECTURES: dict[str, str] = {
    "BertModel": "pagemill.models.bert:BertModel",
    "DeepseekV2ForCausalLM": "pagemill.models.deepseek_v2:DeepseekV2Model",
    "Gemma3ForCausalLM": "pagemill.models.gemma3:Gemma3Model",
    "GraniteMoeHybridForCausalLM": "pagemill.models.granite_hybrid:GraniteHybridModel",
    "LlamaForCausalLM": "pagemill.models.llama:LlamaModel",
    "LlavaForConditionalGeneration": "pagemill.models.llava:LlavaModel",
    "Mamba2ForCausalLM": "pagemill.models.mamba2:Mamba2Model",
    "MixtralForCausalLM": "pagemill.models.mixtral:MixtralModel",
    "Qwen2ForCausalLM": "pagemill.models.qwen2:Qwen2Model",
    "Qwen2VLForConditionalGeneration": "pagemill.models.qwen2_vl:Qwen2VlModel",
    "Qwen3ForCausalLM": "pagemill.models.qwen3:Qwen3Model",
    "Qwen3MoeForCausalLM": "pagemill.models.qwen3_moe:Qwen3MoeModel",
}


def model_class(architecture: str) -> type[Model]:
    """The family of `architecture`.

    Raises:
        ModelConfigError: none is known.
    """
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelConfigError(f"unknown architecture {architecture!r:.60}; known: {known}")
    module, _, name = ARCHITECTURES[architecture].partition(":")
    return getattr(importlib.import_module(module), name)
