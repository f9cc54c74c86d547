"""Models of text with media by the architecture in a config.json."""

from __future__ import annotations

from pagemill.models.architecture import Architecture

MULTIMODAL: dict[str, Architecture] = {
    "AriaForConditionalGeneration": Architecture(
        "multimodal.aria:AriaModel", "Aria", ("aria",), "text and images"
    ),
    "AudioFlamingo3ForConditionalGeneration": Architecture(
        "multimodal.audio_flamingo3:AudioFlamingo3Model",
        "Audio Flamingo 3",
        ("audioflamingo3",),
        "text and audio",
    ),
    "AyaVisionForConditionalGeneration": Architecture(
        "multimodal.cohere_vision:AyaVisionModel", "Aya Vision", ("aya_vision",), "text and images"
    ),
    "CLIPModel": Architecture(
        "multimodal.clip:ClipModel", "CLIP", ("clip",), "embeddings of text and images"
    ),
    "Cohere2VisionForConditionalGeneration": Architecture(
        "multimodal.cohere_vision:Cohere2VisionModel",
        "Command A Vision",
        ("cohere2_vision",),
        "text and images",
    ),
    "CohereAsrForConditionalGeneration": Architecture(
        "multimodal.cohere_asr:CohereAsrModel",
        "Cohere Transcribe",
        ("cohere_asr",),
        "text of audio",
    ),
    "CohereCompassForConditionalGeneration": Architecture(
        "multimodal.cohere_compass_media:CohereCompassMediaModel",
        "North",
        ("cohere_compass",),
        "text, images and videos",
    ),
    "ColModernVBertForRetrieval": Architecture(
        "multimodal.colmodernvbert:ColModernVBertModel",
        "ColModernVBERT",
        ("colmodernvbert",),
        "embeddings of text and images",
    ),
    "ColPaliForRetrieval": Architecture(
        "multimodal.retrieval:ColPaliModel",
        "ColPali",
        ("colpali",),
        "embeddings of text and images",
    ),
    "ColQwen2ForRetrieval": Architecture(
        "multimodal.retrieval:ColQwen2Model",
        "ColQwen2",
        ("colqwen2",),
        "embeddings of text and images",
    ),
    "ColQwen3": Architecture(
        "multimodal.retrieval:ColQwen3Model",
        "ColQwen3",
        ("colqwen3",),
        "embeddings of text and images",
    ),
    "DeepseekOCRForCausalLM": Architecture(
        "multimodal.deepseek_ocr:DeepseekOcrModel", "DeepSeek-OCR", (), "text and images"
    ),
    "DeepseekOcr2ForConditionalGeneration": Architecture(
        "multimodal.deepseek_ocr2:DeepseekOcr2Model",
        "DeepSeek-OCR 2",
        ("deepseek_ocr2",),
        "text and images",
    ),
    "DeepseekVLForConditionalGeneration": Architecture(
        "multimodal.deepseek_vl:DeepseekVlModel", "DeepSeek-VL", ("deepseek_vl",), "text and images"
    ),
    "DeepseekVLHybridForConditionalGeneration": Architecture(
        "multimodal.deepseek_vl_hybrid:DeepseekVlHybridModel",
        "DeepSeek-VL with two towers",
        ("deepseek_vl_hybrid",),
        "text and images",
    ),
    "Ernie4_5_VLMoeForConditionalGeneration": Architecture(
        "multimodal.ernie4_5_vl:Ernie45VlModel",
        "ERNIE 4.5 VL",
        ("ernie4_5_vl_moe",),
        "text, images and videos",
    ),
    "Exaone4_5_ForConditionalGeneration": Architecture(
        "multimodal.exaone4_5:Exaone45Model",
        "EXAONE 4.5",
        ("exaone4_5",),
        "text, images and videos",
    ),
    "Gemma3ForConditionalGeneration": Architecture(
        "multimodal.gemma3_media:Gemma3MediaModel", "Gemma 3", ("gemma3",), "text and images"
    ),
    "Gemma3nForConditionalGeneration": Architecture(
        "multimodal.language_part:Gemma3nLanguagePart",
        "Gemma 3n with images and sound; its text",
        ("gemma3n",),
        tensor_parallel="partly",
        cuts="some layers",
    ),
    "Gemma4ForConditionalGeneration": Architecture(
        "multimodal.gemma4_omni:Gemma4OmniModel",
        "Gemma 4",
        ("gemma4",),
        "text, images, videos and audio",
        cuts="some layers",
    ),
    "Gemma4UnifiedForConditionalGeneration": Architecture(
        "multimodal.gemma4_media:Gemma4UnifiedModel",
        "Gemma 4 12B",
        ("gemma4_unified",),
        "text, images and videos",
        cuts="some layers",
    ),
    "Glm46VForConditionalGeneration": Architecture(
        "multimodal.glm4v:Glm46VModel", "GLM-4.6V", ("glm46v",), "text, images and videos"
    ),
    "Glm4vForConditionalGeneration": Architecture(
        "multimodal.glm4v:Glm4vModel", "GLM-4.1V", ("glm4v",), "text, images and videos"
    ),
    "Glm4vMoeForConditionalGeneration": Architecture(
        "multimodal.glm4v:Glm4vModel",
        "GLM-4.5V and 4.6V",
        ("glm4v_moe",),
        "text, images and videos",
    ),
    "GlmAsrForConditionalGeneration": Architecture(
        "multimodal.glm_asr:GlmAsrModel", "GLM-ASR", ("glmasr",), "text and audio"
    ),
    "GlmOcrForConditionalGeneration": Architecture(
        "multimodal.glm4v:GlmOcrModel", "GLM-OCR", ("glm_ocr",), "text, images and videos"
    ),
    "GotOcr2ForConditionalGeneration": Architecture(
        "multimodal.got_ocr2:GotOcr2Model", "GOT-OCR2", ("got_ocr2",), "text and images"
    ),
    "Granite4VisionForConditionalGeneration": Architecture(
        "multimodal.granite4_vision:Granite4VisionModel",
        "Granite 4 Vision",
        ("granite4_vision",),
        "text and images",
    ),
    "GraniteDoclingForConditionalGeneration": Architecture(
        "multimodal.granite_docling:GraniteDoclingModel",
        "Granite Docling",
        ("granite_docling",),
        "text and images",
    ),
    "GraniteSpeechForConditionalGeneration": Architecture(
        "multimodal.granite_speech:GraniteSpeechModel",
        "Granite Speech",
        ("granite_speech",),
        "text and audio",
    ),
    "GraniteSpeechPlusForConditionalGeneration": Architecture(
        "multimodal.granite_speech:GraniteSpeechModel",
        "Granite Speech Plus",
        ("granite_speech_plus",),
        "text and audio",
    ),
    "HCXVisionV2ForCausalLM": Architecture(
        "multimodal.hyperclovax_vision:HyperClovaXVisionModel",
        "HyperCLOVA X Vision 2, as published",
        (),
        "text, images and videos",
    ),
    "HyperCLOVAXVisionV2ForConditionalGeneration": Architecture(
        "multimodal.hyperclovax_vision:HyperClovaXVisionModel",
        "HyperCLOVA X Vision 2",
        ("hyperclovax_vision_v2",),
        "text, images and videos",
    ),
    "Idefics2ForConditionalGeneration": Architecture(
        "multimodal.idefics2:Idefics2Model", "Idefics2", ("idefics2",), "text and images"
    ),
    "Idefics3ForConditionalGeneration": Architecture(
        "multimodal.idefics3:Idefics3Model", "Idefics3", ("idefics3",), "text and images"
    ),
    "InternVLChatModel": Architecture(
        "multimodal.internvl_chat:InternVlChatModel",
        "InternVL 2 to 3.5, with its own code",
        ("internvl_chat",),
        "text and images",
    ),
    "InternVLForConditionalGeneration": Architecture(
        "multimodal.internvl:InternVlModel", "InternVL 3", ("internvl",), "text, images and videos"
    ),
    "JanusForConditionalGeneration": Architecture(
        "multimodal.deepseek_vl:JanusModel", "Janus, Janus-Pro", ("janus",), "text and images"
    ),
    "KimiK25ForConditionalGeneration": Architecture(
        "multimodal.kimi_vl:KimiK25Model", "Kimi K2.5 and K2.6", ("kimi_k25",), "text and images"
    ),
    "KimiVLForConditionalGeneration": Architecture(
        "multimodal.kimi_vl:KimiVlModel", "Kimi-VL", ("kimi_vl",), "text and images"
    ),
    "Lfm2VlForConditionalGeneration": Architecture(
        "multimodal.lfm2_vl:Lfm2VlModel", "LFM2-VL", ("lfm2_vl",), "text and images"
    ),
    "Lfm3VlForConditionalGeneration": Architecture(
        "multimodal.lfm3_vl:Lfm3VlModel", "LFM3-VL", ("lfm3_vl",), "text, images and videos"
    ),
    "LightOnOcrForConditionalGeneration": Architecture(
        "multimodal.lighton_ocr:LightOnOcrModel", "LightOnOCR", ("lighton_ocr",), "text and images"
    ),
    "Llama4ForConditionalGeneration": Architecture(
        "multimodal.llama4_media:Llama4MediaModel", "Llama 4", ("llama4",), "text and images"
    ),
    "LlavaForConditionalGeneration": Architecture(
        "multimodal.llava:LlavaModel", "LLaVA 1.5, Pixtral", ("llava",), "text and images"
    ),
    "LlavaNextForConditionalGeneration": Architecture(
        "multimodal.llava_next:LlavaNextModel",
        "LLaVA-Next, Granite Vision",
        ("llava_next",),
        "text and images",
    ),
    "LlavaNextVideoForConditionalGeneration": Architecture(
        "multimodal.llava_next_video:LlavaNextVideoModel",
        "LLaVA-NeXT-Video",
        ("llava_next_video",),
        "text, images and videos",
    ),
    "LlavaOnevisionForConditionalGeneration": Architecture(
        "multimodal.llava_onevision:LlavaOnevisionModel",
        "LLaVA-OneVision",
        ("llava_onevision",),
        "text, images and videos",
    ),
    "MetaClip2Model": Architecture(
        "multimodal.clip:ClipModel", "MetaCLIP 2", ("metaclip_2",), "embeddings of text and images"
    ),
    "MiniCPMOcrForConditionalGeneration": Architecture(
        "multimodal.minicpm_v:MiniCpmOcrModel",
        "MiniCPM-OCR",
        ("minicpm_ocr",),
        "text, images and videos",
    ),
    "MiniCPMV4_6ForConditionalGeneration": Architecture(
        "multimodal.minicpm_v:MiniCpmVModel",
        "MiniCPM-V 4.6",
        ("minicpmv4_6",),
        "text, images and videos",
    ),
    "MiniCPMV4_7ForConditionalGeneration": Architecture(
        "multimodal.language_part:MiniCpmV47LanguagePart",
        "MiniCPM-V 4.7; its text",
        ("minicpmv4_7",),
    ),
    "Mistral3ForConditionalGeneration": Architecture(
        "multimodal.pixtral:Mistral3Model",
        "Mistral Small 3.1, Ministral 3",
        ("mistral3",),
        "text and images",
    ),
    "MistralLarge4ForConditionalGeneration": Architecture(
        "multimodal.language_part:MistralLarge4LanguagePart",
        "Mistral Large 4; its text",
        ("mistral_large4",),
        cuts="some layers",
    ),
    "MossTranscribeDiarizeForConditionalGeneration": Architecture(
        "multimodal.moss_transcribe_diarize:MossTranscribeDiarizeModel",
        "MOSS-Transcribe-Diarize",
        ("moss_transcribe_diarize",),
        "text and audio",
    ),
    "MuseGlimmerForConditionalGeneration": Architecture(
        "multimodal.muse_glimmer_media:MuseGlimmerMediaModel",
        "Muse Glimmer",
        ("muse_glimmer",),
        "text, images and videos",
    ),
    "NemotronH_Omni_Reasoning_V3": Architecture(
        "multimodal.nemotron_omni:NemotronOmniModel",
        "Nemotron 3 Omni, without sound and videos",
        ("nemotron_h_omni",),
        "text and images",
    ),
    "Ovis2ForConditionalGeneration": Architecture(
        "multimodal.language_part:Ovis2LanguagePart", "Ovis2; its text", ("ovis2",)
    ),
    "PaddleOCRVLForConditionalGeneration": Architecture(
        "multimodal.paddleocr_vl:PaddleOcrVlModel",
        "PaddleOCR-VL",
        ("paddleocr_vl",),
        "text and images",
    ),
    "PaliGemmaForConditionalGeneration": Architecture(
        "multimodal.paligemma:PaliGemmaModel",
        "PaliGemma, PaliGemma 2",
        ("paligemma",),
        "text and images",
    ),
    "Phi4MultimodalForCausalLM": Architecture(
        "multimodal.phi4_multimodal:Phi4MultimodalModel",
        "Phi-4 multimodal",
        ("phi4_multimodal",),
        "text, images and audio",
    ),
    "QianfanOCRForConditionalGeneration": Architecture(
        "multimodal.internvl:QianfanOcrModel", "Qianfan-OCR", ("qianfan_ocr",), "text and images"
    ),
    "Qwen2AudioForConditionalGeneration": Architecture(
        "multimodal.qwen2_audio:Qwen2AudioModel", "Qwen2-Audio", ("qwen2_audio",), "text and audio"
    ),
    "Qwen2VLForConditionalGeneration": Architecture(
        "multimodal.qwen2_vl:Qwen2VlModel", "Qwen2-VL", ("qwen2_vl",), "text, images and videos"
    ),
    "Qwen2_5OmniForConditionalGeneration": Architecture(
        "multimodal.qwen2_5_omni:Qwen25OmniModel",
        "Qwen2.5-Omni, text",
        ("qwen2_5_omni",),
        "text, images, videos and audio",
    ),
    "Qwen2_5OmniModel": Architecture(
        "multimodal.qwen2_5_omni:Qwen25OmniModel",
        "Qwen2.5-Omni, text",
        (),
        "text, images, videos and audio",
    ),
    "Qwen2_5OmniThinkerForConditionalGeneration": Architecture(
        "multimodal.qwen2_5_omni:Qwen25OmniModel",
        "Qwen2.5-Omni's thinker",
        ("qwen2_5_omni_thinker",),
        "text, images, videos and audio",
    ),
    "Qwen2_5_VLForConditionalGeneration": Architecture(
        "multimodal.qwen2_vl:Qwen25VlModel",
        "Qwen2.5-VL",
        ("qwen2_5_vl",),
        "text, images and videos",
    ),
    "Qwen3ASRForConditionalGeneration": Architecture(
        "multimodal.qwen3_asr:Qwen3AsrModel", "Qwen3-ASR", ("qwen3_asr",), "text and audio"
    ),
    "Qwen3OmniMoeForConditionalGeneration": Architecture(
        "multimodal.qwen3_omni:Qwen3OmniModel",
        "Qwen3-Omni",
        ("qwen3_omni_moe",),
        "text, images, videos and audio",
    ),
    "Qwen3OmniMoeThinkerForConditionalGeneration": Architecture(
        "multimodal.qwen3_omni:Qwen3OmniModel",
        "Qwen3-Omni's thinker",
        ("qwen3_omni_moe_thinker",),
        "text, images, videos and audio",
    ),
    "Qwen3VLForConditionalGeneration": Architecture(
        "multimodal.qwen3_vl:Qwen3VlModel", "Qwen3-VL", ("qwen3_vl",), "text, images and videos"
    ),
    "Qwen3VLMoeForConditionalGeneration": Architecture(
        "multimodal.qwen3_vl:Qwen3VlModel",
        "Qwen3-VL, experts",
        ("qwen3_vl_moe",),
        "text, images and videos",
    ),
    "Qwen3_5ForConditionalGeneration": Architecture(
        "multimodal.qwen3_5:Qwen35Model", "Qwen3.5", ("qwen3_5",), "text, images and videos"
    ),
    "Qwen3_5MoeForConditionalGeneration": Architecture(
        "multimodal.qwen3_5:Qwen35Model",
        "Qwen3.5, experts",
        ("qwen3_5_moe",),
        "text, images and videos",
    ),
    "Siglip2Model": Architecture(
        "multimodal.siglip:Siglip2Model",
        "SigLIP 2, images of any size",
        ("siglip2",),
        "embeddings of text and images",
    ),
    "SiglipModel": Architecture(
        "multimodal.siglip:SiglipModel",
        "SigLIP, SigLIP 2",
        ("siglip",),
        "embeddings of text and images",
    ),
    "SmolVLMForConditionalGeneration": Architecture(
        "multimodal.idefics3:Idefics3Model", "SmolVLM", ("smolvlm",), "text and images"
    ),
    "Step3VLForConditionalGeneration": Architecture(
        "multimodal.language_part:Step3LanguagePart", "Step 3; its text", ("step3_vl",)
    ),
    "Step3p7ForConditionalGeneration": Architecture(
        "multimodal.language_part:Step3p7LanguagePart", "Step 3.7; its text", ("step3p7",)
    ),
    "VideoLlama3ForConditionalGeneration": Architecture(
        "multimodal.video_llama3:VideoLlama3Model",
        "VideoLLaMA 3",
        ("video_llama_3",),
        "text, images and videos",
    ),
    "VideoLlavaForConditionalGeneration": Architecture(
        "multimodal.video_llava:VideoLlavaModel",
        "Video-LLaVA",
        ("video_llava",),
        "text, images and videos",
    ),
    "VipLlavaForConditionalGeneration": Architecture(
        "multimodal.llava:VipLlavaModel", "ViP-LLaVA", ("vipllava",), "text and images"
    ),
    "VisionEncoderDecoderModel": Architecture(
        "multimodal.vision_encoder_decoder:VisionEncoderDecoderModel",
        "TrOCR, Donut",
        ("vision-encoder-decoder",),
        "text of images",
    ),
    "VoxtralForConditionalGeneration": Architecture(
        "multimodal.voxtral:VoxtralModel", "Voxtral", ("voxtral",), "text and audio"
    ),
    "WhisperForConditionalGeneration": Architecture(
        "multimodal.whisper:WhisperModel", "Whisper", ("whisper",), "text of audio"
    ),
}
