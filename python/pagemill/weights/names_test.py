"""Names of GGUF files and of layers lead to each other."""

import pytest

from pagemill.weights.names import gguf_name, layer_name

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
        assert gguf_name(architecture, name) == stored
        assert layer_name(architecture, stored) == name
    for unknown in ("rope_freqs.weight", "blk.3.attn_sinks.weight", "blk.x.attn_q.weight"):
        assert gguf_name(architecture, unknown) is None
        assert layer_name(architecture, unknown) == unknown
