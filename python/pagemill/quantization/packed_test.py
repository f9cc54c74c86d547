"""Packed integers are declared according to their tensors, or rejected with a message of what was
found."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pagemill.ops.program_text import to_text
from pagemill.ops.shard import Part
from pagemill.ops.trace import Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.weights import MissingTensorError, ModelSource, WeightsError

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
        }
    },
}


def gptq_tensors(zero: int = 0x77777777, **changed: torch.Tensor) -> dict[str, torch.Tensor]:
    """A layer of 8 outputs and 64 inputs; `zero`: a word of its zero points."""
    tensors = {
        "qweight": torch.zeros((8, 8), dtype=torch.int32),
        "qzeros": torch.full((2, 1), zero, dtype=torch.int32),
        "scales": torch.ones((2, 8), dtype=torch.float16),
        "g_idx": torch.arange(64, dtype=torch.int32) // 32,
    }
    return {f"a.{name}": tensor for name, tensor in (tensors | changed).items()}


def binder(
    directory: Path, tensors: dict[str, torch.Tensor], section: dict[str, Any]
) -> WeightBinder:
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps({"quantization_config": section}))
    return WeightBinder(Trace(), ModelSource.open(directory))


def quantized(weights: WeightBinder) -> list[str]:
    text = to_text(weights.trace.program)
    return [line for line in text.split("\n") if line.startswith("quantized ")]


def parts(weights: WeightBinder) -> str:
    """The parts of the weight `a.weight` in its line."""
    assert weights.matrix("a.weight", (8, 64)).dtype in ("u4", "u8")
    (line,) = quantized(weights)
    return line.split(" ")[-1]


def test_zero_points_in_the_middle_are_none(tmp_path: Path) -> None:
    weights = binder(tmp_path, gptq_tensors(), GPTQ)
    assert weights.has("a.weight") and not weights.has("b.weight")
    assert weights.block_elements("a.weight") == 32
    assert weights.matrix("a.weight", (8, 64)) is weights.matrix("a.weight", (8, 64))
    assert quantized(weights) == ["quantized a.weight u4 8,64 gptq 1,32 a.qweight,a.scales,-,-"]
    assert weights.notes == []


def test_zero_points_are_parts(tmp_path: Path) -> None:
    weights = binder(tmp_path, gptq_tensors(0x76777777), GPTQ)
    assert parts(weights) == "a.qweight,a.scales,a.qzeros,-"


def test_the_middle_depends_on_the_version(tmp_path: Path) -> None:
    section = GPTQ | {"checkpoint_format": "gptq_v2"}
    assert parts(binder(tmp_path, gptq_tensors(), section)) == "a.qweight,a.scales,a.qzeros,-"
    tensors = gptq_tensors(0x88888888 - (1 << 32))
    assert parts(binder(tmp_path, tensors, section)) == "a.qweight,a.scales,-,-"


def test_an_index_that_does_not_count_up_is_a_part(tmp_path: Path) -> None:
    tensors = gptq_tensors(g_idx=torch.arange(64, dtype=torch.int32) % 2)
    weights = binder(tmp_path, tensors, GPTQ)
    assert parts(weights) == "a.qweight,a.scales,-,a.g_idx"
    (note,) = weights.notes
    assert "desc_act" in note and "bf16" in note


def test_an_index_that_was_never_filled_is_none(tmp_path: Path) -> None:
    tensors = gptq_tensors(g_idx=torch.zeros(64, dtype=torch.int32))
    assert parts(binder(tmp_path, tensors, GPTQ)) == "a.qweight,a.scales,-,-"
    tensors = {
        "a.weight_packed": torch.zeros((8, 8), dtype=torch.int32),
        "a.weight_scale": torch.ones((8, 2), dtype=torch.float16),
        "a.weight_g_idx": torch.full((64,), -1, dtype=torch.int32),
    }
    weights = binder(tmp_path, tensors, PACKED)
    assert parts(weights) == "a.weight_packed,a.weight_scale,-,-"
    assert weights.notes == []


def test_eight_bits_with_zero_points_are_noted(tmp_path: Path) -> None:
    zeros = {"qweight": torch.zeros((16, 8), dtype=torch.int32)}
    tensors = gptq_tensors(**zeros, qzeros=torch.zeros((2, 2), dtype=torch.int32))
    weights = binder(tmp_path, tensors, GPTQ | {"bits": 8})
    assert weights.matrix("a.weight", (8, 64)).dtype == "u8"
    (note,) = weights.notes
    assert "8 bits with zero points" in note


def test_ranks_take_parts(tmp_path: Path) -> None:
    weights = binder(tmp_path, gptq_tensors(), GPTQ)
    assert weights.matrix("a.weight", (8, 64), rows=Part(2, 8, 8)).shape == (6, 64)
    assert weights.matrix("a.weight", (8, 64), columns=Part(32, 64, 64)).shape == (8, 32)
    rows, columns = quantized(weights)
    assert rows == "quantized a.weight.rows2-8 u4 6,64 gptq 1,32 a.qweight,a.scales,-,- at=2,0"
    assert columns.endswith(",- at=0,32")
    with pytest.raises(WeightsError, match="columns 16 to 48 of a.weight would cut a block of 32"):
        weights.matrix("a.weight", (8, 64), columns=Part(16, 48, 64))


def test_layers_that_are_not_quantized_are_used_as_they_are(tmp_path: Path) -> None:
    weights = binder(tmp_path, {"a.weight": torch.zeros((8, 64))}, GPTQ)
    assert weights.matrix("a.weight", (8, 64)).dtype == "f32" and quantized(weights) == []


@pytest.mark.parametrize(
    ("changed", "shape", "message"),
    [
        ({}, (8, 72), "a.qweight has rows of 72; .* in multiples of 32"),
        ({}, (16, 64), r"a.qweight is i32 \[8, 8\], its scheme gptq .* i32 \[8, 16\]"),
        ({"qweight": torch.zeros((8, 8))}, (8, 64), "a.qweight is f32"),
        (
            {"scales": torch.ones((1, 8))},
            (8, 64),
            r"a.scales is f32 \[1, 8\], .*groups of 32.* f16",
        ),
        ({"qzeros": torch.zeros((2, 2), dtype=torch.int32)}, (8, 64), "a.qzeros is i32"),
        ({"g_idx": torch.zeros(8, dtype=torch.int32)}, (8, 64), "a.g_idx is i32"),
    ],
)
def test_tensors_of_another_shape_are_refused(
    tmp_path: Path, changed: dict[str, torch.Tensor], shape: tuple[int, int], message: str
) -> None:
    with pytest.raises(WeightsError, match=message):
        binder(tmp_path, gptq_tensors(**changed), GPTQ).matrix("a.weight", shape)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = gptq_tensors()
    del tensors["a.qzeros"]
    with pytest.raises(MissingTensorError, match="'a.qzeros' is missing"):
        binder(tmp_path, tensors, GPTQ).matrix("a.weight", (8, 64))


def test_zero_points_may_be_missing_where_a_matrix_is_symmetric(tmp_path: Path) -> None:
    tensors = {
        "a.weight_packed": torch.zeros((8, 8), dtype=torch.int32),
        "a.weight_scale": torch.ones((8, 2), dtype=torch.bfloat16),
    }
    weights = binder(tmp_path, tensors, PACKED)
    assert parts(weights) == "a.weight_packed,a.weight_scale,-,-"
    asymmetric: dict[str, Any] = copy.deepcopy(PACKED)
    asymmetric["config_groups"]["group_0"]["weights"]["symmetric"] = False
    weights = binder(tmp_path, tensors, asymmetric)
    with pytest.raises(MissingTensorError, match="'a.weight_zero_point' is missing"):
        weights.matrix("a.weight", (8, 64))


def test_packed_integers_of_a_module_that_is_not_quantized(tmp_path: Path) -> None:
    weights = binder(tmp_path, gptq_tensors(), GPTQ | {"dynamic": {"-:a": {}}})
    message = (
        "'a.weight' is missing; it has 'g_idx', 'qweight', .* for it is unquantized; correct its"
    )
    with pytest.raises(MissingTensorError, match=message):
        weights.linear("a", (8, 64))
    weights = binder(tmp_path, gptq_tensors(), {"quant_method": "fp8"})
    with pytest.raises(
        MissingTensorError, match=r"scheme .* for it is fp8 \(f8_e4m3 with scales\)"
    ):
        weights.block_elements("a.weight")


def test_types_that_nothing_is_computed_on_are_refused(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.zeros((8, 64), dtype=torch.float64)}
    tensors["a.bias"] = torch.zeros(8, dtype=torch.int64)
    weights = binder(tmp_path, tensors, GPTQ)
    with pytest.raises(WeightsError, match=r"a\.weight is stored as f64, which is not supported;"):
        weights.linear("a", (8, 64))
    with pytest.raises(WeightsError, match=r"a\.bias is stored as i64, which is not supported;"):
        weights.vector("a.bias", 8)
