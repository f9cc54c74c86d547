"""Names of GGUF files and of layers lead to each other."""

from dataclasses import replace

import pytest

from pagemill.weights.errors import WeightsError
from pagemill.weights.gguf_families import GGUF_FAMILIES
from pagemill.weights.gguf_names import GGUF_NAMES
from pagemill.weights.location import TensorLocation
from pagemill.weights.names import as_used, gguf_names, layer_name

NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "blk.7.attn_q.bias": "model.layers.7.self_attn.q_proj.bias",
    "blk.12.ffn_down.weight": "model.layers.12.mlp.down_proj.weight",
}
GEMMA3 = {
    "blk.0.ffn_norm.weight": "model.layers.0.pre_feedforward_layernorm.weight",
    "blk.0.post_attention_norm.weight": "model.layers.0.post_attention_layernorm.weight",
}


@pytest.mark.parametrize("architecture", ["gemma3", "llama", "qwen2"])
def test_both_ways(architecture: str):
    for stored, name in (NAMES | (GEMMA3 if architecture == "gemma3" else {})).items():
        assert gguf_names(architecture, name) == [stored]
        assert layer_name(architecture, stored) == name
    for unknown in ("rope_freqs.weight", "blk.3.attn_sinks.weight", "blk.x.attn_q.weight"):
        assert not gguf_names(architecture, unknown)
        assert layer_name(architecture, unknown) == unknown


def test_architectures_have_names_and_configurations():
    assert GGUF_NAMES.keys() == GGUF_FAMILIES.keys()


@pytest.mark.parametrize("architecture", GGUF_NAMES)
def test_each_name_leads_to_a_stored_one_and_back(architecture: str):
    row = GGUF_NAMES[architecture]
    inner = (*row.modules, *row.otherwise, *row.slices)
    modules = [f"{row.layers}.3.{module}" for module in inner]
    for module in (*row.top, *modules):
        for name in (module, f"{module}.weight"):
            for stored in gguf_names(architecture, name):
                assert stored in gguf_names(architecture, layer_name(architecture, stored))


def test_names_of_parts_of_another_architecture():
    """A module that files have under one of two names."""
    name = "model.layers.2.shared_mlp.up_proj.weight"
    stored = ["blk.2.ffn_up_shexp.weight", "blk.2.ffn_up.weight"]
    assert gguf_names("granitehybrid", name) == stored


def test_what_converters_do_to_tensors():
    stored = TensorLocation("blk.0.ssm_a", "f32", (6, 1), "model.gguf", 64)
    used = as_used("mamba2", "backbone.layers.0.mixer.A_log", stored)
    assert used.negated_exp and used.fits((6,))
    stored = TensorLocation("blk.0.attn_k_b.weight", "q8_0", (6, 40, 32), "model.gguf", 64)
    used = as_used("deepseek2", "model.layers.0.self_attn.k_b_proj.weight", stored)
    assert used.shape == (240, 32) and not used.negated_exp
    assert as_used("deepseek2", "model.norm.weight", stored) is stored


def test_slices_of_a_stored_tensor():
    stored = TensorLocation("blk.0.time_mix_lerp_fused.weight", "f16", (6, 1, 1, 8), "m.gguf", 64)
    used = as_used("rwkv7", "model.layers.0.attn.x_k", stored)
    assert used.fits((8,)) and used.offset == 64 + 2 * 2 * 8
    for shape in ((2, 8), (8,)):
        with pytest.raises(WeightsError, match="number 2 of its first dimension"):
            as_used("rwkv7", "model.layers.0.attn.x_k", replace(stored, shape=shape))
