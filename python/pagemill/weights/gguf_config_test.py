"""GGUF metadata of each family becomes the configuration that `transformers` would have."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pagemill.weights import ModelSource, WeightsError


def _write(path: Path, architecture: str, keys: dict[str, Any], tensors: tuple[str, ...]) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {
        "embedding_length": 64,
        "block_count": 2,
        "feed_forward_length": 96,
        "context_length": 512,
        "attention.head_count": 4,
    }
    for key, value in (sizes | keys).items():
        full = key if key.startswith("tokenizer") else f"{architecture}.{key}"
        add = {
            int: writer.add_uint32,
            float: writer.add_float32,
            str: writer.add_string,
            list: writer.add_array,
        }
        add[type(value)](full, value)
    for name in tensors:
        writer.add_tensor(name, np.ones((8, 64), np.float32))
    if "rope_freqs.weight" in keys.get("with", ""):
        writer.add_tensor("rope_freqs.weight", np.arange(1, 9, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_llama(tmp_path: Path):
    keys = {
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 0.5,
        "rope.freq_base": 1e5,
        "rope.dimension_count": 8,
        "tokenizer.ggml.eos_token_id": 7,
        "tokenizer.ggml.eot_token_id": 3,
        "tokenizer.ggml.bos_token_id": 1,
    }
    source = ModelSource.open(_write(tmp_path / "m.gguf", "llama", keys, ("token_embd.weight",)))
    config = source.config
    assert source.architecture == "LlamaForCausalLM" and source.kind == "gguf"
    assert (config["hidden_size"], config["num_key_value_heads"], config["head_dim"]) == (64, 2, 16)
    assert config["vocab_size"] == 8 and config["tie_word_embeddings"]
    assert config["rope_interleaved"] and config["rms_norm_eps"] == 0.5
    assert config["rope_parameters"] == {
        "rope_type": "default",
        "rope_theta": 1e5,
        "partial_rotary_factor": 0.5,
    }
    assert source.eos_token_ids == (3, 7) and config["bos_token_id"] == 1
    assert source.tensor("model.embed_tokens.weight").shape == (8, 64)
    assert not source.has("lm_head.weight") and not source.has("model.nothing")


def test_a_texts_end_ends_an_answer_too(tmp_path: Path):
    keys = {
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 0.5,
        "tokenizer.ggml.tokens": ["a", "<|im_end|>", "<|endoftext|>", "<|end_of_text|>"],
        "tokenizer.ggml.token_type": [1, 3, 3, 1],
        "tokenizer.ggml.eos_token_id": 1,
    }
    source = ModelSource.open(_write(tmp_path / "m.gguf", "llama", keys, ("token_embd.weight",)))
    assert source.eos_token_ids == (1, 2)  # 3 is text


def test_llama3_factors_come_from_their_tensor(tmp_path: Path):
    keys = {"with": "rope_freqs.weight"}
    source = ModelSource.open(_write(tmp_path / "m.gguf", "llama", keys, ("token_embd.weight",)))
    rope = source.config["rope_parameters"]
    assert rope["rope_type"] == "factors" and rope["factors"] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_mixtral_is_a_llama_with_experts(tmp_path: Path):
    keys = {"expert_count": 8, "expert_used_count": 2}
    tensors = ("token_embd.weight", "output.weight", "blk.0.ffn_up_exps.weight")
    source = ModelSource.open(_write(tmp_path / "m.gguf", "llama", keys, tensors))
    assert source.architecture == "MixtralForCausalLM" and source.config["rope_interleaved"]
    assert source.config["num_local_experts"] == 8 and source.config["num_experts_per_tok"] == 2
    assert source.has("model.layers.0.block_sparse_moe.experts.w3.weight")
    no_experts = _write(tmp_path / "dense.gguf", "llama", {"expert_count": 0}, tensors)
    assert ModelSource.open(no_experts).architecture == "LlamaForCausalLM"


def test_qwen3moe(tmp_path: Path):
    keys = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 24}
    tensors = ("token_embd.weight", "blk.0.ffn_gate.weight", "blk.1.ffn_gate_exps.weight")
    source = ModelSource.open(_write(tmp_path / "m.gguf", "qwen3moe", keys, tensors))
    assert source.architecture == "Qwen3MoeForCausalLM"
    assert source.config["moe_intermediate_size"] == 24 and source.config["norm_topk_prob"]
    assert source.config["mlp_only_layers"] == [0]
    assert source.has("model.layers.1.mlp.experts.gate_proj.weight")


def test_layers_that_predict_further_tokens_are_counted_apart(tmp_path: Path):
    keys = {"block_count": 3, "nextn_predict_layers": 1, "expert_gating_func": 2}
    tensors = ("token_embd.weight", "blk.2.nextn.eh_proj.weight")
    source = ModelSource.open(_write(tmp_path / "m.gguf", "glm4moe", keys, tensors))
    config = source.config
    assert (config["num_hidden_layers"], config["num_nextn_predict_layers"]) == (2, 1)
    names = [source.name_of(tensor) for tensor in source.tensors]
    assert "model.layers.2.eh_proj.weight" in names


def test_a_number_for_each_layer(tmp_path: Path):
    keys = {"attention.head_count_kv": [0, 2], "attention.sliding_window_pattern": [True, False]}
    tensors = ("token_embd.weight", "blk.1.attn_q.weight")
    source = ModelSource.open(_write(tmp_path / "m.gguf", "lfm2", keys, tensors))
    assert source.config["num_key_value_heads"] == 2
    assert source.config["layer_types"] == ["conv", "full_attention"]
    for differ in ([1, 2], [0, 0], [True, True]):
        keys = {"attention.head_count_kv": differ}
        with pytest.raises(WeightsError, match="lfm2.attention.head_count_kv is"):
            ModelSource.open(_write(tmp_path / "differ.gguf", "lfm2", keys, tensors))


def test_sizes_of_each_layer(tmp_path: Path):
    keys: dict[str, Any] = {
        "attention.head_count": [0, 4],
        "attention.head_count_kv": [0, 2],
        "feed_forward_length": 256,
    }
    tensors = ("token_embd.weight", "blk.1.attn_q.weight")
    source = ModelSource.open(_write(tmp_path / "m.gguf", "deci", keys, tensors))
    blocks = source.config["block_configs"]
    assert [block["attention"]["no_op"] for block in blocks] == [True, False]
    assert [block["ffn"]["intermediate_size"] for block in blocks] == [256, 256]
    for wrong in ([0, 3], [0, -2], [2], "2"):
        keys["attention.head_count_kv"] = wrong
        with pytest.raises(WeightsError, match="head_count_kv is|cannot share 3"):
            ModelSource.open(_write(tmp_path / "wrong.gguf", "deci", keys, tensors))


def test_sigmoids_of_balanced_experts_make_deepseek_v3(tmp_path: Path):
    keys = {
        "rope.dimension_count": 8,
        "attention.key_length": 24,
        "attention.value_length": 16,
        "rope.scaling.yarn_log_multiplier": 0.1,
    }
    tensors = ("token_embd.weight", "blk.1.attn_kv_b.weight")
    source = ModelSource.open(_write(tmp_path / "2.gguf", "deepseek2", keys, tensors))
    assert source.architecture == "DeepseekV2ForCausalLM"
    config = source.config
    assert (config["qk_nope_head_dim"], config["qk_rope_head_dim"]) == (16, 8)
    assert config["rope_parameters"]["mscale_all_dim"] == pytest.approx(1)
    tensors += ("blk.1.exp_probs_b.bias",)
    source = ModelSource.open(_write(tmp_path / "3.gguf", "deepseek2", keys, tensors))
    assert source.architecture == "DeepseekV3ForCausalLM"


def test_qwen2(tmp_path: Path):
    tensors = ("token_embd.weight", "output.weight", "blk.1.attn_q.weight")
    source = ModelSource.open(_write(tmp_path / "m.gguf", "qwen2", {}, tensors))
    assert source.architecture == "Qwen2ForCausalLM"
    assert not source.config["tie_word_embeddings"] and not source.config["rope_interleaved"]
    assert source.has("lm_head.weight") and source.has("model.layers.1.self_attn.q_proj.weight")


def test_gemma3(tmp_path: Path):
    keys = {"attention.sliding_window": 128, "attention.key_length": 32, "rope.freq_base": 1e6}
    tensors = ("token_embd.weight", "blk.0.ffn_norm.weight", "blk.0.post_attention_norm.weight")
    source = ModelSource.open(_write(tmp_path / "m.gguf", "gemma3", keys, tensors))
    config = source.config
    assert config["norm_weight_offset"] == 0.0 and config["query_pre_attn_scalar"] == 32
    assert config["sliding_window"] == 128 and "sliding_window_pattern" not in config
    thetas = {kind: rope["rope_theta"] for kind, rope in config["rope_parameters"].items()}
    assert thetas == {"full_attention": 1e6, "sliding_attention": 1e4}
    prefix = "model.layers.0."
    assert (
        source.tensor(prefix + "pre_feedforward_layernorm.weight").name == "blk.0.ffn_norm.weight"
    )
    assert source.has(prefix + "post_attention_layernorm.weight")


@pytest.mark.parametrize(
    ("architecture", "keys", "tensors", "message"),
    [
        (
            "rwkv6",
            {},
            ("token_embd.weight",),
            "'rwkv6' is not one of the .* that `pagemill models` lists",
        ),
        ("llama", {}, ("other",), "token_embd.weight is missing"),
        ("llama", {"block_count": "two"}, ("token_embd.weight",), "llama.block_count is 'two'"),
        ("gemma3", {}, ("token_embd.weight",), "gemma3.attention.sliding_window is missing"),
        ("llama", {"attention.head_count": 0}, ("token_embd.weight",), "head_count is 0"),
        (
            "phi2",
            {"rope.dimension_count": 32},
            ("token_embd.weight",),
            "phi2.rope.dimension_count is 32, heads have 16",
        ),
        ("lfm2", {"block_count": 2**31}, ("token_embd.weight",), "lfm2.block_count is 2147483648"),
        (
            "plamo2",
            {"block_count": 6},
            ("token_embd.weight", "blk.1.attn_qkv.weight", "blk.2.attn_qkv.weight"),
            r"layers with attention are \[1, 2\]",
        ),
        (
            "jamba",
            {"block_count": 6},
            tuple(f"blk.{i}.attn_q.weight" for i in (1, 2, 4)) + ("token_embd.weight",),
            r"layers \[1, 2, 4\] are not all 1 apart \(attn_layer\)",
        ),
        ("llama4", {"attention.sliding_window": 0}, ("token_embd.weight",), "without chunked"),
        (
            "gemma3n",
            {"attention.sliding_window_pattern": [True]},
            ("token_embd.weight", "per_layer_token_embd.weight", "blk.0.laurel_l.weight"),
            r"sliding_window_pattern is a list; layers need one each",
        ),
        ("mamba2", {}, ("token_embd.weight",), "mamba2.ssm.time_step_rank is missing"),
        (
            "granitehybrid",
            {},
            ("token_embd.weight", "blk.0.ffn_up_exps.weight"),
            r"blk.0.ffn_up_exps.weight is \[8, 64\], not a matrix per expert",
        ),
        (
            "minicpm",
            {"attention.head_count": 65},
            ("token_embd.weight",),
            "65 heads cannot share an embedding of 64",
        ),
        (
            "modern-bert",
            {"attention.sliding_window_pattern": 0},
            ("token_embd.weight",),
            "modern-bert.attention.sliding_window_pattern is 0",
        ),
    ],
)
def test_message(
    tmp_path: Path, architecture: str, keys: dict[str, Any], tensors: tuple[str, ...], message: str
):
    with pytest.raises(WeightsError, match=message):
        ModelSource.open(_write(tmp_path / "m.gguf", architecture, keys, tensors))


@pytest.mark.parametrize(
    ("architecture", "key", "default"),
    [("bitnet", "hidden_act", "silu"), ("modern-bert", "hidden_activation", None)],
)
def test_activations_that_newer_files_state(
    architecture: str, key: str, default: str | None, tmp_path: Path
):
    keys: dict[str, Any] = {"attention.layer_norm_rms_epsilon": 0.5}
    path = _write(tmp_path / "m.gguf", architecture, keys, ("token_embd.weight",))
    assert ModelSource.open(path).config.get(key) == default
    keys["hidden_activation"] = "relu2"
    path = _write(tmp_path / "n.gguf", architecture, keys, ("token_embd.weight",))
    assert ModelSource.open(path).config[key] == "relu2"


@pytest.mark.parametrize("heads", [("output.weight",), ()])
@pytest.mark.parametrize("gate", [("enc.blk.0.ffn_gate.weight",), ()])
def test_scales_of_t5s_logits(gate: tuple[str, ...], heads: tuple[str, ...], tmp_path: Path):
    """Heads of models with gates, T5 1.1's, are not scaled unless they are the table of tokens."""
    keys = {"decoder_start_token_id": 3, "decoder_block_count": 5}
    path = _write(tmp_path / "m.gguf", "t5", keys, ("token_embd.weight", *gate, *heads))
    config = ModelSource.open(path).config
    assert config["scale_decoder_outputs"] == (not gate or not heads)
    assert (config["decoder_start_token_id"], config["num_decoder_layers"]) == (3, 5)
    assert config["feed_forward_proj"] == ("gated-gelu" if gate else "relu")


@pytest.mark.parametrize("labels", ["yes", [1, 2]])
def test_labels_that_are_not_texts(labels: Any, tmp_path: Path):
    keys = {"pooling_type": 4, "classifier.output_labels": labels}
    path = _write(tmp_path / "m.gguf", "qwen3", keys, ("token_embd.weight", "cls.output.weight"))
    with pytest.raises(WeightsError, match="output_labels is not a list of texts"):
        ModelSource.open(path)


def test_classifiers_without_a_head(tmp_path: Path):
    """Only BERT's have a reason that is known."""
    path = _write(tmp_path / "m.gguf", "qwen3", {"pooling_type": 4}, ("token_embd.weight",))
    with pytest.raises(WeightsError, match="lacks cls.output.weight: use the checkpoint's"):
        ModelSource.open(path)


def test_classifiers_of_other_architectures(tmp_path: Path):
    path = _write(tmp_path / "m.gguf", "jina-bert-v2", {"pooling_type": 4}, ("token_embd.weight",))
    with pytest.raises(WeightsError, match="classifier of jina-bert-v2, .* lacks known tensors of"):
        ModelSource.open(path)
