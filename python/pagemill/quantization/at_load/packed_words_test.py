"""Matrices of packed integers have the values that their tensors say, or are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pagemill.quantization.at_load.packed_words import packed_matrices
from pagemill.quantization.section import QuantizationError
from pagemill.weights.errors import MissingTensorError, WeightsError
from pagemill.weights.source import ModelSource

ROWS, COLUMNS, GROUP = 64, 96, 32
GROUPS = COLUMNS // GROUP
GPTQ = {"quant_method": "gptq", "group_size": GROUP, "checkpoint_format": "gptq"}
ROUND = {"quant_method": "auto-round", "group_size": GROUP, "sym": False}
INT4 = {"dtype": "int4", "qscheme": "per_group", "group_size": GROUP, "ch_axis": -1}
QUARK = {"quant_method": "quark", "global_quant_config": {"weight": INT4}}
SLICES = ((0, 64), (1, 1), (3, 20), (31, 33), (63, 1))


def _stream(integers: np.ndarray, bits: int) -> np.ndarray:
    """Rows of integers in words, one behind the other, by arithmetic on whole numbers."""
    words = integers.shape[1] * bits // 32
    packed = np.zeros((len(integers), words), np.uint32)
    for row, values in zip(packed, integers, strict=True):
        number = sum(int(value) << (bits * place) for place, value in enumerate(values))
        row[:] = np.frombuffer(number.to_bytes(4 * words, "little"), "<u4")
    return packed.view(np.int32)


class Gptq:
    """A matrix as AutoGPTQ packs it: zero points are stored minus one."""

    def __init__(self, bits: int, *, shuffled: bool = False) -> None:
        random = np.random.default_rng(bits)
        q = random.integers(0, 1 << bits, (ROWS, COLUMNS))
        zeros = random.integers(1, 1 << bits, (ROWS, GROUPS))
        scales = random.random((ROWS, GROUPS)).astype(np.float16)
        index = np.arange(COLUMNS) // GROUP
        index = random.permutation(index) if shuffled else index
        self.values = (q - zeros[:, index]) * scales[:, index].astype(np.float32)
        self.tensors: dict[str, Any] = {
            "a.qweight": np.ascontiguousarray(_stream(q, bits).T),
            "a.qzeros": _stream(zeros.T - 1, bits),
            "a.scales": np.ascontiguousarray(scales.T),
            "a.g_idx": index.astype(np.int32),
            "b.weight": np.zeros((4, 4), np.float32),
        }


def _quark(*, zeros: bool) -> tuple[np.ndarray, dict[str, Any]]:
    """A matrix as `Pack_4_bits` packs it with `reorder`, and its values."""
    random = np.random.default_rng(7)
    q = random.integers(-8, 8, (ROWS, COLUMNS))
    zero = random.integers(-8, 8, (ROWS, GROUPS)) if zeros else np.zeros((ROWS, GROUPS), np.int64)
    scales = random.random((ROWS, GROUPS)).astype(np.float16)

    def packed(integers: np.ndarray) -> np.ndarray:
        words = np.zeros((integers.shape[1], ROWS // 8), np.uint32)
        for place, index in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
            words |= (integers.T[:, index::8] & 15).astype(np.uint32) << np.uint32(4 * place)
        return words.view(np.int32)

    index = np.arange(COLUMNS) // GROUP
    tensors = {
        "a.weight": packed(q),
        "a.weight_scale": np.ascontiguousarray(scales.T),
        **({"a.weight_zero_point": packed(zero)} if zeros else {}),
    }
    return (q - zero[:, index]) * scales[:, index].astype(np.float32), tensors


def _source(path: Path, section: dict[str, Any], tensors: dict[str, Any]) -> ModelSource:
    save_file(tensors, path / "model.safetensors")
    config = {"architectures": ["Any"], "quantization_config": section}
    (path / "config.json").write_text(json.dumps(config))
    return ModelSource.open(path)


@pytest.mark.parametrize("section", [GPTQ, ROUND], ids=["gptq", "auto-round"])
@pytest.mark.parametrize("bits", [2, 3])
def test_values_of_any_rows(bits: int, section: dict[str, Any], tmp_path: Path) -> None:
    stored = Gptq(bits, shuffled=section is GPTQ)
    (matrix,) = packed_matrices(_source(tmp_path, section | {"bits": bits}, stored.tensors))
    assert (matrix.module, matrix.shape) == ("a", (ROWS, COLUMNS))
    assert set(matrix.parts) == stored.tensors.keys() - {"b.weight"}
    for begin, count in SLICES:
        assert (matrix.rows(begin, count) == stored.values[begin : begin + count]).all()


@pytest.mark.parametrize("zeros", [True, False])
def test_quarks_int4(zeros: bool, tmp_path: Path) -> None:
    values, tensors = _quark(zeros=zeros)
    (matrix,) = packed_matrices(_source(tmp_path, QUARK, tensors))
    assert set(matrix.parts) == tensors.keys()
    for begin, count in SLICES:
        assert (matrix.rows(begin, count) == values[begin : begin + count]).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_those_with_kernels_stay(bits: int, tmp_path: Path) -> None:
    assert not packed_matrices(_source(tmp_path, GPTQ | {"bits": bits}, Gptq(bits).tensors))


def test_whole_numbers_of_zero_points_wrap(tmp_path: Path) -> None:
    """A zero point of 0 is stored as the largest integer, as of 4 bits."""
    stored = Gptq(3)
    stored.tensors["a.qzeros"] = np.full_like(stored.tensors["a.qzeros"], -1)
    (matrix,) = packed_matrices(_source(tmp_path, GPTQ | {"bits": 3}, stored.tensors))
    assert matrix.rows(0, ROWS).min() >= 0


def test_an_index_that_was_never_filled(tmp_path: Path) -> None:
    stored = Gptq(3)
    stored.tensors["a.g_idx"] = np.zeros(COLUMNS, np.int32)
    (matrix,) = packed_matrices(_source(tmp_path, GPTQ | {"bits": 3}, stored.tensors))
    assert (matrix.rows(0, ROWS) == stored.values).all()


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("qweight", np.zeros((9, ROWS), np.int64), r"qweight is i64 .* must be words of i32"),
        ("qweight", np.zeros(9, np.int32), r"qweight is i32 \[9\]; it must be words"),
        ("scales", np.zeros((2, ROWS), np.float16), r"scales is f16 .* or f16 \[3, 64\]"),
        ("scales", np.zeros((3, ROWS), np.int32), r"scales is i32 .* must be f32 or bf16 or f16"),
        ("qzeros", np.zeros((3, 7), np.int32), r"qzeros is i32 \[3, 7\]; it must be i32 \[3, 6\]"),
        ("g_idx", np.full(COLUMNS, 3, np.int32), "g_idx has an index of no group of 3"),
        ("g_idx", np.full(COLUMNS, -1, np.int32), "g_idx has an index of no group of 3"),
        ("g_idx", np.zeros(9, np.int32), r"g_idx is i32 \[9\]; it must be i32 \[96\]"),
    ],
)
def test_tensors_that_do_not_fit(name: str, tensor: Any, message: str, tmp_path: Path) -> None:
    tensors = Gptq(3).tensors | {f"a.{name}": tensor}
    with pytest.raises(WeightsError, match=message):
        packed_matrices(_source(tmp_path, GPTQ | {"bits": 3}, tensors))


def test_what_is_refused_names_the_model(tmp_path: Path) -> None:
    source = _source(tmp_path, GPTQ | {"bits": 5}, Gptq(3).tensors)
    with pytest.raises(QuantizationError, match=rf"{tmp_path}: .*bits 5 is not supported"):
        packed_matrices(source)


def test_missing_integers(tmp_path: Path) -> None:
    tensors = Gptq(3).tensors
    del tensors["a.qweight"]
    with pytest.raises(MissingTensorError, match=r"'a\.qweight' is missing"):
        packed_matrices(_source(tmp_path, GPTQ | {"bits": 3}, tensors))


def test_other_formats_beside_them_are_refused(tmp_path: Path) -> None:
    section = QUARK | {
        "layer_quant_config": {"b": {"weight": {"dtype": "int8", "qscheme": "per_channel"}}}
    }
    _, tensors = _quark(zeros=False)
    tensors |= {"b.weight": np.zeros((4, 4), np.int8), "b.weight_scale": np.ones(4, np.float32)}
    with pytest.raises(WeightsError, match="b is in .*: matrices in both formats"):
        packed_matrices(_source(tmp_path, section, tensors))
