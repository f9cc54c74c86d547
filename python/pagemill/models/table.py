"""Model families by the architecture in a config.json; imported at first use."""

from __future__ import annotations

import importlib

from pagemill.models.base import Model, ModelConfigError

ARCHITECTURES: dict[str, str] = {
    "ArceeForCausalLM": "pagemill.models.arcee:ArceeModel",
    "BertModel": "pagemill.models.bert:BertModel",
    "Cohere2ForCausalLM": "pagemill.models.cohere2:Cohere2Model",
    "CohereForCausalLM": "pagemill.models.cohere:CohereModel",
    "CwmForCausalLM": "pagemill.models.cwm:CwmModel",
    "DeepseekV2ForCausalLM": "pagemill.models.deepseek_v2:DeepseekV2Model",
    "Ernie4_5ForCausalLM": "pagemill.models.ernie4_5:Ernie45Model",
    "Exaone4ForCausalLM": "pagemill.models.exaone4:Exaone4Model",
    "Gemma2ForCausalLM": "pagemill.models.gemma2:Gemma2Model",
    "Gemma3ForCausalLM": "pagemill.models.gemma3:Gemma3Model",
    "GemmaForCausalLM": "pagemill.models.gemma:GemmaModel",
    "Glm4ForCausalLM": "pagemill.models.glm4:Glm4Model",
    "GlmForCausalLM": "pagemill.models.glm:GlmModel",
    "GraniteForCausalLM": "pagemill.models.granite:GraniteModel",
    "GraniteMoeForCausalLM": "pagemill.models.granite_moe:GraniteMoeModel",
    "GraniteMoeHybridForCausalLM": "pagemill.models.granite_hybrid:GraniteHybridModel",
    "GraniteMoeSharedForCausalLM": "pagemill.models.granite_moe:GraniteMoeModel",
    "HeliumForCausalLM": "pagemill.models.helium:HeliumModel",
    "HunYuanDenseV1ForCausalLM": "pagemill.models.hunyuan:HunyuanModel",
    "HyperCLOVAXForCausalLM": "pagemill.models.hyperclovax:HyperClovaXModel",
    "Jais2ForCausalLM": "pagemill.models.jais2:Jais2Model",
    "LlamaForCausalLM": "pagemill.models.llama:LlamaModel",
    "LlavaForConditionalGeneration": "pagemill.models.llava:LlavaModel",
    "Mamba2ForCausalLM": "pagemill.models.mamba2:Mamba2Model",
    "MinistralForCausalLM": "pagemill.models.ministral:MinistralModel",
    "MistralForCausalLM": "pagemill.models.mistral:MistralModel",
    "MixtralForCausalLM": "pagemill.models.mixtral:MixtralModel",
    "Olmo2ForCausalLM": "pagemill.models.olmo2:Olmo2Model",
    "Olmo3ForCausalLM": "pagemill.models.olmo3:Olmo3Model",
    "OlmoForCausalLM": "pagemill.models.olmo:OlmoModel",
    "OlmoeForCausalLM": "pagemill.models.olmoe:OlmoeModel",
    "Phi3ForCausalLM": "pagemill.models.phi3:Phi3Model",
    "PhiForCausalLM": "pagemill.models.phi:PhiModel",
    "Qwen2ForCausalLM": "pagemill.models.qwen2:Qwen2Model",
    "Qwen2VLForConditionalGeneration": "pagemill.models.qwen2_vl:Qwen2VlModel",
    "Qwen3ForCausalLM": "pagemill.models.qwen3:Qwen3Model",
    "Qwen3MoeForCausalLM": "pagemill.models.qwen3_moe:Qwen3MoeModel",
    "SeedOssForCausalLM": "pagemill.models.seed_oss:SeedOssModel",
    "SmolLM3ForCausalLM": "pagemill.models.smollm3:SmolLm3Model",
    "StableLmForCausalLM": "pagemill.models.stablelm:StableLmModel",
    "Starcoder2ForCausalLM": "pagemill.models.starcoder2:Starcoder2Model",
    "VaultGemmaForCausalLM": "pagemill.models.vaultgemma:VaultGemmaModel",
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
