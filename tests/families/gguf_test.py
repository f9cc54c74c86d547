"""Logits from GGUF files, as llama.cpp's converter writes them, equal those of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.gguf_families import GGUF_FAMILIES
from pagemill.weights.source import ModelSource
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from tests.families import gguf_converters as files
from tests.families import gguf_recurrent_converters as recurrent
from tests.families.divided import check_ranks
from tests.families.families import make
from tests.families.gguf_converters import Converter
from tests.families.gguf_files import write_gguf
from tests.parity.executors import make_executor
from tests.parity.one_request import Array, OneRequest, difference

# As in families_test.py.
TOLERANCE = 1e-4


_READ_THERE = {
    "bloom",
    "falcon_multi_query",
    "gemma2",
    "gpt2",
    "lfm2",
    "llama3",
    "minimax_m2",
    "nemotron",
    "phi3",
    "qwen2_moe",
    "stablelm",
    "starcoder2",
}


@dataclass(frozen=True)
class Row:
    """A family, as an architecture, and what of its configuration GGUF cannot say."""

    family: str
    architecture: str
    converter: Converter = files.PLAIN
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def read_there(self) -> bool:
        """`transformers` reads the architecture; it has no large Falcon."""
        return self.family in _READ_THERE


_FULL = {"sliding_window": None}
_PATTERN = {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]}

_NO_BIAS = {"attention_bias": False, "mlp_bias": False}
_SCALED = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e6},
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
}
_NAS_BLOCKS = [
    {"attention": {"n_heads_in_group": 3}, "ffn": {"ffn_mult": 2.0}},
    {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 5.0}},
    {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.0}},
    {"attention": {"n_heads_in_group": 1}, "ffn": {"no_op": True}},
]
_FALCON_H1_NORM = {
    **_NO_BIAS,
    "projectors_bias": False,
    "mamba_norm_before_gate": False,
    "mamba_d_ssm": 192,
}
_DENSE_FIRST = {"mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 40.0,
    "mscale": 0.7,
    "mscale_all_dim": 0.7,
    "original_max_position_embeddings": 32,
}

_MINICPM3 = {
    **_NO_BIAS,
    "scale_emb": 12,
    "scale_depth": 1.4,
    "dim_model_base": 256,
    "v_head_dim": 16,
}
_MISTRAL3_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 16.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 16,
    "llama_4_scaling_beta": 0.3,
}

_BAILING_MOE = {"mlp_only_layers": [], "qkv_bias": False}
_LLAMA4 = {
    "moe_layers": [1, 3],
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 8192,
    "floor_scale": 8192,
    "attn_scale": 0.1,
}
_PHIMOE = {
    "router_jitter_noise": 0.01,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "original_max_position_embeddings": 8192,
        "short_factor": [1.0 + i / 5 for i in range(8)],
        "long_factor": [2.0] * 8,
        "short_mscale": 1.0,
        "long_mscale": 1.0,
    },
}
_BITNET = {"hidden_act": "silu", "tie_word_embeddings": True}
_PLAMO2 = {"attention_window_size": 2048, "full_attention_idx": []}

ROWS = [
    Row("afmoe", "afmoe", files.SIGMOID, _PATTERN),
    Row("apertus", "apertus"),
    Row("arcee", "arcee", files.LLAMA),
    Row("bailing_moe", "bailingmoe", files.BAILING_MOE, _BAILING_MOE),
    Row("bailing_moe_v2", "bailingmoe2", files.SIGMOID, _NO_BIAS),
    Row("bitnet", "bitnet", files.BITNET, _BITNET),
    Row("bloom", "bloom", files.IN_ORDER),
    Row("chatglm", "chatglm", files.CHATGLM),
    Row("cohere", "command-r"),
    Row("cohere2", "cohere2", changes=_PATTERN),
    Row("cohere_plus", "command-r"),
    Row("dbrx", "dbrx", files.DBRX),
    Row("deepseek", "deepseek", files.DEEPSEEK, {"mlp_only_layers": [0]}),
    Row("deepseek_v2", "deepseek2", files.LATENT, {**_NO_BIAS, "rope_parameters": _YARN}),
    Row("deepseek_v2_lite", "deepseek2", files.LATENT),
    Row("deepseek_v3", "deepseek2", files.SPLIT_LATENT, _NO_BIAS),
    Row("dots1", "dots1", files.SIGMOID, {"layer_types": ["full_attention"] * 4}),
    Row("ernie4_5", "ernie4_5"),
    Row("ernie4_5_moe", "ernie4_5-moe", changes={"moe_layer_end_index": -1}),
    Row("exaone", "exaone"),
    Row("exaone4", "exaone4", files.WINDOWS),
    Row("exaone4_full", "exaone4"),
    Row("exaone_moe", "exaone-moe", files.EXAONE_MOE, _DENSE_FIRST | _PATTERN),
    Row("falcon", "falcon", files.FALCON),
    Row("falcon_multi_query", "falcon", files.FALCON),
    Row("falcon_one_norm", "falcon", files.FALCON),
    Row("falcon_h1", "falcon-h1", recurrent.FALCON_H1, _NO_BIAS | {"mamba_proj_bias": False}),
    Row("falcon_h1_norm", "falcon-h1", recurrent.FALCON_H1, _FALCON_H1_NORM),
    Row("gemma", "gemma", files.GEMMA),
    Row("gemma2", "gemma2", files.GEMMA, {"query_pre_attn_scalar": 20}),
    Row("gemma3n", "gemma3n", files.GEMMA3N),
    Row("gemma4", "gemma4", files.GEMMA4, _NO_BIAS),
    Row("gemma4_one_matrix", "gemma4", files.GEMMA4),
    Row("gemma4_experts", "gemma4", files.GEMMA4),
    Row("glm4", "glm4"),
    Row("glm4_moe", "glm4moe", files.SIGMOID),
    Row("glm4_moe_lite", "deepseek2", files.SPLIT_LATENT, _NO_BIAS | _DENSE_FIRST),
    Row("glm_moe_dsa", "glm-dsa", files.GLM_DSA, _DENSE_FIRST | _NO_BIAS),
    Row("gpt2", "gpt2", files.GPT2),
    Row("gpt_bigcode", "starcoder", files.BIG_CODE),
    Row("gpt_neox", "gptneox", files.IN_ORDER),
    Row("gpt_oss", "gpt-oss", files.GPT_OSS, {"swiglu_limit": 7.0}),
    Row("gpt_neox_in_turn", "gptneox", files.IN_ORDER),
    Row("granite", "granite", files.LLAMA),
    Row("granite_hybrid", "granitehybrid", recurrent.GRANITE_HYBRID),
    Row("granite_hybrid_experts", "granitehybrid", recurrent.GRANITE_HYBRID),
    Row("granite_moe", "granitemoe", files.GRANITE_EXPERTS),
    Row("granite_moe_shared", "granitemoe", files.GRANITE_EXPERTS),
    Row("hunyuan", "hunyuan-dense"),
    Row("hunyuan_moe", "hunyuan-moe", files.HUNYUAN_MOE),
    Row("internlm2", "internlm2", files.INTERNLM2),
    Row("jais", "jais", files.JAIS),
    Row("jais2", "jais2"),
    Row("jamba", "jamba", recurrent.JAMBA),
    Row("kimi_linear", "kimi-linear", recurrent.KIMI_LINEAR, _DENSE_FIRST),
    Row("lfm2", "lfm2", recurrent.LFM2),
    Row("lfm2_moe", "lfm2moe", recurrent.LFM2, {"tie_word_embeddings": True}),
    Row("llama3", "llama", files.LLAMA),
    Row("llama4", "llama4", files.LLAMA4, _LLAMA4),
    Row("falcon_mamba", "mamba", recurrent.MAMBA, {"mixer_rms_eps": 1e-6}),
    Row("mamba", "mamba", recurrent.MAMBA),
    Row("mamba2", "mamba2", recurrent.MAMBA2),
    Row("minicpm", "minicpm", files.MINICPM),
    Row("minicpm3", "minicpm3", files.MINICPM3, _MINICPM3),
    Row("ministral3", "mistral3", files.MISTRAL3, _FULL | {"rope_parameters": _MISTRAL3_YARN}),
    Row("minimax_m2", "minimax-m2", files.SIGMOID),
    Row("mpt", "mpt", files.MPT),
    Row("nemotron", "nemotron", files.NEMOTRON),
    Row("nemotron_h", "nemotron_h", recurrent.NEMOTRON_H),
    Row("nemotron_h_experts", "nemotron_h_moe", recurrent.NEMOTRON_H_MOE, {"mlp_bias": False}),
    Row("nemotron_nas", "deci", files.NEMOTRON_NAS, _NO_BIAS | {"block_configs": _NAS_BLOCKS}),
    Row("olmo", "olmo", files.LLAMA),
    Row("olmo2", "olmo2"),
    Row("olmo3", "olmo2", files.WINDOWS, {"rope_parameters": _SCALED}),
    Row("olmoe", "olmoe"),
    Row("orion", "orion", files.ORION),
    Row("pangu_embedded", "pangu-embedded"),
    Row("phi", "phi2"),
    Row("phi3", "phi3"),
    Row("phi3_long", "phi3"),
    Row("phimoe", "phimoe", changes=_PHIMOE | _FULL),
    Row("plamo2", "plamo2", recurrent.PLAMO2, _PLAMO2),
    Row("plamo3", "plamo3", files.PLAMO3),
    Row("qwen", "qwen", files.QWEN),
    Row("qwen2_moe", "qwen2moe", changes={"mlp_only_layers": []}),
    Row("qwen3_5", "qwen35", recurrent.QWEN3_5, {"linear_num_value_heads": 6}),
    Row("qwen3_5_moe", "qwen35moe", recurrent.QWEN3_5),
    Row("qwen3_next", "qwen3next", recurrent.QWEN3_NEXT, {"mlp_only_layers": []}),
    Row("qwen3_next", "qwen3next", recurrent.EARLY_QWEN3_NEXT, {"mlp_only_layers": []}),
    Row("rwkv7", "rwkv7", recurrent.RWKV7),
    Row("seed_oss", "seed_oss"),
    Row("smollm3", "smollm3", files.LLAMA, {"no_rope_layers": [1, 1, 1, 0]}),
    Row("stablelm", "stablelm"),
    Row("stablelm_parallel", "stablelm"),
    Row("starcoder2", "starcoder2", changes=_FULL),
    Row("xverse", "xverse", files.LLAMA),
]
# Their files are compared in tests/parity, in formats of blocks.
ELSEWHERE = {"gemma3", "qwen2", "qwen3", "qwen3moe"}
# Those of encoder-decoders in tests/media.
ENCODER_DECODERS = {"t5"}
# Theirs in gguf_encoders_test.py.
ENCODERS = {
    "bert",
    "eurobert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "llama-embed",
    "modern-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "t5encoder",
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.family)
def test_logits(row: Row, tmp_path: Path) -> None:
    """Whole and on two ranks, which may have whole experts. A tensor that is not read is an error,
    too."""
    reference = make(row.family, tmp_path, changes=row.changes)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, row.architecture, path, row.converter)
    source = ModelSource.open(path)
    assert difference(make_executor("native", source), reference) <= TOLERANCE
    request = OneRequest(reference)

    def distance(logits: Array) -> float:
        return request.difference(logits) / TOLERANCE

    check_ranks(source, BuildOptions(), request.steps, distance)
    if "moe_route" in build(source, BuildOptions()).program_text:
        check_ranks(source, BuildOptions(), request.steps, distance, whole_experts=True)


def test_experts_in_mxfp4(tmp_path: Path) -> None:
    """As gpt-oss is published: the reference has the values that the format keeps."""
    kind = gguf.GGMLQuantizationType.MXFP4
    reference = make("gpt_oss", tmp_path, changes={"swiglu_limit": 7.0, "intermediate_size": 64})
    for name, weight in reference.named_parameters():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            rows = np.ascontiguousarray(weight.detach().numpy().swapaxes(1, 2))
            kept = gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind)
            weight.data = torch.from_numpy(kept).transpose(1, 2).contiguous()
    reference.save_pretrained(tmp_path)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, "gpt-oss", path, files.GPT_OSS, formats={"_exps.weight": kind})
    source = ModelSource.open(path)
    assert source.tensor("model.layers.0.mlp.experts.up_proj.weight").dtype == "mxfp4"
    assert difference(make_executor("native", source), reference) <= TOLERANCE


@pytest.mark.parametrize("row", [row for row in ROWS if row.read_there], ids=lambda row: row.family)
def test_transformers_reads_what_is_written(row: Row, tmp_path: Path) -> None:
    """Its reader knows what converters do to weights, too."""
    reference = make(row.family, tmp_path, changes=row.changes)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, row.architecture, path, row.converter)
    read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=reference)["tensors"]
    weights = reference.state_dict()
    assert weights.keys() - read.keys() <= {"lm_head.weight"}
    for name, values in read.items():
        torch.testing.assert_close(values.reshape(weights[name].shape), weights[name])


def test_each_architecture_has_a_row() -> None:
    rows = {row.architecture for row in ROWS}
    assert rows | ELSEWHERE | ENCODERS | ENCODER_DECODERS == GGUF_FAMILIES.keys()
