"""The results and errors of `build`."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagemill.models.base import ModelConfigError
from pagemill.ops.program_text import from_text
from pagemill.runner.build import BuildOptions, build
from pagemill.weights import ModelSource, WeightsError

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 11,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
    "eos_token_id": [3, 2],
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    shapes = {"embed_tokens": (11, 16), "norm": (16,)}
    layer = {"input_layernorm": (16,), "post_attention_layernorm": (16,)}
    layer |= {f"self_attn.{name}_proj": (16, 16) for name in "qkvo"}
    layer |= {"mlp.gate_proj": (24, 16), "mlp.up_proj": (24, 16), "mlp.down_proj": (16, 24)}
    shapes |= {f"layers.0.{name}": shape for name, shape in layer.items()}
    tensors = {
        f"model.{name}.weight": torch.randn(shape, dtype=torch.bfloat16)
        for name, shape in shapes.items()
    }
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 9}')
    return tmp_path


OPTIONS = BuildOptions(rewrite=False)


def test_a_generator(directory: Path):
    built = build(ModelSource.open(directory), OPTIONS)
    assert (built.vocab_size, built.output_size, built.max_model_len) == (11, 11, 64)
    assert built.chunked_prefill and built.prefix_caching and not built.pooling
    assert built.eos_token_ids == (2, 3, 9)
    program = from_text(built.program_text)
    by_name = {weight.name: weight for weight in program.weights}
    # Matrices are used from the file in place; bf16 norms become f32 constants of the program.
    assert by_name["model.embed_tokens.weight"].dtype == "bf16"
    assert program.files[by_name["model.embed_tokens.weight"].file].endswith("model.safetensors")
    norm = by_name["model.norm.weight"]
    assert norm.dtype == "f32" and program.files[norm.file] == "@"
    expected = load_file(directory / "model.safetensors")["model.norm.weight"].float().numpy()
    assert program.constants[norm.offset : norm.offset + 64] == expected.tobytes()
    assert sum(op.op == "paged_attention" for op in program.ops) == 1


def test_the_fallback_needs_the_library(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pagemill.runner.fallback.build", None)  # as without torch
    (directory / "config.json").write_text(
        json.dumps({**CONFIG, "architectures": ["NewForCausalLM"]})
    )
    source = ModelSource.open(directory)
    with pytest.raises(
        ModelConfigError, match="unknown architecture 'NewForCausalLM'.*pip install"
    ):
        build(source, BuildOptions(implementation="auto"))
    with pytest.raises(ModelConfigError, match="`pagemill models` lists those known$"):
        build(source, OPTIONS)


def test_a_generator_made_to_pool(directory: Path):
    built = build(ModelSource.open(directory), BuildOptions(pooling="last", rewrite=False))
    assert built.pooling and built.chunked_prefill and not built.prefix_caching
    mean = build(ModelSource.open(directory), BuildOptions(pooling="mean", rewrite=False))
    assert mean.pooling and not mean.chunked_prefill and not mean.prefix_caching
    assert built.output_size == 16
    assert [output.name for output in from_text(built.program_text).outputs] == ["pooled"]


def test_a_shorter_context_has_the_short_factors_of_longrope(directory: Path):
    rope = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    config = CONFIG | {"rope_scaling": rope, "original_max_position_embeddings": 32}
    (directory / "config.json").write_text(json.dumps(config))
    source = ModelSource.open(directory)
    programs = [
        build(source, BuildOptions(max_model_len=tokens, rewrite=False)).program_text
        for tokens in (None, 64, 33, 32)
    ]
    assert programs[0] == programs[1] == programs[2] != programs[3]


def test_max_model_len(directory: Path):
    source = ModelSource.open(directory)
    assert build(source, BuildOptions(max_model_len=32, rewrite=False)).max_model_len == 32
    for wanted in (0, 65):
        with pytest.raises(ModelConfigError, match="outside the model's range, 1 to 64"):
            build(source, BuildOptions(max_model_len=wanted, rewrite=False))


def test_hidden_states(directory: Path):
    source = ModelSource.open(directory)
    text = build(source, BuildOptions(hidden_states=(0,), rewrite=False)).program_text
    outputs = {output.name: output.value for output in from_text(text).outputs}
    assert set(outputs) == {"logits", "hidden.0"} and outputs["hidden.0"] == "layer.0"
    for layer in (-1, 1):
        with pytest.raises(ModelConfigError, match=f"layer {layer}; layers that have it: 0"):
            build(source, BuildOptions(hidden_states=(0, layer), rewrite=False))
    with pytest.raises(ModelConfigError, match="experts names layer 0; layers that have it: none"):
        build(source, BuildOptions(experts=(0,), rewrite=False))


def test_missing_and_misshapen_weights(directory: Path):
    path = directory / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.mlp.up_proj.weight"
    save_file(tensors | {name: tensors[name][:20].clone()}, path)
    with pytest.raises(WeightsError, match=r"up_proj.weight is bf16 \[20, 16\].*\[24, 16\]"):
        build(ModelSource.open(directory), OPTIONS)
    del tensors[name]
    save_file(tensors, path)
    with pytest.raises(WeightsError, match=f"the tensor '{name}' is missing"):
        build(ModelSource.open(directory), OPTIONS)


def test_a_configuration_without_architectures(directory: Path):
    config = {key: value for key, value in CONFIG.items() if key != "architectures"}
    (directory / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    assert build(ModelSource.open(directory), OPTIONS).architecture == "LlamaForCausalLM"
    (directory / "config.json").write_text(json.dumps(config | {"model_type": "other"}))
    with pytest.raises(ModelConfigError, match="model_type 'other' is unknown"):
        build(ModelSource.open(directory), OPTIONS)


def test_sources_that_are_none(tmp_path: Path):
    with pytest.raises(WeightsError, match="does not exist"):
        ModelSource.open(tmp_path / "nothing")
    with pytest.raises(WeightsError, match="config.json"):
        ModelSource.open(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match="has neither model.safetensors nor"):
        ModelSource.open(tmp_path)
