"""Model families by the architecture in a config.json; imported at first use."""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pagemill.config import ConfigError
from pagemill.config.plugins import entries, loaded
from pagemill.inputs.task import Task
from pagemill.models.architecture import Architecture
from pagemill.models.base import Model, ModelConfigError
from pagemill.models.encoder_decoder.table import ENCODER_DECODERS
from pagemill.models.encoders.table import ENCODERS
from pagemill.models.multimodal.table import MULTIMODAL

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DECODERS: dict[str, Architecture] = {
    "AXK1ForCausalLM": Architecture("axk1:AxK1Model", "A.X-K1", ("axk1",)),
    "AXK2ForCausalLM": Architecture("axk2:AxK2Model", "A.X-K2", ("axk2",)),
    "AfmoeForCausalLM": Architecture("afmoe:AfmoeModel", "AFMoE, Trinity", ("afmoe",)),
    "ApertusForCausalLM": Architecture("apertus:ApertusModel", "Apertus", ("apertus",)),
    "AquilaForCausalLM": Architecture("llama:LlamaModel", "Aquila", ("aquila",)),
    "AquilaModel": Architecture("llama:LlamaModel", "Aquila, as first saved", ()),
    "ArceeForCausalLM": Architecture("arcee:ArceeModel", "Arcee", ("arcee",)),
    "AriaTextForCausalLM": Architecture("aria_text:AriaTextModel", "Aria (text)", ("aria_text",)),
    "BaiChuanForCausalLM": Architecture(
        "baichuan:BaichuanModel", "Baichuan, as 7B was first saved", ()
    ),
    "BaichuanForCausalLM": Architecture("baichuan:BaichuanModel", "Baichuan", ("baichuan",)),
    "BailingMoeForCausalLM": Architecture("bailing_moe:BailingMoeModel", "Ling", ("bailing_moe",)),
    "BailingMoeV2ForCausalLM": Architecture(
        "bailing_moe_v2:BailingMoeV2Model", "Ling 2.0, Ring 2.0", ("bailing_moe_v2",)
    ),
    "BambaForCausalLM": Architecture("bamba:BambaModel", "Bamba", ("bamba",)),
    "BioGptForCausalLM": Architecture("biogpt:BioGptModel", "BioGPT", ("biogpt",)),
    "BitNetForCausalLM": Architecture("bitnet:BitNetModel", "BitNet", ("bitnet",)),
    "BloomForCausalLM": Architecture("bloom:BloomModel", "BLOOM", ("bloom",)),
    "ChatGLMForConditionalGeneration": Architecture(
        "chatglm:ChatGlmModel", "ChatGLM and GLM-4, as saved later", ()
    ),
    "ChatGLMModel": Architecture(
        "chatglm:ChatGlmModel", "ChatGLM 2 and 3, GLM-4 as first saved", ("chatglm",)
    ),
    "CodeGenForCausalLM": Architecture("codegen:CodeGenModel", "CodeGen", ("codegen",)),
    "Cohere2ForCausalLM": Architecture("cohere2:Cohere2Model", "Command R7B and A", ("cohere2",)),
    "Cohere2MoeForCausalLM": Architecture(
        "cohere2_moe:Cohere2MoeModel", "Command A, experts", ("cohere2_moe",)
    ),
    "CohereCompassForCausalLM": Architecture(
        "cohere_compass:CohereCompassModel", "North (text)", ("cohere_compass_text",)
    ),
    "CohereForCausalLM": Architecture("cohere:CohereModel", "Command R", ("cohere",)),
    "CwmForCausalLM": Architecture("cwm:CwmModel", "CWM", ("cwm",)),
    "DbrxForCausalLM": Architecture("dbrx:DbrxModel", "DBRX", ("dbrx",)),
    "DeciLMForCausalLM": Architecture(
        "nemotron_nas:NemotronNasModel", "Nemotron-NAS, DeciLM 7B", ("nemotron-nas", "deci")
    ),
    "DeepseekForCausalLM": Architecture("deepseek:DeepseekModel", "DeepSeekMoE", ("deepseek",)),
    "DeepseekV2ForCausalLM": Architecture(
        "deepseek_v2:DeepseekV2Model", "DeepSeek V2", ("deepseek_v2",)
    ),
    "DeepseekV32ForCausalLM": Architecture(
        "deepseek_v32:DeepseekV32Model", "DeepSeek V3.2", ("deepseek_v32",)
    ),
    "DeepseekV3ForCausalLM": Architecture(
        "deepseek_v3:DeepseekV3Model", "DeepSeek V3 and R1, Kimi K2", ("deepseek_v3", "kimi_k2")
    ),
    "DeepseekV4ForCausalLM": Architecture(
        "deepseek_v4:DeepseekV4Model", "DeepSeek V4", ("deepseek_v4",), tensor_parallel="partly"
    ),
    "Dots1ForCausalLM": Architecture("dots1:Dots1Model", "dots.llm1", ("dots1",)),
    "Dots3NoteForCausalLM": Architecture(
        "dots3_note:Dots3NoteModel", "dots3.note; its text", ("dots3_note", "dots3_note_text")
    ),
    "Ernie4_5ForCausalLM": Architecture("ernie4_5:Ernie45Model", "ERNIE 4.5", ("ernie4_5",)),
    "Ernie4_5_MoeForCausalLM": Architecture(
        "ernie4_5_moe:Ernie45MoeModel", "ERNIE 4.5, experts", ("ernie4_5_moe",)
    ),
    "Exaone4ForCausalLM": Architecture("exaone4:Exaone4Model", "EXAONE 4", ("exaone4",)),
    "ExaoneForCausalLM": Architecture("exaone:ExaoneModel", "EXAONE 3", ("exaone",)),
    "ExaoneMoEForCausalLM": Architecture(
        "exaone_moe:ExaoneMoeModel", "K-EXAONE, as first saved", ()
    ),
    "ExaoneMoeForCausalLM": Architecture("exaone_moe:ExaoneMoeModel", "K-EXAONE", ("exaone_moe",)),
    "FalconForCausalLM": Architecture("falcon:FalconModel", "Falcon", ("falcon",)),
    "FalconH1ForCausalLM": Architecture("falcon_h1:FalconH1Model", "Falcon-H1", ("falcon_h1",)),
    "FalconMambaForCausalLM": Architecture("mamba:MambaModel", "Falcon-Mamba", ("falcon_mamba",)),
    "FlexOlmoForCausalLM": Architecture(
        "flex_olmo:FlexOlmoModel", "FlexOlmo", ("flex_olmo",), tensor_parallel="partly"
    ),
    "FlintForCausalLM": Architecture("flint:FlintModel", "Flint", ("flint",)),
    "GPT2LMHeadModel": Architecture("gpt2:Gpt2Model", "GPT-2", ("gpt2", "gpt-sw3")),
    "GPTBigCodeForCausalLM": Architecture(
        "gpt_bigcode:GptBigCodeModel", "StarCoder, SantaCoder", ("gpt_bigcode",)
    ),
    "GPTJForCausalLM": Architecture("gptj:GptJModel", "GPT-J", ("gptj",)),
    "GPTNeoForCausalLM": Architecture("gpt_neo:GptNeoModel", "GPT-Neo", ("gpt_neo",)),
    "GPTNeoXForCausalLM": Architecture("gpt_neox:GptNeoxModel", "GPT-NeoX, Pythia", ("gpt_neox",)),
    "GPTNeoXJapaneseForCausalLM": Architecture(
        "gpt_neox_japanese:GptNeoxJapaneseModel", "GPT-NeoX Japanese", ("gpt_neox_japanese",)
    ),
    "Gemma2ForCausalLM": Architecture("gemma2:Gemma2Model", "Gemma 2", ("gemma2",)),
    "Gemma3ForCausalLM": Architecture("gemma3:Gemma3Model", "Gemma 3 (text)", ("gemma3_text",)),
    "Gemma3nForCausalLM": Architecture(
        "gemma3n:Gemma3nModel",
        "Gemma 3n (text)",
        ("gemma3n_text",),
        tensor_parallel="partly",
        cuts="some layers",
    ),
    "Gemma4ForCausalLM": Architecture(
        "gemma4:Gemma4Model", "Gemma 4 (text)", ("gemma4_text",), cuts="some layers"
    ),
    "GemmaForCausalLM": Architecture("gemma:GemmaModel", "Gemma", ("gemma",)),
    "Glm4ForCausalLM": Architecture("glm4:Glm4Model", "GLM-4-0414", ("glm4",)),
    "Glm4MoeForCausalLM": Architecture("glm4_moe:Glm4MoeModel", "GLM-4.5 and 4.6", ("glm4_moe",)),
    "Glm4MoeLiteForCausalLM": Architecture(
        "glm4_moe_lite:Glm4MoeLiteModel", "GLM-4.7-Flash", ("glm4_moe_lite",)
    ),
    "GlmForCausalLM": Architecture("glm:GlmModel", "GLM-4", ("glm",)),
    "GlmMoeDsaForCausalLM": Architecture(
        "deepseek_v32:DeepseekV32Model", "GLM-5", ("glm_moe_dsa",), cuts="some layers"
    ),
    "GptOssForCausalLM": Architecture("gpt_oss:GptOssModel", "gpt-oss", ("gpt_oss",)),
    "GraniteForCausalLM": Architecture("granite:GraniteModel", "Granite 3", ("granite",)),
    "GraniteMoeForCausalLM": Architecture(
        "granite_moe:GraniteMoeModel", "Granite 3, experts", ("granitemoe",)
    ),
    "GraniteMoeHybridForCausalLM": Architecture(
        "granite_hybrid:GraniteHybridModel", "Granite 4", ("granitemoehybrid",)
    ),
    "GraniteMoeSWAForCausalLM": Architecture(
        "granite_swa:GraniteSwaModel", "Granite Swash, experts", ("granitemoe_swa",)
    ),
    "GraniteMoeSharedForCausalLM": Architecture(
        "granite_moe:GraniteMoeModel", "Granite 3, experts and a shared one", ("granitemoeshared",)
    ),
    "GraniteSWAForCausalLM": Architecture(
        "granite_swa:GraniteSwaModel", "Granite Swash", ("granite_swa",)
    ),
    "Grok1ForCausalLM": Architecture("grok2:Grok2Model", "Grok-2", ("grok-2",)),
    "Grok1ModelForCausalLM": Architecture("grok1:Grok1Model", "Grok-1", ("grok-1",)),
    "HYV3ForCausalLM": Architecture("hy_v3:HyV3Model", "Hy3", ("hy_v3",)),
    "HYV4ForCausalLM": Architecture("hy_v4:HyV4Model", "Hy4", ("hy_v4",), cuts="some layers"),
    "HeliumForCausalLM": Architecture("helium:HeliumModel", "Helium", ("helium",)),
    "HrmTextForCausalLM": Architecture(
        "hrm_text:HrmTextModel", "HRM-Text", ("hrm_text",), cuts="some layers"
    ),
    "HunYuanDenseV1ForCausalLM": Architecture(
        "hunyuan:HunyuanModel", "Hunyuan, dense", ("hunyuan_v1_dense",)
    ),
    "HunYuanMoEV1ForCausalLM": Architecture(
        "hunyuan_moe:HunyuanMoeModel", "Hunyuan, experts", ("hunyuan_v1_moe",)
    ),
    "HyperCLOVAXForCausalLM": Architecture(
        "hyperclovax:HyperClovaXModel", "HyperCLOVA X", ("hyperclovax",)
    ),
    "IQuestCoderForCausalLM": Architecture("llama:LlamaModel", "IQuest-Coder", ("iquestcoder",)),
    "InternLM2ForCausalLM": Architecture("internlm2:InternLm2Model", "InternLM2", ("internlm2",)),
    "InternLM3ForCausalLM": Architecture("internlm3:InternLm3Model", "InternLM3", ("internlm3",)),
    "InternLMForCausalLM": Architecture("internlm:InternLmModel", "InternLM", ("internlm",)),
    "JAISLMHeadModel": Architecture("jais:JaisModel", "Jais", ("jais",)),
    "Jais2ForCausalLM": Architecture("jais2:Jais2Model", "Jais 2", ("jais2",)),
    "JambaForCausalLM": Architecture("jamba:JambaModel", "Jamba", ("jamba",)),
    "K2HorizonForCausalLM": Architecture(
        "k2_horizon:K2HorizonModel", "K2 Horizon, dense", ("k2_horizon",)
    ),
    "KimiLinearForCausalLM": Architecture(
        "kimi_linear:KimiLinearModel", "Kimi Linear", ("kimi_linear",)
    ),
    "Kolibri1ForCausalLM": Architecture("kolibri1:Kolibri1Model", "Kolibri 1", ("kolibri1",)),
    "LLaMAForCausalLM": Architecture("llama:LlamaModel", "Llama, as first saved", ()),
    "LagunaForCausalLM": Architecture("laguna:LagunaModel", "Laguna", ("laguna",)),
    "Lfm2ForCausalLM": Architecture("lfm2:Lfm2Model", "LFM2", ("lfm2",)),
    "Lfm2MoeForCausalLM": Architecture("lfm2:Lfm2Model", "LFM2, experts", ("lfm2_moe",)),
    "Lfm3ForCausalLM": Architecture("lfm3:Lfm3Model", "LFM3", ("lfm3",)),
    "Llama4ForCausalLM": Architecture("llama4:Llama4Model", "Llama 4 (text)", ("llama4_text",)),
    "LlamaBidirectionalModel": Architecture(
        "llama_bidirectional:LlamaBidirectionalModel",
        "Llama whose tokens see later ones",
        ("llama_bidirec",),
        "embeddings",
    ),
    "LlamaForCausalLM": Architecture(
        "llama:LlamaModel",
        "Llama, and models of its shape (SmolLM2, ...)",
        ("llama",),
    ),
    "LongcatFlashForCausalLM": Architecture(
        "longcat_flash:LongcatFlashModel", "LongCat-Flash", ("longcat_flash",)
    ),
    "MPTForCausalLM": Architecture("mpt:MptModel", "MPT, as first saved", ()),
    "Mamba2ForCausalLM": Architecture("mamba2:Mamba2Model", "Mamba-2", ("mamba2",)),
    "MambaForCausalLM": Architecture("mamba:MambaModel", "Mamba", ("mamba",)),
    "MellumForCausalLM": Architecture("mellum:MellumModel", "Mellum 2", ("mellum",)),
    "MiMoForCausalLM": Architecture("mimo:MiMoModel", "MiMo", ("mimo",)),
    "MiMoV2FlashForCausalLM": Architecture("mimo_v2:MiMoV2Model", "MiMo V2", ("mimo_v2_flash",)),
    "MiniCPM3ForCausalLM": Architecture("minicpm3:MiniCpm3Model", "MiniCPM3", ("minicpm3",)),
    "MiniCPMForCausalLM": Architecture("minicpm:MiniCpmModel", "MiniCPM", ("minicpm",)),
    "MiniMaxForCausalLM": Architecture("minimax:MiniMaxModel", "MiniMax-Text-01", ("minimax",)),
    "MiniMaxM1ForCausalLM": Architecture("minimax:MiniMaxModel", "MiniMax-M1", ("minimax_m1",)),
    "MiniMaxM2ForCausalLM": Architecture(
        "minimax_m2:MiniMaxM2Model", "MiniMax-M2", ("minimax_m2",), tensor_parallel="partly"
    ),
    "MiniMaxText01ForCausalLM": Architecture(
        "minimax:MiniMaxModel", "MiniMax-Text-01, as first saved", ("minimax_text_01",)
    ),
    "Ministral3ForCausalLM": Architecture(
        "ministral3:Ministral3Model", "Ministral 3", ("ministral3",)
    ),
    "MinistralForCausalLM": Architecture("ministral:MinistralModel", "Ministral", ("ministral",)),
    "Mistral4ForCausalLM": Architecture("mistral4:Mistral4Model", "Mistral 4", ("mistral4",)),
    "MistralForCausalLM": Architecture("mistral:MistralModel", "Mistral", ("mistral",)),
    "MistralLarge4ForCausalLM": Architecture(
        "mistral_large4:MistralLarge4Model",
        "Mistral Large 4 (text)",
        ("mistral_large4_text",),
        cuts="some layers",
    ),
    "MixtralForCausalLM": Architecture("mixtral:MixtralModel", "Mixtral", ("mixtral",)),
    "ModernBertDecoderForCausalLM": Architecture(
        "modernbert_decoder:ModernBertDecoderModel", "Ettin decoders", ("modernbert-decoder",)
    ),
    "MptForCausalLM": Architecture("mpt:MptModel", "MPT", ("mpt",)),
    "MuseGlimmerForCausalLM": Architecture(
        "muse_glimmer:MuseGlimmerModel", "Muse Glimmer (text)", ("muse_glimmer_text",)
    ),
    "NanbeigeForCausalLM": Architecture("nanbeige:NanbeigeModel", "Nanbeige 4.2", ("nanbeige",)),
    "NanoChatForCausalLM": Architecture("nanochat:NanochatModel", "nanochat", ("nanochat",)),
    "NemotronForCausalLM": Architecture(
        "nemotron:NemotronModel", "Nemotron, Minitron", ("nemotron",)
    ),
    "NemotronHForCausalLM": Architecture(
        "nemotron_h:NemotronHModel", "Nemotron-H, Nemotron 3", ("nemotron_h",)
    ),
    "OPTForCausalLM": Architecture("opt:OptModel", "OPT", ("opt",)),
    "Olmo2ForCausalLM": Architecture(
        "olmo2:Olmo2Model", "OLMo 2", ("olmo2",), tensor_parallel="partly"
    ),
    "Olmo3ForCausalLM": Architecture(
        "olmo3:Olmo3Model", "OLMo 3", ("olmo3",), tensor_parallel="partly"
    ),
    "OlmoForCausalLM": Architecture("olmo:OlmoModel", "OLMo", ("olmo",)),
    "OlmoHybridForCausalLM": Architecture(
        "olmo_hybrid:OlmoHybridModel", "OLMo Hybrid", ("olmo_hybrid",), tensor_parallel="partly"
    ),
    "OlmoeForCausalLM": Architecture(
        "olmoe:OlmoeModel", "OLMoE", ("olmoe",), tensor_parallel="partly"
    ),
    "OpenAIGPTLMHeadModel": Architecture("openai_gpt:OpenAiGptModel", "GPT", ("openai-gpt",)),
    "OpenAIPrivacyFilterModel": Architecture(
        "gpt_oss:PrivacyFilterModel",
        "OpenAI's privacy filter",
        ("openai_privacy_filter",),
        "embeddings",
    ),
    "OrionForCausalLM": Architecture("orion:OrionModel", "Orion", ("orion",)),
    "OuroForCausalLM": Architecture("ouro:OuroModel", "Ouro", ("ouro",)),
    "PanguEmbeddedForCausalLM": Architecture(
        "internlm:InternLmModel", "openPangu, dense", ("PanguEmbedded",)
    ),
    "Param2MoEForCausalLM": Architecture(
        "bailing_moe_v2:BailingMoeV2Model", "Param2", ("param2moe",)
    ),
    "PersimmonForCausalLM": Architecture("persimmon:PersimmonModel", "Persimmon", ("persimmon",)),
    "Phi3ForCausalLM": Architecture("phi3:Phi3Model", "Phi-3 and Phi-4", ("phi3",)),
    "PhiForCausalLM": Architecture("phi:PhiModel", "Phi-1 and Phi-2", ("phi",)),
    "PhiMoEForCausalLM": Architecture("phimoe:PhiMoeModel", "Phi-3.5-MoE", ()),
    "PhimoeForCausalLM": Architecture("phimoe:PhiMoeModel", "Phi-3.5-MoE", ("phimoe",)),
    "Plamo2ForCausalLM": Architecture("plamo2:Plamo2Model", "PLaMo 2", ("plamo2",)),
    "Plamo3ForCausalLM": Architecture("plamo3:Plamo3Model", "PLaMo 3", ("plamo3",)),
    "QWenLMHeadModel": Architecture("qwen:QwenModel", "Qwen", ("qwen",)),
    "Qwen2ForCausalLM": Architecture("qwen2:Qwen2Model", "Qwen2 and Qwen2.5", ("qwen2",)),
    "Qwen2MoeForCausalLM": Architecture(
        "qwen2_moe:Qwen2MoeModel", "Qwen2, experts", ("qwen2_moe",)
    ),
    "Qwen3ForCausalLM": Architecture("qwen3:Qwen3Model", "Qwen3", ("qwen3",)),
    "Qwen3MoeForCausalLM": Architecture(
        "qwen3_moe:Qwen3MoeModel", "Qwen3, experts", ("qwen3_moe",)
    ),
    "Qwen3NextForCausalLM": Architecture(
        "qwen3_next:Qwen3NextModel", "Qwen3-Next", ("qwen3_next",)
    ),
    "Qwen3_5ForCausalLM": Architecture(
        "qwen3_next:Qwen3NextModel", "Qwen3.5 (text)", ("qwen3_5_text",)
    ),
    "Qwen3_5MoeForCausalLM": Architecture(
        "qwen3_next:Qwen3NextModel", "Qwen3.5, experts (text)", ("qwen3_5_moe_text",)
    ),
    "RWForCausalLM": Architecture(
        "falcon:FalconModel", "Falcon, as first saved", ("RefinedWeb", "RefinedWebModel")
    ),
    "RWKV7ForCausalLM": Architecture("rwkv7:Rwkv7Model", "RWKV-7", ("rwkv7",)),
    "RecurrentGemmaForCausalLM": Architecture(
        "recurrent_gemma:RecurrentGemmaModel", "RecurrentGemma", ("recurrent_gemma",)
    ),
    "Rwkv5ForCausalLM": Architecture("rwkv5:Rwkv5Model", "RWKV-5", ("rwkv5",)),
    "Rwkv6ForCausalLM": Architecture("rwkv6:Rwkv6Model", "RWKV-6", ("rwkv6",)),
    "RwkvForCausalLM": Architecture("rwkv:RwkvModel", "RWKV-4", ("rwkv",)),
    "SarvamMoEForCausalLM": Architecture(
        "bailing_moe_v2:BailingMoeV2Model", "Sarvam 2 30B", ("sarvam_moe",)
    ),
    "SeedOssForCausalLM": Architecture("seed_oss:SeedOssModel", "Seed-OSS", ("seed_oss",)),
    "SmolLM3ForCausalLM": Architecture("smollm3:SmolLm3Model", "SmolLM3", ("smollm3",)),
    "SolarOpenForCausalLM": Architecture(
        "solar_open:SolarOpenModel", "Solar Open", ("solar_open",)
    ),
    "StableLMEpochForCausalLM": Architecture(
        "stablelm:StableLmModel", "StableLM, as first saved", ("stablelm_epoch",)
    ),
    "StableLmForCausalLM": Architecture("stablelm:StableLmModel", "StableLM", ("stablelm",)),
    "Starcoder2ForCausalLM": Architecture(
        "starcoder2:Starcoder2Model", "StarCoder2", ("starcoder2",)
    ),
    "Step3TextForCausalLM": Architecture("step3:Step3Model", "Step 3 (text)", ("step3_text",)),
    "Step3p5ForCausalLM": Architecture("step3p5:Step3p5Model", "Step 3.5", ("step3p5",)),
    "TeleChat2ForCausalLM": Architecture("telechat2:TeleChat2Model", "TeleChat2", ("telechat",)),
    "TeleChat3ForCausalLM": Architecture("llama:LlamaModel", "TeleChat3", ("telechat3",)),
    "TeleChatForCausalLM": Architecture("telechat2:TeleChat2Model", "TeleChat", ()),
    "TeleFLMForCausalLM": Architecture("teleflm:TeleFlmModel", "Tele-FLM", ("teleflm",)),
    "VaultGemmaForCausalLM": Architecture(
        "vaultgemma:VaultGemmaModel", "VaultGemma", ("vaultgemma",)
    ),
    "XGLMForCausalLM": Architecture("xglm:XglmModel", "XGLM", ("xglm",)),
    "XverseForCausalLM": Architecture("llama:LlamaModel", "XVERSE", ("xverse",)),
    "YoutuForCausalLM": Architecture("youtu:YoutuModel", "Youtu-LLM", ("youtu",)),
    "Zamba2ForCausalLM": Architecture("zamba2:Zamba2Model", "Zamba2", ("zamba2",)),
}

_LOGGER = logging.getLogger("pagemill.models")
GROUP = "pagemill.models"
"""Entry points of other packages whose values are further rows."""

ARCHITECTURES = dict(sorted((DECODERS | ENCODERS | ENCODER_DECODERS | MULTIMODAL).items()))

# The ends of names of architectures, and what a checkpoint of that kind is for.
_ROWS = ("ForCausalLM", "LMHeadModel", "Model", "ForConditionalGeneration", "")
_OF_ENCODERS = ("ForMaskedLM", "ForPreTraining")
_KINDS = {
    "ForMaskedLM": Task.EMBED,
    "ForPreTraining": Task.EMBED,
    "ForProcessRewardModel": Task.TOKEN_CLASSIFY,
    "ForRewardModel": Task.TOKEN_CLASSIFY,
    "ForSequenceClassification": Task.CLASSIFY,
    "ForTokenClassification": Task.TOKEN_CLASSIFY,
    "TextForSequenceClassification": Task.CLASSIFY,
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
    found = _find(architecture, ARCHITECTURES.get)
    if found is None:
        installed = {entry.name: entry for entry in entries(GROUP)}
        found = _find(
            architecture, lambda name: _row(installed[name]) if name in installed else None
        )
    if found is not None:
        return found
    alike = difflib.get_close_matches(architecture[:60], ARCHITECTURES, 3)
    hint = f"similar ones are {', '.join(alike)}; " if alike else ""
    raise ModelConfigError(
        f"unknown architecture {architecture!r:.60}; {hint}`pagemill models` lists those known"
    )


def _find(architecture: str, rows: Callable[[str], Architecture | None]) -> Found | None:
    row = rows(architecture)
    if row is not None:
        return Found(row, Task.EMBED if row.embeds else Task.GENERATE)
    for end, task in _KINDS.items():
        stem = architecture.removesuffix(end)
        for row in (rows(stem + kind) for kind in _ROWS if stem != architecture):
            if row is not None and (row.embeds or end not in _OF_ENCODERS):
                return Found(row, task)
    return None


def _row(entry: EntryPoint) -> Architecture:
    row = loaded(entry)
    if not isinstance(row, Architecture):
        raise ModelConfigError(
            f"the plugin {entry.name} ({GROUP}) is a {type(row).__name__}, not an Architecture"
        )
    return row


def installed_architectures() -> dict[str, Architecture]:
    """Rows of installed packages; the log says which of them cannot be used."""
    rows: dict[str, Architecture] = {}
    for entry in entries(GROUP):
        try:
            rows[entry.name] = _row(entry)
        except (ConfigError, ModelConfigError) as error:
            _LOGGER.warning("%s", error)
    return rows


def architecture_of(model_type: object) -> str:
    """The architecture of configurations that name none, by their `model_type`.

    Raises:
        ModelConfigError: none is known.
    """
    for rows in (lambda: ARCHITECTURES, installed_architectures):
        for name, row in rows().items():
            if model_type in row.model_types:
                return name
    raise ModelConfigError(
        f"the configuration names no architecture, and model_type {model_type!r:.60} is unknown;"
        ' name one by --hf-overrides \'{"architectures": ["..."]}\''
    )


def model_class(architecture: str) -> type[Model]:
    """The family of `architecture`.

    Raises:
        ModelConfigError: none is known.
    """
    row = find(architecture).row
    module, _, name = row.location.partition(":")
    return getattr(importlib.import_module(f"{row.package}.{module}"), name)
