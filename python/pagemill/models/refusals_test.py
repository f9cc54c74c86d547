"""Settings that families of decoders and of media refuse."""

from typing import Any

import pytest

from pagemill.models.base import ModelConfigError
from pagemill.models.small_configs import (
    AUDIO,
    DECODER,
    LLAMA4_VISION,
    MROPE,
    NAS_BLOCK,
    OMNI_AUDIO,
    QWEN2_5_VL_VISION,
    QWEN2_VL_VISION,
    QWEN3_AUDIO,
    QWEN3_VL,
    VISION,
    VOXTRAL_AUDIO,
    config,
)
from pagemill.models.table import model_class


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("LlavaForConditionalGeneration", {"text_config": 1}, "text_config to be an object"),
        ("BailingMoeForCausalLM", {"norm_head": True}, "norm_head=True is not supported"),
        ("BailingMoeV2ForCausalLM", {"score_function": "softmax"}, "known: sigmoid"),
        ("DeepseekForCausalLM", {"scoring_func": "sigmoid"}, "known: softmax"),
        ("GraniteSWAForCausalLM", {"layer_rope_theta": [[1e4]] * 4}, "needs layer_rope_theta from"),
        ("HYV4ForCausalLM", {"hc_mult": 1}, "hc_mult must be at least 2"),
        ("K2HorizonForCausalLM", {"layernorm_num_groups": 3}, "does not divide hidden_size=64"),
        ("LlamaBidirectionalModel", {"pooling": "cls"}, "pooling is 'cls'; known: avg"),
        ("MistralLarge4ForCausalLM", {"index_head_dim": 64}, "index_head_dim must be above 64"),
        (
            "MistralLarge4ForCausalLM",
            {"no_rope_layers": [1, 0, 2, 1]},
            "no_rope_layers must list 4 layers",
        ),
        (
            "MistralLarge4ForCausalLM",
            {"no_rope_layers": [1, 0, 1, 1], "kv_source_layers": [0, 1, 2, 1]},
            "an earlier one that attends to its own latents and rotates alike",
        ),
        ("MuseGlimmerForCausalLM", {"layer_rope_theta": [1e4]}, "must list 4 layers"),
        ("NanbeigeForCausalLM", {"enable_mhc": True}, "enable_mhc=True is not supported"),
        ("NanbeigeForCausalLM", {"num_loops": 2**20}, "at most 4096 layers"),
        ("OuroForCausalLM", {"total_ut_steps": 2**20}, "at most 4096 layers"),
        (
            "Qwen2ForCausalLM",
            {"is_causal": False, "use_sliding_window": True, "max_window_layers": 2},
            "is not supported with sliding windows",
        ),
        (
            "LlavaForConditionalGeneration",
            {"text_config": DECODER | {"model_type": "mamba"}},
            "a language model of type 'mamba'",
        ),
        (
            "LlavaForConditionalGeneration",
            {"vision_config": VISION | {"model_type": "navit"}},
            "a vision tower of type 'navit'",
        ),
        (
            "LlavaForConditionalGeneration",
            {"vision_config": VISION | {"model_type": "siglip_vision_model"}},
            "which drops the class token, but the vision tower has none",
        ),
        (
            "LlavaForConditionalGeneration",
            {"vision_config": VISION | {"image_size": 3}},
            "image_size 3 has 0 patches of 4 in a row",
        ),
        (
            "LlavaForConditionalGeneration",
            {"vision_config": VISION | {"image_size": 2**30}},
            "image_size 1073741824 has 268435456 patches of patch_size 4 in a row; at most 1024",
        ),
        (
            "LlavaForConditionalGeneration",
            {"vision_config": VISION | {"model_type": "pixtral"}},
            "a tower of type pixtral has no class token: it must be 'full'",
        ),
        (
            "VipLlavaForConditionalGeneration",
            {"vision_config": VISION | {"model_type": "pixtral"}},
            "a vision tower of type 'pixtral'",
        ),
        ("LlavaForConditionalGeneration", {"image_token_index": 100}, "outside the vocabulary"),
        ("LlavaForConditionalGeneration", {"vision_feature_layer": 4}, "is 4, of 3 layers"),
        ("LlavaForConditionalGeneration", {"vision_feature_layer": [1] * 9}, "list of at most 8"),
        ("VipLlavaForConditionalGeneration", {"vision_feature_layers": "all"}, "must be a layer"),
        (
            "LlavaForConditionalGeneration",
            {"vision_feature_select_strategy": "cls"},
            "is 'cls'; known: default, full",
        ),
        (
            "Idefics3ForConditionalGeneration",
            {"text_config": DECODER | {"model_type": "mistral"}},
            "a language model of type 'mistral' in this .* not supported; known: llama",
        ),
        (
            "SmolVLMForConditionalGeneration",
            {"vision_config": VISION | {"model_type": "navit"}},
            "a vision tower of type 'navit'",
        ),
        (
            "SmolVLMForConditionalGeneration",
            {"scale_factor": 3},
            "image_size 8 has 2 patches of 4 in a row, which cannot be merged 3 by 3",
        ),
        ("Idefics3ForConditionalGeneration", {"image_token_id": 100}, "outside the vocabulary"),
        *(
            ("InternVLForConditionalGeneration", changes, message)
            for changes, message in (
                ({"image_token_id": 100}, "outside the vocabulary"),
                ({"text_config": DECODER | {"model_type": "mistral"}}, "known: llama, qwen2"),
                ({"vision_config": VISION | {"model_type": "navit"}}, "tower of type 'navit'"),
                ({"vision_config": VISION | {"image_size": [8, 16]}}, "that of a square"),
                ({"vision_config": VISION | {"image_size": 12}}, "cannot be merged 2 by 2"),
                ({"vision_config": VISION | {"norm_type": "batch"}}, "norm_type is 'batch'"),
                ({"downsample_ratio": 0.4}, "must be 1 over a whole number"),
                ({"vision_feature_select_strategy": "full"}, "must be 'default'"),
                ({"vision_feature_layer": [1, 2]}, "must be one layer"),
            )
        ),
        *(
            ("AyaVisionForConditionalGeneration", changes, message)
            for changes, message in (
                ({"image_token_index": 100}, "outside the vocabulary"),
                ({"text_config": DECODER | {"model_type": "qwen2"}}, "known: cohere, cohere2"),
                ({"vision_config": VISION | {"model_type": "navit"}}, "tower of type 'navit'"),
                ({"downsample_factor": 3}, "cannot be merged 3 by 3"),
                ({"alignment_intermediate_size": 7}, "alignment_intermediate_size is 7"),
                ({"vision_feature_select_strategy": "default"}, "must be 'full'"),
                ({"vision_feature_layer": [1, 2]}, "must be one layer"),
            )
        ),
        *(
            ("Llama4ForConditionalGeneration", changes, message)
            for changes, message in (
                ({"image_token_index": 100}, "outside the vocabulary"),
                ({"text_config": DECODER}, "known: llama4_text"),
                *(
                    ({"vision_config": LLAMA4_VISION | wrong}, message)
                    for wrong, message in (
                        ({"intermediate_size": 96}, "it must be 4 times hidden_size, 32"),
                        ({"projector_input_dim": 41}, "projector_input_dim and projector_output"),
                        ({"vision_output_dim": 41}, "vision_output_dim and projector_output_dim"),
                        ({"num_attention_heads": 16}, "no rows and columns to turn by"),
                        ({"pixel_shuffle_ratio": 0.4}, "must be 1 over a whole number"),
                    )
                ),
            )
        ),
        (
            "Qwen2_5OmniThinkerForConditionalGeneration",
            {"audio_config": OMNI_AUDIO | {"n_window": 2**31 - 2}},
            "the n_window 2147483646; .* vectors, at most 65536",
        ),
        *(
            ("Qwen3ASRForConditionalGeneration", {"audio_config": QWEN3_AUDIO | wrong}, message)
            for wrong, message in (
                ({"n_window_infer": 7}, "at least twice its n_window"),
                ({"n_window_infer": 2**31 - 1}, "at most 65536 vectors"),
                ({"output_dim": 63}, "output_dim 63; the language model has 64"),
            )
        ),
        *(
            ("LlavaNextForConditionalGeneration", changes, message)
            for changes, message in (
                ({"vision_feature_select_strategy": "full"}, "it must be 'default'"),
                ({"image_grid_pinpoints": [[8, 12]]}, "has a list; each must be a height and"),
                ({"image_grid_pinpoints": [8]}, "has 8; each must be"),
                ({"image_grid_pinpoints": []}, "must list 1 to 64 sizes"),
                ({"image_grid_pinpoints": [[72, 64]]}, "at most 64 tiles each"),
            )
        ),
        *(
            (
                "Qwen2VLForConditionalGeneration",
                {"rope_scaling": MROPE | {"mrope_section": wrong}},
                "mrope_section must have 3 numbers whose sum is 8",
            )
            for wrong in ([2, 3, 4], [2, 6], [2, 3, "3"], None)
        ),
        (
            "Qwen2AudioForConditionalGeneration",
            {"audio_config": AUDIO | {"encoder_attention_heads": 3}},
            "3 heads cannot share 32 features",
        ),
        ("Qwen2AudioForConditionalGeneration", {"text_config": DECODER}, "known: qwen2"),
        (
            "VoxtralForConditionalGeneration",
            {"audio_config": VOXTRAL_AUDIO | {"intermediate_size": 96}},
            "20 vectors of 32 do not make whole rows of 96",
        ),
        ("VoxtralForConditionalGeneration", {"audio_token_id": 100}, "outside the vocabulary"),
        ("Qwen2VLForConditionalGeneration", {"image_token_id": 100}, "outside the vocabulary"),
        ("Qwen2VLForConditionalGeneration", {"vision_config": 1}, "vision_config to be an object"),
        (
            "Qwen2VLForConditionalGeneration",
            {"vision_config": QWEN2_VL_VISION | {"hidden_size": 32}},
            "vision_config's hidden_size is 32, but the language model has 64",
        ),
        (
            "Qwen2VLForConditionalGeneration",
            {"vision_config": QWEN2_VL_VISION | {"model_type": "qwen2_5_vl"}},
            "a vision tower of type 'qwen2_5_vl'",
        ),
        (
            "Qwen2VLForConditionalGeneration",
            {"vision_config": QWEN2_VL_VISION | {"num_heads": 16}},
            "16 heads of 32 features have no rows and columns",
        ),
        *(
            ("Qwen2_5_VLForConditionalGeneration", {"vision_config": vision}, message)
            for vision, message in (
                (QWEN2_VL_VISION | {"model_type": "qwen2_vl"}, "known: qwen2_5_vl_vision"),
                (QWEN2_5_VL_VISION | {"out_hidden_size": 32}, "out_hidden_size is 32, but the"),
                (QWEN2_5_VL_VISION | {"window_size": 7}, "7 has no square of 8 pixels"),
                (QWEN2_5_VL_VISION | {"fullatt_block_indexes": 1}, "must list layers"),
            )
        ),
        (
            "Glm4vForConditionalGeneration",
            {"text_config": DECODER | {"model_type": "glm4v_text", "rope_scaling": MROPE}}
            | {"vision_config": QWEN2_5_VL_VISION | {"image_size": 3}},
            "image_size 3 has no patch of 4 pixels",
        ),
        *(
            (
                "Qwen3VLForConditionalGeneration",
                {"vision_config": QWEN2_5_VL_VISION | {"deepstack_visual_indexes": [0]} | changes}
                | QWEN3_VL,
                message,
            )
            for changes, message in (
                ({"model_type": "qwen2_vl"}, "known: qwen3_vl_vision, qwen3_vl, qwen3_vl_moe"),
                ({"num_position_embeddings": 2**30}, "must be the square .* at most 256"),
                ({"num_position_embeddings": 8}, "num_position_embeddings 8 must be the square"),
                ({"deepstack_visual_indexes": [1]}, "layers of 1 in ascending order"),
                ({"deepstack_visual_indexes": [0, 0]}, "layers of 1 in ascending order"),
                ({"deepstack_visual_indexes": [0] * 8}, "must list at most 7 layers"),
                ({"deepstack_visual_indexes": "0"}, "must list at most 7 layers"),
                (
                    {"depth": 8, "deepstack_visual_indexes": list(range(5))},
                    "has 5 layers, but the language model has 4",
                ),
            )
        ),
        (
            "LlamaForCausalLM",
            {"hidden_size": None},
            "hidden_size > 0 and below .* None",
        ),
        ("LlamaForCausalLM", {"num_hidden_layers": "4"}, "num_hidden_layers"),
        *(
            (name, {"num_hidden_layers": 2**30}, "is 1073741824; at most 4096 layers")
            for name in ("CohereCompassForCausalLM", "Lfm3ForCausalLM", "LlamaForCausalLM")
        ),
        ("LlamaForCausalLM", {"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ("LlamaForCausalLM", {"rope_scaling": {"rope_type": "longer"}}, "unknown rope_type"),
        ("LlamaForCausalLM", {"hidden_act": "mish"}, "unknown activation 'mish'; known: gelu"),
        (
            "Gemma3ForCausalLM",
            {"use_bidirectional_attention": True, "attn_logit_softcapping": 5.0},
            "attn_logit_softcapping=5.0",
        ),
        (
            "Gemma3ForCausalLM",
            {"layer_types": ["full_attention"]},
            "layer_types must list 4 layers",
        ),
        ("Qwen3MoeForCausalLM", {"num_experts": 4}, "8 of 4 experts cannot be chosen"),
        ("Qwen3MoeForCausalLM", {"mlp_only_layers": "0"}, "mlp_only_layers must list layers"),
        ("Mamba2ForCausalLM", {"n_groups": 7}, "128 heads do not make 7 groups"),
        ("Mamba2ForCausalLM", {"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ("Mamba2ForCausalLM", {"time_step_limit": [0.0, 0.1]}, "time_step_limit=a list"),
        ("GraniteMoeHybridForCausalLM", {"num_local_experts": 1}, "2 of 1 experts cannot be"),
        (
            "GraniteMoeHybridForCausalLM",
            {"mamba_n_heads": 3},
            "128 features do not make 3 heads of 42",
        ),
        (
            "FalconH1ForCausalLM",
            {"ssm_multipliers": [1.0] * 4},
            "must list 5 numbers, it is a list",
        ),
        ("FalconH1ForCausalLM", {"mlp_multipliers": [1.0, "2"]}, "mlp_multipliers from"),
        ("NemotronHForCausalLM", {"hybrid_override_pattern": "M*-X"}, r"M, \*, - or E; it is 'M"),
        ("NemotronHForCausalLM", {"hybrid_override_pattern": "M*-"}, "is 4, and 3 are described"),
        ("NemotronHForCausalLM", {"mamba_hidden_act": "gelu"}, "mamba_hidden_act='gelu' is not"),
        ("DeciLMForCausalLM", {"num_key_value_heads_per_layer": None}, "needs block_configs or"),
        ("DeciLMForCausalLM", {"num_key_value_heads_per_layer": [3] * 4}, "a divisor of 4 heads"),
        ("DeciLMForCausalLM", {"block_configs": [NAS_BLOCK]}, "block_configs must list 4 layers"),
        ("DeciLMForCausalLM", {"block_configs": [{"ffn": {}}] * 4}, "with an object attention"),
        ("DeciLMForCausalLM", {"position_embedding_type": "rope_llama4"}, "must be rope"),
        *(
            (
                "DeciLMForCausalLM",
                {"block_configs": [{**NAS_BLOCK, part: {**NAS_BLOCK[part], **wrong}}] * 4},
                message,
            )
            for part, wrong, message in (
                ("attention", {"n_heads_in_group": 3}, "do not make groups of n_heads_in_group=3"),
                ("attention", {"window_length": 8}, "window_length=8 is not supported"),
                ("attention", {"num_sink_tokens": 4}, "num_sink_tokens=4 is not supported"),
                ("ffn", {"ffn_mult": "3"}, "ffn_mult from"),
                ("ffn", {"ffn_mult": None}, "intermediate_size > 0"),
                ("ffn", {"moe": {"num_local_experts": 4}}, "moe=an object is not supported"),
            )
        ),
        ("GptOssForCausalLM", {"swiglu_alpha": 1.0}, "swiglu_alpha must be 1.702"),
        ("GptOssForCausalLM", {"swiglu_limit": 0.0}, "swiglu_limit from 0.001 to"),
        ("GptOssForCausalLM", {"hidden_act": "gelu"}, "hidden_act must be silu"),
        ("Step3TextForCausalLM", {"moe_layers_enum": None}, "must list the layers with experts"),
        ("Step3TextForCausalLM", {"moe_layers_enum": "2,x"}, "experts, it is '2,x'"),
        ("Step3TextForCausalLM", {"attention_bias": True}, "attention_bias=True is not supported"),
        ("Step3p5ForCausalLM", {"swiglu_limits": [0, 0]}, "must list 4 layers, it lists 2"),
        ("Step3p5ForCausalLM", {"moe_router_activation": "softmax"}, "must be sigmoid, it is 'so"),
        ("Step3p5ForCausalLM", {"use_moe_router_bias": False}, "use_moe_router_bias must be True"),
        ("Step3p5ForCausalLM", {"use_rope_layers": [True, False] * 2}, "must be true for all lay"),
        ("Step3p5ForCausalLM", {"rope_theta": [1e4, 1e6] * 2}, "one number for all layers of ful"),
        ("Step3p5ForCausalLM", {"num_sliding_attention_heads": 3}, "3 heads cannot share 2"),
        (
            "Step3p5ForCausalLM",
            {"attention_other_setting": {"num_attention_groups": 4}},
            "attention_other_setting: num_attention_groups must be 2",
        ),
        ("Qwen3NextForCausalLM", {"linear_num_value_heads": 24}, "not a multiple of linear_num"),
        ("MambaForCausalLM", {"time_step_rank": "all"}, "time_step_rank > 0 and below"),
        ("MambaForCausalLM", {"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ("RwkvForCausalLM", {"rescale_every": 1.5}, "must be a number of layers, it is 1.5"),
        ("Rwkv6ForCausalLM", {"head_size": 7}, "head_size=7 does not divide"),
        ("RWKV7ForCausalLM", {"head_dim": 7}, "head_dim=7 must divide hidden_size="),
        ("RWKV7ForCausalLM", {"head_dim": 8, "num_heads": 3}, "into num_heads"),
        ("RWKV7ForCausalLM", {"hidden_act": "relu", "head_dim": 8}, "hidden_act='relu' is not su"),
        ("RWKV7ForCausalLM", {"attn": {"layers": [1]}}, "attn=.* is not supported"),
        (
            "RWKV7ForCausalLM",
            {"intermediate_size": None, "hidden_ratio": 0, "head_dim": 8},
            "hidden_ratio",
        ),
        ("JambaForCausalLM", {"attn_layer_offset": 8}, "must be less than attn_layer_period, 8"),
        ("Qwen3_5ForConditionalGeneration", {"text_config": 1}, "text_config to be an object"),
        (
            "KimiK25ForConditionalGeneration",
            {"vision_config": {"mm_projector_type": "mlp"}},
            "mm_projector_type is 'mlp'; known: patchmerger",
        ),
        (
            "KimiK25ForConditionalGeneration",
            {"vision_config": {"model_type": "moonvit2"}},
            "known: moonvit, kimi_k25$",
        ),
        (
            "KimiVLForConditionalGeneration",
            {"vision_config": {"init_pos_emb_height": 32}},
            "init_pos_emb_height is 32 and init_pos_emb_width 64; they must be equal",
        ),
        (
            "KimiVLForConditionalGeneration",
            {"vision_config": {"merge_kernel_size": [2, 1]}},
            "merge_kernel_size is .* must be that of a square",
        ),
        ("KimiVLForConditionalGeneration", {"media_placeholder_token_id": 100}, "outside the voc"),
        (
            "Lfm2VlForConditionalGeneration",
            {"vision_config": {"num_patches": 250}},
            "num_patches 250 must be the square of a whole number",
        ),
        (
            "Lfm2VlForConditionalGeneration",
            {"vision_config": {"model_type": "siglip_vision_model"}},
            "known: siglip2_vision_model$",
        ),
        ("Lfm2VlForConditionalGeneration", {"vision_feature_layer": -2}, "is -2; known: -1"),
        ("Lfm2VlForConditionalGeneration", {"text_config": DECODER}, "'llama'.*known: lfm2$"),
        ("Lfm2VlForConditionalGeneration", {"image_token_id": 100}, "outside the voc"),
        ("KimiLinearForCausalLM", {"linear_attn_config": 1}, "linear_attn_config to be an object"),
        (
            "KimiLinearForCausalLM",
            {"linear_attn_config": {"full_attn_layers": "4"}},
            "full_attn_layers must list layers",
        ),
        ("Zamba2ForCausalLM", {"layers_block_type": ["mamba"]}, "must list 4 layers, linear_at"),
        ("Zamba2ForCausalLM", {"use_long_context": True}, "use_long_context=True is not"),
        (
            "Zamba2ForCausalLM",
            {"use_shared_attention_adapter": True, "num_key_value_heads": 2},
            "num_key_value_heads=2 with use_shared_attention_adapter",
        ),
        ("OlmoHybridForCausalLM", {"linear_num_value_heads": 6}, "6 is not a multiple of linear"),
        ("Lfm2ForCausalLM", {"full_attn_idxs": "0"}, "full_attn_idxs must list layers"),
        ("AfmoeForCausalLM", {"score_func": "softmax"}, "score_func must be sigmoid"),
        ("ApertusForCausalLM", {"hidden_act": "silu"}, "hidden_act must be xielu"),
        ("BloomForCausalLM", {"slow_but_exact": True}, "slow_but_exact=True is not supported"),
        (
            "BloomForCausalLM",
            {"num_attention_heads": 2**13, "hidden_size": 2**13},
            "8192 heads are more than the 4096",
        ),
        ("CodeGenForCausalLM", {"n_head": 2}, "n_head must be a multiple of 4"),
        ("Cohere2MoeForCausalLM", {"expert_selection_fn": "relu"}, "must be softmax or sigmoid"),
        (
            "Cohere2MoeForCausalLM",
            {"num_shared_experts": 1, "shared_expert_combination_strategy": "max"},
            "must be average or sum",
        ),
        ("FalconForCausalLM", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn must be 1"),
        (
            "FalconForCausalLM",
            {"new_decoder_architecture": True, "parallel_attn": False},
            "parallel_attn must be true",
        ),
        ("GPT2LMHeadModel", {"add_cross_attention": True}, "add_cross_attention=True is not"),
        ("Gemma4ForCausalLM", {"use_bidirectional_attention": "all"}, "must be null or vision"),
        ("Gemma4ForCausalLM", {"num_kv_shared_layers": 4}, "leaves no layer of a kind to share"),
        ("GraniteSWAForCausalLM", {"layer_rope_theta": [1e4]}, "must list 4 layers, a base"),
        ("HunYuanMoEV1ForCausalLM", {"moe_topk": [1, 2]}, "must be the same in all layers"),
        ("MptForCausalLM", {"attn_config": {"alibi": False}}, "alibi and no_bias must be true"),
        ("MptForCausalLM", {"attn_config": {"qk_ln": True}}, "qk_ln=True is not supported"),
        ("Gemma3ForConditionalGeneration", {"text_config": 1}, "text_config to be an object"),
        (
            "Mistral3ForConditionalGeneration",
            {"text_config": DECODER | {"model_type": "llama"}},
            "of type 'llama' .* known: ministral3, mistral",
        ),
        (
            "Mistral3ForConditionalGeneration",
            {
                "text_config": DECODER | {"model_type": "mistral", "num_key_value_heads": 2},
                "vision_config": VISION | {"num_attention_heads": 16},
                "image_token_id": 99,
            },
            "16 heads of 32 features have no rows and columns",
        ),
        ("DbrxForCausalLM", {"attn_config": 1}, "attn_config to be an object"),
        (
            "DbrxForCausalLM",
            {"ffn_config": {"moe_normalize_expert_weights": 2}},
            "moe_normalize_expert_weights must be null or 1",
        ),
        ("DeepseekV32ForCausalLM", {"index_head_dim": 64}, "index_head_dim above 64"),
        ("GlmMoeDsaForCausalLM", {"indexer_types": ["shared"] * 4}, "the first full"),
        ("GlmMoeDsaForCausalLM", {"indexer_types": ["full", [], [], []]}, "must list 4 layers"),
        ("GlmMoeDsaForCausalLM", {"index_topk_pattern": "FSX"}, "must list 4 layers"),
        ("Gemma3nForCausalLM", {"altup_num_inputs": 1}, "altup_num_inputs=1 must be 2 to 8"),
        ("Gemma3nForCausalLM", {"altup_active_idx": 4}, "altup_active_idx=4 below it"),
        ("Gemma3nForCausalLM", {"intermediate_size": [96]}, "must list 4 layers, it lists 1"),
        ("Gemma3nForCausalLM", {"activation_sparsity_pattern": [0.9]}, "the share that is 0"),
        ("Gemma3nForCausalLM", {"num_kv_shared_layers": 4}, "leaves no layer of a kind to share"),
        ("Grok1ForCausalLM", {"attn_temperature_len": 1}, "must be -1 or a position from 2"),
        ("Grok1ForCausalLM", {"rope_type": "yarn_log"}, "rope_type must be original"),
        ("Grok1ForCausalLM", {"sliding_window_size": 64}, "sliding_window_size must be -1"),
        ("Grok1ModelForCausalLM", {"residual_moe": True}, "residual_moe=True is not supported"),
        ("LagunaForCausalLM", {"gating": "per-layer"}, "must be per-head or per-element"),
        ("LagunaForCausalLM", {"num_attention_heads_per_layer": [4, 4, 4, 6]}, "must list 4"),
        ("MiMoV2FlashForCausalLM", {"v_head_dim": 256}, "v_head_dim=256 must be at most"),
        (
            "LightOnOcrForConditionalGeneration",
            {"vision_feature_layer": [0, 1]},
            "vision_feature_layer lists several layers",
        ),
        ("MiMoV2FlashForCausalLM", {"swa_head_dim": 64}, "swa_head_dim must be"),
        ("MiMoV2FlashForCausalLM", {"hybrid_layer_pattern": [2] * 4}, "0 or 1 for each"),
        ("Plamo2ForCausalLM", {"mamba_step": 1}, "mamba_step must be at least 2"),
        ("Llama4ForCausalLM", {"num_experts_per_tok": 2}, "num_experts_per_tok must be 1"),
        ("Llama4ForCausalLM", {"no_rope_layers": [1]}, "no_rope_layers must list 4 layers"),
        ("LongcatFlashForCausalLM", {"zero_expert_num": 5000}, "zero_expert_num from 0 to 4096"),
        ("BertModel", {"is_decoder": True}, "is_decoder=True is not supported"),
        (
            "BertModel",
            {"position_embedding_type": "relative_key"},
            "position_embedding_type 'relative",
        ),
    ],
)
def test_refusals(architecture: str, changes: dict[str, Any], message: str):
    with pytest.raises(ModelConfigError, match=message):
        model_class(architecture).from_config(config(architecture) | changes)
