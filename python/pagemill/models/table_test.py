"""The table of architectures, and what all families read alike."""

import pytest

from pagemill.inputs.task import Task
from pagemill.models.architecture import Architecture
from pagemill.models.base import ModelConfigError
from pagemill.models.config_keys import rope_parameters
from pagemill.models.encoder_decoder.table import ENCODER_DECODERS
from pagemill.models.encoders.table import ENCODERS
from pagemill.models.gpt_neox import GptNeoxModel
from pagemill.models.multimodal.table import MULTIMODAL
from pagemill.models.small_configs import DECODER, LLAVA, config
from pagemill.models.table import ARCHITECTURES, DECODERS, architecture_of, find, model_class

_EMBEDDING_DECODERS = {"CLIPModel", "MetaClip2Model"}
_PREFIX_MODELS = {
    "ColPaliForRetrieval",
    "HrmTextForCausalLM",
    "PaliGemmaForConditionalGeneration",
}


@pytest.mark.parametrize("table", [DECODERS, ENCODERS, ENCODER_DECODERS, MULTIMODAL])
def test_tables_are_sorted(table: dict[str, Architecture]):
    assert list(table) == sorted(table)


def test_every_row_loads():
    for architecture in ARCHITECTURES:
        traits = model_class(architecture).from_config(config(architecture)).traits
        assert (traits.vocab_size, traits.hidden_size, traits.max_model_len) == (100, 64, 128)
        row = ARCHITECTURES[architecture]
        assert traits.generates or row.embeds
        assert not traits.generates or row.task != "embeddings"
        decodes = traits.generates or architecture in _EMBEDDING_DECODERS
        assert traits.causal == (decodes and architecture not in _PREFIX_MODELS)


@pytest.mark.parametrize(
    ("architecture", "row", "task"),
    [
        ("BertForMaskedLM", "BertModel", Task.EMBED),
        ("BertForSequenceClassification", "BertModel", Task.CLASSIFY),
        ("GPT2ForSequenceClassification", "GPT2LMHeadModel", Task.CLASSIFY),
        ("Gemma3TextForSequenceClassification", "Gemma3ForCausalLM", Task.CLASSIFY),
        ("Gemma3TextModel", "Gemma3ForCausalLM", Task.EMBED),
        ("GteNewForSequenceClassification", "GteNewModel", Task.CLASSIFY),
        ("LlamaForCausalLM", "LlamaForCausalLM", Task.GENERATE),
        ("ColQwen2ForRetrieval", "ColQwen2ForRetrieval", Task.EMBED),
        ("NeoBERTForSequenceClassification", "NeoBERT", Task.CLASSIFY),
        ("Qwen3ForSequenceClassification", "Qwen3ForCausalLM", Task.CLASSIFY),
        ("Qwen3VLForSequenceClassification", "Qwen3VLForConditionalGeneration", Task.CLASSIFY),
        ("Qwen3ForTokenClassification", "Qwen3ForCausalLM", Task.TOKEN_CLASSIFY),
        ("Qwen3Model", "Qwen3ForCausalLM", Task.EMBED),
        ("XLMRobertaModel", "XLMRobertaModel", Task.EMBED),
    ],
)
def test_a_head_is_found_by_the_end_of_the_name(architecture: str, row: str, task: Task):
    assert find(architecture) == (ARCHITECTURES[row], task)


def test_configurations_without_architectures():
    assert architecture_of("kimi_k2") == "DeepseekV3ForCausalLM"
    types = [name for row in ARCHITECTURES.values() for name in row.model_types]
    assert len(types) == len(set(types))
    for unknown in ("other", None, ["llama"]):
        with pytest.raises(ModelConfigError, match=r"model_type .* is unknown; name one by"):
            architecture_of(unknown)


def test_an_unknown_architecture_is_compared_with_the_known():
    similar = "similar ones are MambaForCausalLM, .*; `pagemill models` lists those known"
    with pytest.raises(ModelConfigError, match=similar):
        model_class("Mamba3ForCausalLM")


def test_rope_parameters_of_old_and_new_checkpoints_agree():
    new = {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    old = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"type": "linear", "factor": 8.0},
    }
    for kind, rope in new.items():
        assert rope_parameters({"rope_parameters": new}, kind) == rope
        assert rope_parameters(old, kind) == rope
    assert rope_parameters({}) == {"rope_type": "default", "rope_theta": 10000.0}


def test_gemma_3_with_encoders_leaves_out_defaults():
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window": 1024,
    }
    model = model_class("Gemma3ForConditionalGeneration").from_config({"text_config": text})
    assert (model.traits.vocab_size, model.traits.max_model_len) == (262208, 131072)


def test_older_rotary_keys_of_gpt_neox():
    older = DECODER | {"rotary_emb_base": 5000.0, "rotary_pct": 0.5}
    rope = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}
    newer = DECODER | {"rope_parameters": rope}
    assert GptNeoxModel(older).rotary == GptNeoxModel(newer).rotary
    assert GptNeoxModel(DECODER | {"rotary_pct": 0.25}).rotary == GptNeoxModel(DECODER).rotary


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_decoders_of_models_with_images_have_their_classes_defaults(kind: str):
    """Published checkpoints of LLaVA leave out what their decoder's class has as default."""
    text = {"model_type": kind, "vocab_size": 32064}
    config = LLAVA | {"text_config": text}
    traits = model_class("LlavaForConditionalGeneration").from_config(config).traits
    assert (traits.vocab_size, traits.hidden_size) == (32064, 4096)
    longest = {"llama": 2048, "mistral": 131072}
    assert traits.max_model_len == longest[kind]
