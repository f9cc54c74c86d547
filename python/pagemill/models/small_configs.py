"""Configurations of small models for tests of the table of architectures."""

from __future__ import annotations

from typing import Any

DECODER: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "sliding_window": 8,
}
# The same sizes under the names of older families.
OTHER_NAMES: dict[str, Any] = {
    "n_embd": 64,
    "n_layer": 4,
    "n_head": 4,
    "n_positions": 128,
    "num_layers": 4,
    "num_heads": 4,
    "attention_heads": 4,
    "attention_types": [[["global", "local"], 2]],
    "ffn_dim": 96,
    "d_model": 64,
    "n_layers": 4,
    "n_heads": 4,
    "max_seq_len": 128,
    "seq_length": 128,
    "rotary_dim": 16,
}
JAIS = {"activation_function": "swiglu", "position_embedding_type": "alibi"}
HAS_OTHER_NAMES = (
    "Bloom",
    "CodeGen",
    "Dbrx",
    "ExaoneForCausalLM",
    "GPT",
    "MPT",
    "Mpt",
    "OPT",
    "OpenAIGPT",
    "XGLM",
)
DISTILBERT = {"dim": 64, "hidden_dim": 96, "n_layers": 4, "n_heads": 4}
PADDED = DECODER | {"max_position_embeddings": 128 + 2}  # the first two are not of tokens


VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}
LLAVA = {"text_config": DECODER, "vision_config": VISION, "image_token_index": 99}
GEMMA3 = {
    "text_config": DECODER | {"model_type": "gemma3_text"},
    "vision_config": VISION,
    "image_token_index": 99,
    "mm_tokens_per_image": 1,
}
INTERNVL = {
    "text_config": DECODER | {"model_type": "qwen2"},
    "vision_config": VISION,
    "image_token_id": 99,
}
AYA = {
    "text_config": DECODER | {"model_type": "cohere2"},
    "vision_config": VISION,
    "image_token_index": 99,
    "image_token_id": 99,
}
LLAMA4_VISION = VISION | {
    "intermediate_size": 128,
    "vision_output_dim": 40,
    "projector_input_dim": 40,
    "projector_output_dim": 40,
}
LLAMA4 = {
    "text_config": DECODER | {"model_type": "llama4_text"},
    "vision_config": LLAMA4_VISION,
    "image_token_index": 99,
}
LLAVA_NEXT = LLAVA | {"image_grid_pinpoints": [[8, 16], [16, 8]]}
GRANITE4_VISION = LLAVA | {
    "image_grid_pinpoints": [[32, 64]],
    "text_config": DECODER | {"model_type": "granite4_vision_text", "num_hidden_layers": 8},
    "vision_config": VISION
    | {
        "model_type": "siglip_vision_model",
        "hidden_size": 64,
        "image_size": 32,
        "num_hidden_layers": 4,
    },
    "qformer_config": {"num_hidden_layers": 1, "intermediate_size": 96},
    "vision_feature_select_strategy": "full",
    "downsample_rate": "2/4",
    "deepstack_layer_map": [[-1, 0]],
    "spatial_target_layers": [1, 2, 3, 4],
}
LLAVA_ONEVISION = LLAVA_NEXT | {
    "text_config": DECODER | {"model_type": "qwen2"},
    "vision_config": VISION | {"model_type": "siglip_vision_model"},
}
IDEFICS3 = {"text_config": DECODER, "vision_config": VISION, "image_token_id": 99}
JANUS_VISION = VISION | {"model_type": "janus_vision_model", "projection_dim": 64}
SAM_VISION = VISION | {"image_size": 32, "window_size": 3, "global_attn_indexes": [1]}
DEEPSEEK_OCR2 = {
    "text_config": DECODER
    | {
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    },
    "vision_config": {
        "sam_config": SAM_VISION
        | {"image_size": 128, "patch_size": 2, "downsample_channels": [12, 32]},
        "encoder_config": VISION | {"num_key_value_heads": 2},
    },
    "image_token_id": 99,
}
DEEPSEEK_OCR = {
    "language_config": DECODER
    | {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "use_mla": False,
    },
    "vision_config": {
        "image_size": 128,
        "width": {
            "sam_vit_b": {
                "width": 32,
                "heads": 2,
                "patch_size": 2,
                "downsample_channels": [12, 32],
            },
            "clip-l-14-224": {"width": 32, "heads": 2},
        },
    },
    "image_token_id": 99,
}
GOT_OCR2 = {
    "text_config": DECODER | {"num_key_value_heads": 2, "model_type": "qwen2"},
    "vision_config": SAM_VISION,
    "image_token_id": 99,
}
LIGHTON_OCR = IDEFICS3 | {"text_config": DECODER | {"model_type": "qwen3"}}
KIMI_VL = {
    "text_config": DECODER | {"model_type": "deepseek_v3"},
    "vision_config": {"hidden_size": 32, "num_attention_heads": 2, "init_pos_emb_height": 64},
    "media_placeholder_token_id": 99,
}
IDEFICS2 = {
    "text_config": DECODER | {"model_type": "mistral", "num_key_value_heads": 2},
    "vision_config": VISION,
    "perceiver_config": {"hidden_size": 64},
    "image_token_id": 99,
}
ARIA = LLAVA | {"text_config": DECODER | {"model_type": "aria_text", "num_key_value_heads": 4}}
LFM3_VL = {
    "text_config": DECODER | {"model_type": "lfm3", "head_dim": 16, "num_key_value_heads": 2},
    "vision_config": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "patch_size": 4,
    },
    "projector_hidden_size": 40,
    "image_token_id": 98,
    "video_token_id": 99,
}
LFM2_VL = {
    "text_config": DECODER | {"model_type": "lfm2", "num_key_value_heads": 2},
    "vision_config": {"hidden_size": 32, "num_attention_heads": 2, "patch_size": 4},
    "image_token_id": 99,
}
QWEN2_VL_VISION = {"embed_dim": 32, "hidden_size": 64, "depth": 1, "num_heads": 2, "patch_size": 4}
MROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}
QWEN2_VL = DECODER | {
    "rope_scaling": MROPE,
    "vision_config": QWEN2_VL_VISION,
    "image_token_id": 99,
}
PADDLEOCR_VL = QWEN2_VL | {"model_type": "paddleocr_vl", "vision_config": VISION}
QWEN2_5_VL_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "out_hidden_size": 64,
    "depth": 1,
    "num_heads": 2,
    "patch_size": 4,
}
HYPERCLOVAX_VISION = QWEN2_VL | {
    "text_config": DECODER | {"model_type": "hyperclovax"},
    "vision_config": QWEN2_5_VL_VISION,
    "video_token_id": 98,
}
PALIGEMMA = LLAVA | {"text_config": DECODER | {"model_type": "gemma", "num_key_value_heads": 4}}
QWEN3_VL = {
    "text_config": DECODER
    | {"model_type": "qwen3_vl_text", "rope_scaling": MROPE | {"mrope_interleaved": True}},
    "image_token_id": 99,
}
ERNIE_ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]}
ERNIE_VL = {
    "text_config": DECODER | {"model_type": "ernie4_5_vl_moe_text", "rope_parameters": ERNIE_ROPE},
    "vision_config": {"hidden_size": 32, "num_heads": 2, "depth": 1, "patch_size": 4},
    "image_token_id": 99,
    "image_start_token_id": 97,
    "image_end_token_id": 98,
    "video_token_id": 96,
    "video_start_token_id": 94,
    "video_end_token_id": 95,
}
GEMMA3N = DECODER | {
    "model_type": "gemma3n_text",
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
}
QWEN3_5_TEXT = DECODER | {"model_type": "qwen3_5_text"}
MINICPM_V = {
    "text_config": QWEN3_5_TEXT,
    "vision_config": VISION,
    "image_token_id": 99,
    "insert_layer_id": 1,
}
CHATGLM = {
    "padded_vocab_size": 100,
    "ffn_hidden_size": 96,
    "num_layers": 4,
    "kv_channels": 16,
    "seq_length": 128,
}
DECILM = {"num_key_value_heads_per_layer": [4, 2, 1, 2]}
NAS_BLOCK: dict[str, Any] = {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.5}}
STEP3_TEXT = DECODER | {"sliding_window": None, "moe_layers_enum": "2,3", "head_dim": 16}
STEP3P5 = DECODER | {"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 2, "num_attention_groups": 2}
T5 = DECODER | {"d_model": 64, "d_ff": 96, "num_layers": 4, "num_heads": 4, "n_positions": 128}
TELECHAT = {"n_layer": 4, "n_head": 4, "ffn_hidden_size": 96, "training_seqlen": 128}
AUDIO = {
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "num_mel_bins": 8,
    "max_source_positions": 20,
}
QWEN2_AUDIO = {
    "text_config": DECODER | {"model_type": "qwen2", "num_key_value_heads": 2},
    "audio_config": AUDIO,
    "audio_token_index": 99,
}
VOXTRAL_AUDIO = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "num_mel_bins": 8,
    "max_source_positions": 20,
}
VOXTRAL = {
    "text_config": DECODER | {"num_key_value_heads": 2},
    "audio_config": VOXTRAL_AUDIO,
    "audio_token_id": 99,
}
GLM_ASR_AUDIO = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "num_mel_bins": 8,
    "max_position_embeddings": 20,
}
GLM_ASR = {
    "text_config": DECODER | {"num_key_value_heads": 2},
    "audio_config": GLM_ASR_AUDIO,
    "audio_token_id": 99,
}
MOSS_TRANSCRIBE = {
    "text_config": DECODER | {"model_type": "qwen3", "num_key_value_heads": 2},
    "audio_config": VOXTRAL_AUDIO,
    "audio_token_id": 99,
}
GRANITE_SPEECH = {
    "text_config": DECODER | {"model_type": "granite", "num_key_value_heads": 2},
    "encoder_config": {
        "input_dim": 16,
        "num_layers": 2,
        "hidden_dim": 32,
        "feedforward_mult": 2,
        "num_heads": 2,
        "output_dim": 5,
        "context_size": 8,
        "max_pos_emb": 10,
        "conv_kernel_size": 5,
    },
    "projector_config": {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 40,
        "encoder_hidden_size": 32,
    },
    "audio_token_index": 99,
}
OMNI_AUDIO = AUDIO | {"n_window": 4, "output_dim": 64}
OMNI_THINKER = {
    "text_config": DECODER | {"num_key_value_heads": 2, "rope_scaling": MROPE},
    "vision_config": QWEN2_5_VL_VISION | {"fullatt_block_indexes": [0]},
    "audio_config": OMNI_AUDIO,
    "image_token_index": 98,
    "audio_token_index": 99,
}
QWEN3_AUDIO = OMNI_AUDIO | {"n_window_infer": 16, "downsample_hidden_size": 4}
QWEN3_OMNI = {
    "text_config": DECODER | {"model_type": "qwen3_omni_moe_text", "rope_scaling": MROPE},
    "vision_config": QWEN2_5_VL_VISION | {"deepstack_visual_indexes": [0]},
    "image_token_id": 99,
    "audio_config": QWEN3_AUDIO,
    "audio_token_id": 98,
}
QWEN3_ASR = {
    "text_config": DECODER | {"model_type": "qwen3", "head_dim": 16, "num_key_value_heads": 2},
    "audio_config": QWEN3_AUDIO,
    "audio_token_id": 99,
}
WHISPER = {
    "vocab_size": 100,
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 96,
    "max_source_positions": 28,
    "max_target_positions": 100,
    "pad_token_id": 99,
}
COHERE_ASR = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "pad_token_id": 99,
    "encoder_config": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "subsampling_conv_channels": 8,
        "num_mel_bins": 8,
    },
}
_DECODER_IDS = {"vocab_size": 100, "pad_token_id": 0, "decoder_start_token_id": 0}
BART = _DECODER_IDS | {
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 64,
}
TROCR = {
    "encoder": VISION | {"model_type": "vit"},
    "decoder": BART
    | {
        "model_type": "trocr",
        "cross_attention_hidden_size": 32,
        "max_position_embeddings": 123,  # an image has 5 tokens
    },
}
T5_DECODER = T5 | _DECODER_IDS | {"n_positions": 64}
T5GEMMA = DECODER | {"max_position_embeddings": 64, "sliding_window": 64}
PHI4_AUDIO = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_blocks": 1,
    "num_attention_heads": 2,
    "ext_pw_out_channel": 16,
    "depthwise_separable_out_channel": 16,
    "input_size": 8,
    "nemo_conv_channels": 8,
    "audio_token_id": 98,
}
CLIP = {
    "text_config": DECODER | {"vocab_size": 99},
    "vision_config": VISION,
    "projection_dim": 64,
}
SIGLIP = CLIP | {"vision_config": VISION | {"hidden_size": 64}}
CONFIGS = {
    "AyaVisionForConditionalGeneration": AYA,
    "Cohere2VisionForConditionalGeneration": AYA,
    "BartForConditionalGeneration": BART,
    "CohereAsrForConditionalGeneration": COHERE_ASR,
    "BlenderbotForConditionalGeneration": BART,
    "BlenderbotSmallForConditionalGeneration": BART,
    "LongT5ForConditionalGeneration": T5_DECODER,
    "M2M100ForConditionalGeneration": BART,
    "MBartForConditionalGeneration": BART,
    "MT5ForConditionalGeneration": T5_DECODER,
    "MarianMTModel": BART,
    "PLBartForConditionalGeneration": BART,
    "PegasusForConditionalGeneration": BART,
    "T5ForConditionalGeneration": T5_DECODER,
    "T5GemmaForConditionalGeneration": {"encoder": T5GEMMA, "decoder": T5GEMMA} | _DECODER_IDS,
    "UMT5ForConditionalGeneration": T5_DECODER,
    "ChatGLMForConditionalGeneration": DECODER | CHATGLM,
    "ChatGLMModel": DECODER | CHATGLM,
    "CamembertModel": PADDED,
    "Data2VecTextModel": PADDED,
    "CohereCompassForConditionalGeneration": {
        "text_config": DECODER | {"model_type": "cohere_compass_text"}
    },
    "DistilBertModel": DECODER | DISTILBERT,
    "EsmModel": PADDED,
    "Ernie4_5_VLMoeForConditionalGeneration": ERNIE_VL,
    "Exaone4_5_ForConditionalGeneration": {"text_config": DECODER | {"model_type": "exaone4"}},
    "Glm46VForConditionalGeneration": {"text_config": DECODER | {"model_type": "glm4v_text"}},
    "Glm4vForConditionalGeneration": {"text_config": DECODER | {"model_type": "glm4v_text"}},
    "Glm4vMoeForConditionalGeneration": {"text_config": DECODER | {"model_type": "glm4v_moe_text"}},
    "AriaForConditionalGeneration": ARIA,
    "AudioFlamingo3ForConditionalGeneration": QWEN2_AUDIO
    | {"audio_config": VOXTRAL_AUDIO, "audio_token_id": 99},
    "GlmAsrForConditionalGeneration": GLM_ASR,
    "GlmOcrForConditionalGeneration": {"text_config": DECODER | {"model_type": "glm_ocr_text"}},
    "GraniteSpeechForConditionalGeneration": GRANITE_SPEECH,
    "GraniteSpeechPlusForConditionalGeneration": GRANITE_SPEECH,
    "Idefics2ForConditionalGeneration": IDEFICS2,
    "Idefics3ForConditionalGeneration": IDEFICS3,
    "InternVLChatModel": {
        "llm_config": INTERNVL["text_config"],
        "vision_config": VISION,
        "image_token_id": 99,
    },
    "InternVLForConditionalGeneration": INTERNVL,
    "Llama4ForConditionalGeneration": LLAMA4,
    "LlavaForConditionalGeneration": LLAVA,
    "LlavaNextForConditionalGeneration": LLAVA_NEXT,
    "LlavaNextVideoForConditionalGeneration": LLAVA_NEXT | {"video_token_index": 98},
    "LlavaOnevisionForConditionalGeneration": LLAVA_ONEVISION,
    "DeciLMForCausalLM": DECODER | DECILM,
    "DeepseekOCRForCausalLM": DEEPSEEK_OCR,
    "DeepseekOcr2ForConditionalGeneration": DEEPSEEK_OCR2,
    "DeepseekVLForConditionalGeneration": IDEFICS3,
    "DeepseekVLHybridForConditionalGeneration": IDEFICS3 | {"high_res_vision_config": SAM_VISION},
    "GotOcr2ForConditionalGeneration": GOT_OCR2,
    "JAISLMHeadModel": DECODER | OTHER_NAMES | JAIS,
    "JanusForConditionalGeneration": IDEFICS3 | {"vision_config": JANUS_VISION},
    "KimiK25ForConditionalGeneration": KIMI_VL,
    "KimiVLForConditionalGeneration": KIMI_VL,
    "Lfm2VlForConditionalGeneration": LFM2_VL,
    "Lfm3VlForConditionalGeneration": LFM3_VL,
    "LightOnOcrForConditionalGeneration": LIGHTON_OCR,
    "DebertaV2Model": DECODER
    | {"relative_attention": True, "pos_att_type": "c2p|p2c", "position_buckets": 16},
    "DeepseekV4ForCausalLM": DECODER | {"num_key_value_heads": 1, "o_groups": 2},
    "LongcatFlashForCausalLM": DECODER | {"num_layers": 4, "ffn_hidden_size": 96},
    "MPNetModel": PADDED,
    "MetaClip2Model": CLIP,
    "MT5EncoderModel": T5,
    "MossTranscribeDiarizeForConditionalGeneration": MOSS_TRANSCRIBE,
    "MuseGlimmerForConditionalGeneration": {
        "text_config": DECODER | {"model_type": "muse_glimmer_text"}
    },
    "MiniCPMOcrForConditionalGeneration": MINICPM_V,
    "MiniCPMV4_6ForConditionalGeneration": MINICPM_V,
    "MiniCPMV4_7ForConditionalGeneration": {"text_config": QWEN3_5_TEXT},
    "NeoBERT": DECODER | {"hidden_act": "SwiGLU", "max_length": 128},
    "NeoBERTLMHead": DECODER | {"max_length": 128},
    "NemotronH_Omni_Reasoning_V3": {
        "text_config": DECODER | {"model_type": "nemotron_h", "hybrid_override_pattern": "M*-M"},
        "vision_config": {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "patch_size": 4,
            "max_img_size": 64,
        },
        "vision_hidden_size": 32,
        "image_token_id": 99,
    },
    "NemotronHForCausalLM": DECODER | {"hybrid_override_pattern": "M*-M"},
    "QWenLMHeadModel": DECODER | {"kv_channels": 16, "seq_length": 128},
    "Qwen2AudioForConditionalGeneration": QWEN2_AUDIO,
    "CLIPModel": CLIP,
    "ColModernVBertForRetrieval": {
        "vlm_config": {
            "text_config": DECODER,
            "vision_config": VISION,
            "image_token_id": 99,
            "pixel_shuffle_factor": 2,
        }
    },
    "ColPaliForRetrieval": {"vlm_config": PALIGEMMA},
    "ColQwen2ForRetrieval": {"vlm_config": QWEN2_VL},
    "ColQwen3": {"vlm_config": {"text_config": DECODER | {"model_type": "qwen3_vl_text"}}},
    "Qwen2VLForConditionalGeneration": QWEN2_VL,
    "Qwen2_5OmniForConditionalGeneration": {"thinker_config": OMNI_THINKER},
    "Qwen2_5OmniModel": {"thinker_config": OMNI_THINKER},
    "Qwen2_5OmniThinkerForConditionalGeneration": OMNI_THINKER,
    "Qwen2_5_VLForConditionalGeneration": QWEN2_VL | {"vision_config": QWEN2_5_VL_VISION},
    "Gemma3ForConditionalGeneration": GEMMA3,
    "Gemma3nForCausalLM": GEMMA3N,
    "Gemma3nForConditionalGeneration": {"text_config": GEMMA3N},
    "Gemma4ForConditionalGeneration": {
        "text_config": DECODER | {"model_type": "gemma4_text"},
        "vision_config": VISION | {"head_dim": 16, "num_key_value_heads": 2},
        "audio_config": {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1},
        "image_token_id": 99,
        "video_token_id": 98,
        "audio_token_id": 97,
    },
    "Gemma4UnifiedForConditionalGeneration": {
        "text_config": DECODER | {"model_type": "gemma4_unified_text"},
        "vision_config": {"mm_embed_dim": 32, "mm_posemb_size": 32},
        "image_token_id": 99,
        "video_token_id": 98,
    },
    "Granite4VisionForConditionalGeneration": GRANITE4_VISION,
    "GraniteDoclingForConditionalGeneration": {
        "text_config": DECODER | {"model_type": "granite_docling_text"},
        "vision_config": VISION | {"scale_factor": 2, "deepstack_visual_indexes": [0]},
        "image_token_id": 99,
    },
    "HCXVisionV2ForCausalLM": HYPERCLOVAX_VISION,
    "HyperCLOVAXVisionV2ForConditionalGeneration": HYPERCLOVAX_VISION,
    "MiMoV2FlashForCausalLM": DECODER | {"num_key_value_heads": 2},
    "MistralLarge4ForConditionalGeneration": {
        "text_config": DECODER | {"model_type": "mistral_large4_text"}
    },
    "Mistral3ForConditionalGeneration": {"text_config": DECODER | {"model_type": "mistral"}},
    "Qwen3ASRForConditionalGeneration": QWEN3_ASR,
    "Qwen3OmniMoeForConditionalGeneration": {"thinker_config": QWEN3_OMNI},
    "Qwen3OmniMoeThinkerForConditionalGeneration": QWEN3_OMNI,
    "Qwen3VLForConditionalGeneration": {"text_config": DECODER | {"model_type": "qwen3_vl_text"}},
    "Qwen3VLMoeForConditionalGeneration": {
        "text_config": DECODER | {"model_type": "qwen3_vl_moe_text"}
    },
    "Qwen3_5ForConditionalGeneration": {"text_config": QWEN3_5_TEXT},
    "Qwen3_5MoeForConditionalGeneration": {"text_config": QWEN3_5_TEXT},
    "Ovis2ForConditionalGeneration": {"text_config": DECODER | {"model_type": "qwen2"}},
    "PaddleOCRVLForConditionalGeneration": PADDLEOCR_VL,
    "PaliGemmaForConditionalGeneration": PALIGEMMA,
    "Phi4MultimodalForCausalLM": DECODER
    | {"vision_config": VISION | {"image_token_id": 99}, "audio_config": PHI4_AUDIO},
    "QianfanOCRForConditionalGeneration": INTERNVL
    | {"text_config": DECODER | {"model_type": "qwen3"}},
    "RobertaModel": PADDED,
    "RobertaPreLayerNormModel": PADDED,
    "Siglip2Model": SIGLIP,
    "SiglipModel": SIGLIP,
    "SmolVLMForConditionalGeneration": IDEFICS3,
    "Step3TextForCausalLM": STEP3_TEXT,
    "Step3VLForConditionalGeneration": {"text_config": STEP3_TEXT | {"model_type": "step3_text"}},
    "Step3p5ForCausalLM": STEP3P5,
    "Step3p7ForConditionalGeneration": {"text_config": STEP3P5 | {"model_type": "step3p5"}},
    "T5EncoderModel": T5,
    "TeleChat2ForCausalLM": DECODER | TELECHAT,
    "TeleChatForCausalLM": DECODER | TELECHAT,
    "UMT5EncoderModel": T5,
    "VideoLlama3ForConditionalGeneration": INTERNVL | {"video_token_id": 98},
    "VideoLlavaForConditionalGeneration": LLAVA | {"video_token_index": 98},
    "VipLlavaForConditionalGeneration": LLAVA | {"vision_feature_layers": [-2, 1]},
    "VoxtralForConditionalGeneration": VOXTRAL,
    "VisionEncoderDecoderModel": TROCR,
    "WhisperForConditionalGeneration": WHISPER,
    "XLMRobertaModel": PADDED,
    "XLMRobertaXLModel": PADDED,
    "Zamba2ForCausalLM": DECODER | {"layers_block_type": ["mamba", "hybrid"] * 2},
}


def config(architecture: str) -> dict[str, Any]:
    """That of a small model."""
    other = OTHER_NAMES if architecture.startswith(HAS_OTHER_NAMES) else {}
    return CONFIGS.get(architecture, DECODER | other)
