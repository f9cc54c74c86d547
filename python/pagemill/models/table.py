"""Model families by the architecture in a config.json; imported at first use."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pagemill.inputs.task import Task
from pagemill.models.base import Model, ModelConfigError


@dataclass(frozen=True, slots=True)
class Architecture:
    """A row: the class, as `module:Class` of this package, what people call such models, and what
    they are for. Those that generate may embed, too."""

    location: str
    title: str
    task: Literal["text", "text and images", "embeddings"] = "text"


ARCHITECTURES: dict[str, Architecture] = {
    "AXK1ForCausalLM": Architecture("axk1:AxK1Model", "A.X-K1"),
    "AfmoeForCausalLM": Architecture("afmoe:AfmoeModel", "AFMoE, Trinity"),
    "ApertusForCausalLM": Architecture("apertus:ApertusModel", "Apertus"),
    "ArceeForCausalLM": Architecture("arcee:ArceeModel", "Arcee"),
    "BambaForCausalLM": Architecture("bamba:BambaModel", "Bamba"),
    "BertModel": Architecture("bert:BertModel", "BERT", "embeddings"),
    "BioGptForCausalLM": Architecture("biogpt:BioGptModel", "BioGPT"),
    "BloomForCausalLM": Architecture("bloom:BloomModel", "BLOOM"),
    "CamembertModel": Architecture("roberta:RobertaModel", "CamemBERT", "embeddings"),
    "CodeGenForCausalLM": Architecture("codegen:CodeGenModel", "CodeGen"),
    "Cohere2ForCausalLM": Architecture("cohere2:Cohere2Model", "Command R7B and A"),
    "Cohere2MoeForCausalLM": Architecture("cohere2_moe:Cohere2MoeModel", "Command A, experts"),
    "CohereForCausalLM": Architecture("cohere:CohereModel", "Command R"),
    "CwmForCausalLM": Architecture("cwm:CwmModel", "CWM"),
    "DeepseekV2ForCausalLM": Architecture("deepseek_v2:DeepseekV2Model", "DeepSeek V2"),
    "DeepseekV3ForCausalLM": Architecture(
        "deepseek_v3:DeepseekV3Model", "DeepSeek V3 and R1, Kimi K2"
    ),
    "DistilBertModel": Architecture("distilbert:DistilBertModel", "DistilBERT", "embeddings"),
    "Dots1ForCausalLM": Architecture("dots1:Dots1Model", "dots.llm1"),
    "ElectraModel": Architecture("electra:ElectraModel", "ELECTRA", "embeddings"),
    "Ernie4_5ForCausalLM": Architecture("ernie4_5:Ernie45Model", "ERNIE 4.5"),
    "Ernie4_5_MoeForCausalLM": Architecture("ernie4_5_moe:Ernie45MoeModel", "ERNIE 4.5, experts"),
    "Exaone4ForCausalLM": Architecture("exaone4:Exaone4Model", "EXAONE 4"),
    "ExaoneForCausalLM": Architecture("exaone:ExaoneModel", "EXAONE 3"),
    "ExaoneMoeForCausalLM": Architecture("exaone_moe:ExaoneMoeModel", "K-EXAONE"),
    "FalconForCausalLM": Architecture("falcon:FalconModel", "Falcon"),
    "FalconH1ForCausalLM": Architecture("falcon_h1:FalconH1Model", "Falcon-H1"),
    "FalconMambaForCausalLM": Architecture("mamba:MambaModel", "Falcon-Mamba"),
    "FlexOlmoForCausalLM": Architecture("flex_olmo:FlexOlmoModel", "FlexOlmo"),
    "FlintForCausalLM": Architecture("flint:FlintModel", "Flint"),
    "GPT2LMHeadModel": Architecture("gpt2:Gpt2Model", "GPT-2"),
    "GPTBigCodeForCausalLM": Architecture("gpt_bigcode:GptBigCodeModel", "StarCoder, SantaCoder"),
    "GPTJForCausalLM": Architecture("gptj:GptJModel", "GPT-J"),
    "GPTNeoForCausalLM": Architecture("gpt_neo:GptNeoModel", "GPT-Neo"),
    "GPTNeoXForCausalLM": Architecture("gpt_neox:GptNeoxModel", "GPT-NeoX, Pythia"),
    "Gemma2ForCausalLM": Architecture("gemma2:Gemma2Model", "Gemma 2"),
    "Gemma3ForCausalLM": Architecture("gemma3:Gemma3Model", "Gemma 3 (text)"),
    "Gemma3ForConditionalGeneration": Architecture(
        "language_part:Gemma3LanguagePart", "Gemma 3 with images; its text"
    ),
    "Gemma4ForCausalLM": Architecture("gemma4:Gemma4Model", "Gemma 4 (text)"),
    "Gemma4ForConditionalGeneration": Architecture(
        "language_part:Gemma4LanguagePart", "Gemma 4 with images; its text"
    ),
    "GemmaForCausalLM": Architecture("gemma:GemmaModel", "Gemma"),
    "Glm4ForCausalLM": Architecture("glm4:Glm4Model", "GLM-4-0414"),
    "Glm4MoeForCausalLM": Architecture("glm4_moe:Glm4MoeModel", "GLM-4.5 and 4.6"),
    "Glm4MoeLiteForCausalLM": Architecture("glm4_moe_lite:Glm4MoeLiteModel", "GLM-4.7-Flash"),
    "GlmForCausalLM": Architecture("glm:GlmModel", "GLM-4"),
    "GptOssForCausalLM": Architecture("gpt_oss:GptOssModel", "gpt-oss"),
    "GraniteForCausalLM": Architecture("granite:GraniteModel", "Granite 3"),
    "GraniteMoeForCausalLM": Architecture("granite_moe:GraniteMoeModel", "Granite 3, experts"),
    "GraniteMoeHybridForCausalLM": Architecture("granite_hybrid:GraniteHybridModel", "Granite 4"),
    "GraniteMoeSWAForCausalLM": Architecture(
        "granite_swa:GraniteSwaModel", "Granite Swash, experts"
    ),
    "GraniteMoeSharedForCausalLM": Architecture(
        "granite_moe:GraniteMoeModel", "Granite 3, experts and a shared one"
    ),
    "GraniteSWAForCausalLM": Architecture("granite_swa:GraniteSwaModel", "Granite Swash"),
    "GteModel": Architecture("gte:GteModel", "GTE", "embeddings"),
    "HYV3ForCausalLM": Architecture("hy_v3:HyV3Model", "Hy3"),
    "HeliumForCausalLM": Architecture("helium:HeliumModel", "Helium"),
    "HunYuanDenseV1ForCausalLM": Architecture("hunyuan:HunyuanModel", "Hunyuan, dense"),
    "HunYuanMoEV1ForCausalLM": Architecture("hunyuan_moe:HunyuanMoeModel", "Hunyuan, experts"),
    "HyperCLOVAXForCausalLM": Architecture("hyperclovax:HyperClovaXModel", "HyperCLOVA X"),
    "InternLM2ForCausalLM": Architecture("internlm2:InternLm2Model", "InternLM2"),
    "Jais2ForCausalLM": Architecture("jais2:Jais2Model", "Jais 2"),
    "JambaForCausalLM": Architecture("jamba:JambaModel", "Jamba"),
    "KimiLinearForCausalLM": Architecture("kimi_linear:KimiLinearModel", "Kimi Linear"),
    "Lfm2ForCausalLM": Architecture("lfm2:Lfm2Model", "LFM2"),
    "Lfm2MoeForCausalLM": Architecture("lfm2:Lfm2Model", "LFM2, experts"),
    "LlamaForCausalLM": Architecture(
        "llama:LlamaModel", "Llama, and models of its shape (SmolLM2, ...)"
    ),
    "LlavaForConditionalGeneration": Architecture(
        "llava:LlavaModel", "LLaVA 1.5", "text and images"
    ),
    "Mamba2ForCausalLM": Architecture("mamba2:Mamba2Model", "Mamba-2"),
    "MambaForCausalLM": Architecture("mamba:MambaModel", "Mamba"),
    "MellumForCausalLM": Architecture("mellum:MellumModel", "Mellum 2"),
    "MiniCPM3ForCausalLM": Architecture("minicpm3:MiniCpm3Model", "MiniCPM3"),
    "MiniCPMForCausalLM": Architecture("minicpm:MiniCpmModel", "MiniCPM"),
    "MiniMaxM2ForCausalLM": Architecture("minimax_m2:MiniMaxM2Model", "MiniMax-M2"),
    "Ministral3ForCausalLM": Architecture("ministral3:Ministral3Model", "Ministral 3"),
    "MinistralForCausalLM": Architecture("ministral:MinistralModel", "Ministral"),
    "Mistral3ForConditionalGeneration": Architecture(
        "language_part:Mistral3LanguagePart",
        "Mistral Small 3.1, Ministral 3; their text",
    ),
    "MistralForCausalLM": Architecture("mistral:MistralModel", "Mistral"),
    "MixtralForCausalLM": Architecture("mixtral:MixtralModel", "Mixtral"),
    "ModernBertModel": Architecture("modernbert:ModernBertModel", "ModernBERT", "embeddings"),
    "MptForCausalLM": Architecture("mpt:MptModel", "MPT"),
    "NanoChatForCausalLM": Architecture("nanochat:NanochatModel", "nanochat"),
    "NemotronForCausalLM": Architecture("nemotron:NemotronModel", "Nemotron, Minitron"),
    "NemotronHForCausalLM": Architecture("nemotron_h:NemotronHModel", "Nemotron-H, Nemotron 3"),
    "NomicBertModel": Architecture("nomic_bert:NomicBertModel", "Nomic BERT", "embeddings"),
    "OPTForCausalLM": Architecture("opt:OptModel", "OPT"),
    "Olmo2ForCausalLM": Architecture("olmo2:Olmo2Model", "OLMo 2"),
    "Olmo3ForCausalLM": Architecture("olmo3:Olmo3Model", "OLMo 3"),
    "OlmoForCausalLM": Architecture("olmo:OlmoModel", "OLMo"),
    "OlmoHybridForCausalLM": Architecture("olmo_hybrid:OlmoHybridModel", "OLMo Hybrid"),
    "OlmoeForCausalLM": Architecture("olmoe:OlmoeModel", "OLMoE"),
    "OpenAIGPTLMHeadModel": Architecture("openai_gpt:OpenAiGptModel", "GPT"),
    "PersimmonForCausalLM": Architecture("persimmon:PersimmonModel", "Persimmon"),
    "Phi3ForCausalLM": Architecture("phi3:Phi3Model", "Phi-3 and Phi-4"),
    "PhiForCausalLM": Architecture("phi:PhiModel", "Phi-1 and Phi-2"),
    "Qwen2ForCausalLM": Architecture("qwen2:Qwen2Model", "Qwen2 and Qwen2.5"),
    "Qwen2MoeForCausalLM": Architecture("qwen2_moe:Qwen2MoeModel", "Qwen2, experts"),
    "Qwen2VLForConditionalGeneration": Architecture(
        "qwen2_vl:Qwen2VlModel", "Qwen2-VL", "text and images"
    ),
    "Qwen3ForCausalLM": Architecture("qwen3:Qwen3Model", "Qwen3"),
    "Qwen3MoeForCausalLM": Architecture("qwen3_moe:Qwen3MoeModel", "Qwen3, experts"),
    "Qwen3NextForCausalLM": Architecture("qwen3_next:Qwen3NextModel", "Qwen3-Next"),
    "Qwen3_5ForCausalLM": Architecture("qwen3_next:Qwen3NextModel", "Qwen3.5 (text)"),
    "Qwen3_5ForConditionalGeneration": Architecture(
        "language_part:Qwen35LanguagePart", "Qwen3.5 with images; its text"
    ),
    "Qwen3_5MoeForCausalLM": Architecture("qwen3_next:Qwen3NextModel", "Qwen3.5, experts (text)"),
    "Qwen3_5MoeForConditionalGeneration": Architecture(
        "language_part:Qwen35LanguagePart", "Qwen3.5 with images, experts; its text"
    ),
    "RobertaModel": Architecture("roberta:RobertaModel", "RoBERTa", "embeddings"),
    "SeedOssForCausalLM": Architecture("seed_oss:SeedOssModel", "Seed-OSS"),
    "SmolLM3ForCausalLM": Architecture("smollm3:SmolLm3Model", "SmolLM3"),
    "SolarOpenForCausalLM": Architecture("solar_open:SolarOpenModel", "Solar Open"),
    "StableLmForCausalLM": Architecture("stablelm:StableLmModel", "StableLM"),
    "Starcoder2ForCausalLM": Architecture("starcoder2:Starcoder2Model", "StarCoder2"),
    "VaultGemmaForCausalLM": Architecture("vaultgemma:VaultGemmaModel", "VaultGemma"),
    "XLMRobertaModel": Architecture("roberta:RobertaModel", "XLM-RoBERTa", "embeddings"),
    "YoutuForCausalLM": Architecture("youtu:YoutuModel", "Youtu-LLM"),
    "Zamba2ForCausalLM": Architecture("zamba2:Zamba2Model", "Zamba2"),
}

# The ends of names of architectures, and what a checkpoint of that kind is for.
_ROWS = ("ForCausalLM", "LMHeadModel", "Model")
_OF_ENCODERS = ("ForMaskedLM", "ForPreTraining")
_KINDS = {
    "ForMaskedLM": Task.EMBED,
    "ForPreTraining": Task.EMBED,
    "ForSequenceClassification": Task.CLASSIFY,
    "ForTokenClassification": Task.TOKEN_CLASSIFY,
    "TextModel": Task.EMBED,
    "Model": Task.EMBED,
}


class Found(NamedTuple):
    """A row, and what checkpoints of the architecture that was looked for are for."""

    row: Architecture
    task: Task


def find(architecture: str) -> Found:
    """The row of `architecture`, or that of the same model without a head or with another: of
    Qwen3ForSequenceClassification that of Qwen3ForCausalLM.

    Raises:
        ModelConfigError: none is known.
    """
    if architecture in ARCHITECTURES:
        row = ARCHITECTURES[architecture]
        return Found(row, Task.EMBED if row.task == "embeddings" else Task.GENERATE)
    for end, task in _KINDS.items():
        stem = architecture.removesuffix(end)
        for row in (ARCHITECTURES.get(stem + kind) for kind in _ROWS if stem != architecture):
            if row is not None and (row.task == "embeddings" or end not in _OF_ENCODERS):
                return Found(row, task)
    alike = difflib.get_close_matches(architecture[:60], ARCHITECTURES, 3)
    hint = f"similar ones are {', '.join(alike)}; " if alike else ""
    raise ModelConfigError(
        f"unknown architecture {architecture!r:.60}; {hint}`pagemill models` lists those known"
    )


def model_class(architecture: str) -> type[Model]:
    """The family of `architecture`.

    Raises:
        ModelConfigError: none is known.
    """
    module, _, name = find(architecture).row.location.partition(":")
    return getattr(importlib.import_module(f"pagemill.models.{module}"), name)
