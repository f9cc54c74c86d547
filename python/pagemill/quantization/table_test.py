"""The table of methods: what it rejects, and that a method needs only an entry in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pagemill.ops.program_text import from_text
from pagemill.ops.trace import Tensor
from pagemill.quantization.section import QuantizationError, Section
from pagemill.quantization.table import METHODS, method_of
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights import ModelSource, WeightsError
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import read_f32


def test_the_table_is_sorted_and_every_row_loads() -> None:
    assert list(METHODS) == sorted(METHODS)
    for name in METHODS:
        with pytest.raises(QuantizationError, match=f"quantization_config .{name}.: "):
            # No method accepts a list instead of an object, or numbers as names.
            wrong: dict[str, Any] = {"bits": 0, "config_groups": []}
            names = {"ignored_layers": [1], "modules_to_not_convert": [1]}
            method_of({"quantization_config": {"quant_method": name, **wrong, **names}})


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"quant_method": "aqlm"}, "the quant_method 'aqlm' is not supported; supported: auto-rou"),
        (
            {"quant_method": "hqq"},
            "the quant_method 'hqq' is supported only in models that are served",
        ),
        ({"quant_method": ["awq"]}, "the quant_method a list is not supported"),
        ({}, "quant_method None is not supported; supported: .*compressed-tensors"),
        ([], "quantization_config is not an object"),
    ],
)
def test_unknown_methods_are_refused(section: object, message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        method_of({"quantization_config": section})


CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 11,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}


def _tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    shapes = {"embed_tokens": (11, 16), "norm": (16,), "layers.0.mlp.down_proj": (16, 24)}
    shapes |= {f"layers.0.self_attn.{name}_proj": (16, 16) for name in "qkvo"}
    shapes |= {f"layers.0.mlp.{name}_proj": (24, 16) for name in ("gate", "up")}
    shapes |= {f"layers.0.{name}_layernorm": (16,) for name in ("input", "post_attention")}
    return {f"model.{name}.weight": torch.randn(shape) for name, shape in shapes.items()}


def _write(directory: Path, tensors: dict[str, torch.Tensor], section: object) -> ModelSource:
    directory.mkdir()
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": section}))
    return ModelSource.open(directory)


def _logits(source: ModelSource) -> torch.Tensor:
    text = build(source, BuildOptions(rewrite=False)).program_text
    logits = TorchExecutor(text, TorchOptions(num_blocks=4))(
        SimpleBatch(4, 16).step({0: [1, 7, 3]}, all_logits=True)
    )["logits"]
    assert logits is not None
    return torch.from_numpy(logits)


class _Mirrored:
    """A scheme that stores each matrix transposed, as `<module>.mirrored`."""

    name = "toy"

    def stores(self, tensors: DeclaredTensors, module: str) -> bool:
        return tensors.has(f"{module}.mirrored")

    def block_elements(self, tensors: DeclaredTensors, module: str) -> int:
        return 1

    def operand(
        self, tensors: DeclaredTensors, module: str, shape: Any, rows: Any, columns: Any
    ) -> Tensor:
        assert rows is None or rows.whole
        assert columns is None or columns.whole
        values = read_f32(tensors.locate(f"{module}.mirrored")).T
        assert values.shape == shape
        return tensors.constant(f"{module}.weight", values)

    def head_matrices(
        self, tensors: DeclaredTensors, module: str, width: int, heads: Any, rows: Any
    ) -> Tensor:
        raise NotImplementedError


class Toy:
    """The method of `_Mirrored` that writes a tensor beside each matrix that nothing reads."""

    notes = ("toys are slow",)
    parts = ("mirrored",)

    @classmethod
    def from_section(cls, section: Section) -> Toy:
        section.require("mirrors", section.get("mirrors"), {1: "1"})
        return cls()

    def scheme(self, module: str) -> _Mirrored:
        del module
        return _Mirrored()

    def may_ignore(self, tensor: TensorLocation) -> bool:
        return tensor.name.endswith(".polish")


def test_a_method_is_a_module_and_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("toy_quantization")
    module.Toy = Toy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "toy_quantization", module)
    monkeypatch.setitem(METHODS, "toy", "toy_quantization:Toy")
    plain = _tensors()
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in plain.items():
        if name.endswith("_proj.weight"):
            stored[name.replace("weight", "mirrored")] = tensor.T.contiguous()
            stored[name.replace("weight", "polish")] = torch.ones(3)
        else:
            stored[name] = tensor
    source = _write(tmp_path / "toy", stored, {"quant_method": "toy", "mirrors": 1})
    built = build(source, BuildOptions(rewrite=False))
    assert built.notes == ("toys are slow",)
    names = {weight.name for weight in from_text(built.program_text).weights}
    assert "model.layers.0.mlp.down_proj.weight" in names
    expected = _logits(_write(tmp_path / "plain", plain, None))
    torch.testing.assert_close(_logits(source), expected, rtol=0, atol=0)
    with pytest.raises(WeightsError, match=r"bad: .*\(toy\): mirrors 2 is not supported"):
        build(
            _write(tmp_path / "bad", stored, {"quant_method": "toy", "mirrors": 2}), BuildOptions()
        )
