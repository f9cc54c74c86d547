"""Models with false values in their configuration, metadata or tensor headers: they load, or one
sentence says why not, within a second and without allocating the sizes that they claim."""

from __future__ import annotations

import copy
import json
import math
import resource
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagemill.weights import GgufFile

from tests.faults.false_values import (
    DEEP,
    FUZZ,
    MAX_GROWTH_BYTES,
    NUMBERS,
    VALUES,
    as_json,
    lie,
    load,
)
from tests.faults.gguf_header import TensorInfo, header, kind_of
from tests.parity.gguf_files import ARCHITECTURES, write_gguf
from tests.parity.tiny_decoders import DECODERS
from tests.parity.tiny_models import make

# Keys that tiny configurations lack, and values that make families read them.
SWITCHES: dict[str, Any] = {
    "use_sliding_window": True,
    "max_window_layers": 1,
    "layer_types": ["sliding_attention"] * 3,
    "rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32},
    "partial_rotary_factor": 0.5,
    "eos_token_id": [1, 2],
    "quantization_config": {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "ignored_layers": ["re:.*head"],
    },
    "compression_config": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "dynamic": {"-:.*head": {}, r"+:.*\.down_proj": {"bits": 8}},
    },
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory of each family and, as "<family>.gguf", a file."""
    folder = tmp_path_factory.mktemp("models")
    made: dict[str, Path] = {}
    for family in ("bert", *DECODERS):
        made[family] = folder / family
        model = make(family, made[family])
        if family in ARCHITECTURES:
            made[f"{family}.gguf"] = folder / f"{family}.gguf"
            write_gguf(model, family, made[f"{family}.gguf"], "Q8_0")
    return made


@pytest.fixture(autouse=True, scope="module")
def memory_is_bounded(checkpoints: dict[str, Path]):
    for path in checkpoints.values():
        assert load(path) is None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MAX_GROWTH_BYTES


def _ignoring(patterns: Iterable[str]) -> dict[str, Any]:
    ignored = [f"re:{pattern}" for pattern in patterns]
    return {"quantization_config": {"quant_method": "fp8", "ignored_layers": ignored}}


@pytest.mark.parametrize(
    ("family", "changes", "sentence"),
    [
        ("llama", {"head_dim": 2**31 - 1}, "head_dim is 2147483647, but the largest dimension"),
        ("llama", {"hidden_size": 0}, "needs hidden_size > 0"),
        ("llama", {"num_attention_heads": 2**31 - 2}, "num_attention_heads is 2147483646, but"),
        ("qwen2", {"num_hidden_layers": 2**31 - 1}, "num_hidden_layers is 2147483647, but"),
        ("bert", {"num_attention_heads": 7}, "7 heads cannot share 60 features"),
        ("llama", {"rms_norm_eps": math.nan}, "needs rms_norm_eps from 0 to 1, it has nan"),
        ("llama", {"rope_parameters": {"rope_theta": 0}}, "rope_theta must be a number > 0"),
        ("llama", {"rope_parameters": {"rope_theta": 1e-300}}, "no frequencies from rope_theta"),
        ("gemma3", {"query_pre_attn_scalar": -1}, "needs query_pre_attn_scalar"),
        ("qwen2", {"tie_word_embeddings": "false"}, "tie_word_embeddings to be true or false"),
        ("llama", {"eos_token_id": 2**40}, "eos_token_id 1099511627776 is not in the vocabulary"),
        ("llama", {"quantization_config": {"quant_method": DEEP}}, "quant_method a list"),
        ("llama", _ignoring("(.*.*)*(a|.*)*(.*b?){99}!" for _ in range(99)), ""),
        ("llama", _ignoring(["(.?){990}"] * 8), "patterns take too long to match"),
        ("llama", _ignoring(["a{999}" * 20]), "supported: patterns of 16384 states"),
        ("llama", {"attention_bias": True, "num_hidden_layers": 1}, "q_proj.bias' is missing"),
        ("llama", {"num_hidden_layers": 1}, "does not use 18 of the model's tensors: "),
    ],
)
def test_a_configuration_that_lies(
    checkpoints: dict[str, Path],
    tmp_path: Path,
    family: str,
    changes: dict[str, Any],
    sentence: str,
):
    config = json.loads((checkpoints[family] / "config.json").read_text())
    assert sentence in (load(_copy(checkpoints[family], tmp_path, config | changes)) or "")


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "hf_quant_config.json", "modules.json"]
)
def test_deep_json(checkpoints: dict[str, Path], tmp_path: Path, name: str):
    lying = _copy(checkpoints["llama"], tmp_path, json.loads("{}"))
    shutil.copy(checkpoints["llama"] / "config.json", lying)
    (lying / name).write_text("[" * 10**6)
    assert "nested too deep" in (load(lying) or "")


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("rope.dimension_count", 2**31 - 1, "rope.dimension_count is 2147483647, heads have 16"),
        ("embedding_length", 0, "llama.embedding_length is 0"),
        ("attention.head_count", -1, "llama.attention.head_count is -1"),
        ("attention.key_length", 2**31 - 1, "head_dim is 2147483647, but the largest dimension"),
        ("block_count", 2**62, "llama.block_count is 4611686018427387904; at most 65536"),
        ("attention.layer_norm_rms_epsilon", -math.inf, "rms_norm_eps from 0 to 1, it has -inf"),
        ("rope.freq_base", 0.0, "rope_theta must be a number > 0"),
        ("context_length", 2**31, "max_position_embeddings > 0 and below 2^31"),
        ("tokenizer.ggml.scores", ["1.0"], "tokenizer.ggml.scores is of the wrong type: a list"),
        ("tokenizer.ggml.pre", ["x"], "tokenizer.ggml.pre is of the wrong type: a list"),
        ("tokenizer.ggml.tokens", "abc", "tokenizer.ggml.tokens is of the wrong type: 'abc'"),
        ("tokenizer.ggml.tokens", ["a" * 10**6], "tokens of more than 1024 characters"),
    ],
)
def test_gguf_metadata_that_lies(
    checkpoints: dict[str, Path], tmp_path: Path, key: str, value: Any, sentence: str
):
    metadata, tensors, data = _parts(checkpoints["llama.gguf"])
    metadata[f"llama.{key}" if "tokenizer" not in key else key] = value
    (tmp_path / "lying.gguf").write_bytes(header(metadata, tensors) + data)
    assert sentence in (load(tmp_path / "lying.gguf") or "")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("blk.0.attn_sinks.weight", "does not use 1 of the model's tensors: 'blk.0.attn_sinks"),
        ("blk.3.attn_q.weight", "does not use 1 of the model's tensors: 'blk.3.attn_q.weight'"),
        ("blk.0.attn_v.bias", "does not use 1 of the model's tensors: 'blk.0.attn_v.bias'"),
    ],
)
def test_a_gguf_tensor_too_many(
    checkpoints: dict[str, Path], tmp_path: Path, name: str, sentence: str
):
    metadata, tensors, data = _parts(checkpoints["llama.gguf"])
    tensors.append(TensorInfo(name, (8,), kind_of("f32"), len(data)))
    (tmp_path / "more.gguf").write_bytes(header(metadata, tensors) + data + bytes(32))
    assert sentence in (load(tmp_path / "more.gguf") or "")


def test_overlapping_tensors(checkpoints: dict[str, Path], tmp_path: Path):
    metadata, tensors, data = _parts(checkpoints["llama.gguf"])
    tensors[1].offset = tensors[0].offset
    (tmp_path / "lying.gguf").write_bytes(header(metadata, tensors) + data)
    assert "overlap" in (load(tmp_path / "lying.gguf") or "")


def _parts(path: Path) -> tuple[dict[str, Any], list[TensorInfo], bytes]:
    """The metadata, tensors and data of a GGUF file."""
    opened = GgufFile.open(path)
    start = min(tensor.offset for tensor in opened.tensors.values())
    tensors = [
        TensorInfo(tensor.name, tensor.shape, kind_of(tensor.dtype), tensor.offset - start)
        for tensor in opened.tensors.values()
    ]
    return dict(opened.metadata), tensors, path.read_bytes()[start:]


def _copy(source: Path, folder: Path, config: Any) -> Path:
    lying = folder / "lying"
    shutil.rmtree(lying, ignore_errors=True)
    shutil.copytree(source, lying)
    (lying / "config.json").write_text(as_json(config))
    return lying


@pytest.mark.parametrize("family", ["bert", *DECODERS])
@FUZZ
@given(draw=st.data())
def test_configurations(checkpoints: dict[str, Path], tmp_path: Path, family: str, draw):
    config = json.loads((checkpoints[family] / "config.json").read_text())
    for key in draw.draw(st.lists(st.sampled_from(sorted(SWITCHES)), max_size=2)):
        config[key] = copy.deepcopy(SWITCHES[key])
    lie(draw, config)
    load(_copy(checkpoints[family], tmp_path, config))


@FUZZ
@given(draw=st.data())
def test_safetensors_headers(checkpoints: dict[str, Path], tmp_path: Path, draw):
    config = json.loads((checkpoints["llama"] / "config.json").read_text())
    lying = _copy(checkpoints["llama"], tmp_path, config)
    data = (lying / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:end])
    lie(draw, entries)
    text = as_json(entries).encode()
    (lying / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[end:])
    load(lying)


@pytest.mark.parametrize("family", sorted(ARCHITECTURES))
@FUZZ
@given(draw=st.data())
def test_gguf_headers(checkpoints: dict[str, Path], tmp_path: Path, family: str, draw):
    metadata, tensors, data = _parts(checkpoints[f"{family}.gguf"])
    for key in ("rope.dimension_count", "attention.key_length", "rope.scaling.factor"):
        metadata.setdefault(f"{family}.{key}", 16)
    key = draw.draw(st.sampled_from(sorted(metadata)))
    plain = [value for value in VALUES if value is not None and not isinstance(value, dict)]
    metadata[key] = draw.draw(st.sampled_from(plain))
    if draw.draw(st.booleans()):
        at = draw.draw(st.integers(0, len(tensors) - 1))
        shape = draw.draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=5))
        offset = draw.draw(st.sampled_from((0, 32, 33, 2**63, -32)))
        change: dict[str, Any] = draw.draw(
            st.sampled_from(({"shape": shape}, {"offset": offset}, {"kind": 1000}))
        )
        tensors[at] = replace(tensors[at], **change)
    lying = tmp_path / "lying.gguf"
    lying.write_bytes(header(metadata, tensors) + data)
    load(lying)
