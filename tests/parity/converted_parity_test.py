"""Logits of checkpoints of bitsandbytes, BitNet, HQQ, GPTQ in few bits and torchao equal those of
`transformers` on the values that they hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.engine.model_source import as_stored
from pagemill.quantization.at_load.testing.decoded import read_matrix
from pagemill.quantization.section import QuantizationError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.families.divided import check_ranks
from tests.parity.converted_checkpoints import (
    FourBits,
    write_bitnet,
    write_four_bits,
    write_hqq,
    write_int8,
    write_torchao,
)
from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.one_request import OneRequest, difference
from tests.parity.packed_checkpoints import Scheme, write_packed
from tests.parity.tiny_models import tiny_bitnet, tiny_llama

# Relative to the largest logit. Both sides compute in f32 with the same weights.
EXACT = 1e-4
# 4 bits become int8, in groups of 32 whose largest magnitude is 128 steps: that adds 0.6 % of the
# weights' root mean square, in some 20 products one after the other, and errors add up like the
# root of their number. A wrong code, block or order moves logits by half their size.
ROUNDED = 0.05
SIZES = {"hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 4}
PACKED = (Scheme("gptq", 2), Scheme("gptq_v2", 3, 64, act_order=True), Scheme("gptq", 3, -1, False))
SCHEMES = {
    "nf4": FourBits(),
    "nf4-nested": FourBits(nested=True),
    "fp4": FourBits("fp4", 128),
    "bf16-storage": FourBits(storage=torch.bfloat16, nested=True),
}


@pytest.mark.parametrize("kind", EXECUTORS)
def test_int8(kind: str, tmp_path: Path) -> None:
    reference = write_int8(tiny_llama(attention_bias=True), tmp_path)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= EXACT


def test_ranks_divide_int8(tmp_path: Path) -> None:
    request = OneRequest(write_int8(tiny_llama(), tmp_path))
    check_ranks(
        ModelSource.open(tmp_path),
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / EXACT,
    )


def test_int8_in_another_order_is_refused(tmp_path: Path) -> None:
    write_int8(tiny_llama(), tmp_path)
    name = "model.layers.1.mlp.up_proj.weight_format"
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {name: torch.tensor(2, dtype=torch.uint8)}, file)
    with pytest.raises(WeightsError, match=f"{name} says that the matrix is not stored row by"):
        build(ModelSource.open(tmp_path), BuildOptions())


@pytest.mark.parametrize("axis", [0, 1])
def test_hqq(axis: int, tmp_path: Path) -> None:
    reference = write_hqq(tiny_llama(attention_bias=True, **SIZES), tmp_path / "model", axis)
    source = as_stored(ModelSource.open(tmp_path / "model"), tmp_path).source
    for kind in EXECUTORS:
        assert difference(make_executor(kind, source), reference) <= ROUNDED


@pytest.mark.parametrize("scheme", PACKED, ids=lambda scheme: f"{scheme.layout}-{scheme.bits}")
def test_gptq_in_few_bits(scheme: Scheme, tmp_path: Path) -> None:
    """Layers of another number of bits and of none beside them."""
    (tmp_path / "model").mkdir()
    overrides = {"down_proj": replace(scheme, bits=4), "o_proj": None}
    reference = write_packed(tmp_path / "model", scheme, overrides)
    stored = ModelSource.open(tmp_path / "model")
    with pytest.raises(
        WeightsError, match=f"{scheme.bits} bits, .* only in models that are served"
    ):
        build(stored, BuildOptions())
    source = as_stored(stored, tmp_path).source
    for kind in EXECUTORS:
        assert difference(make_executor(kind, source), reference) <= ROUNDED


def test_gptq_in_four_bits_is_not_converted(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write_packed(tmp_path / "model", Scheme("gptq"))
    stored = ModelSource.open(tmp_path / "model")
    opened = as_stored(stored, tmp_path)
    assert opened.source is stored and opened.at_load is None


@pytest.mark.parametrize("mode", ["offline", "online"])
def test_bitnet(mode: str, tmp_path: Path) -> None:
    reference = write_bitnet(tiny_bitnet(), tmp_path / "model", mode)
    source = as_stored(ModelSource.open(tmp_path / "model"), tmp_path).source
    for kind in EXECUTORS:
        assert difference(make_executor(kind, source), reference) <= ROUNDED


@pytest.mark.parametrize(("name", "bound"), [("int8", EXACT), ("float8", EXACT), ("int4", ROUNDED)])
def test_torchao(name: str, bound: float, tmp_path: Path) -> None:
    reference = write_torchao(tiny_llama(attention_bias=True, **SIZES), tmp_path / "model", name)
    source = as_stored(ModelSource.open(tmp_path / "model"), tmp_path).source
    for kind in EXECUTORS:
        assert difference(make_executor(kind, source), reference) <= bound
    assert (tmp_path / "quantized").exists() == (name == "int4")


def test_ranks_divide_torchao(tmp_path: Path) -> None:
    request = OneRequest(write_torchao(tiny_llama(), tmp_path, "float8"))
    check_ranks(
        ModelSource.open(tmp_path),
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / EXACT,
    )


@pytest.mark.parametrize("name", SCHEMES)
def test_four_bits(name: str, tmp_path: Path) -> None:
    """Blocks of 64 begin within rows of 96 and 160."""
    reference = write_four_bits(tiny_llama(**SIZES), tmp_path / "model", SCHEMES[name])
    source = as_stored(ModelSource.open(tmp_path / "model"), tmp_path).source
    for kind in EXECUTORS:
        assert difference(make_executor(kind, source), reference) <= ROUNDED
    for layer, block in enumerate(reference.model.layers):
        for part, projections in (("self_attn", "qkvo"), ("mlp", ("gate", "up", "down"))):
            for projection in projections:
                linear = getattr(getattr(block, part), f"{projection}_proj").weight
                module = f"model.layers.{layer}.{part}.{projection}_proj"
                exact = linear.detach().numpy()
                values = read_matrix(source, module, exact.shape)
                largest = np.abs(exact.reshape(-1, 32)).max(1, keepdims=True)
                errors = np.abs(values - exact).reshape(-1, 32)
                # Half a step, with a scale that f16 rounds by 2^-11; 128 steps up are one too many.
                assert (errors <= largest * (1 / 128 + 2**-11)).all()
                assert np.sqrt((errors**2).mean()) <= 0.008 * np.sqrt((exact**2).mean())
                linear.data = torch.from_numpy(values)
    for kind in EXECUTORS:
        assert difference(make_executor(kind, source), reference) <= EXACT


def test_four_bits_are_converted_once(tmp_path: Path) -> None:
    write_four_bits(tiny_llama(**SIZES), tmp_path / "model", FourBits())
    stored = ModelSource.open(tmp_path / "model")
    with pytest.raises(QuantizationError, match="4 bits only in models that are served"):
        build(stored, BuildOptions())
    planned = as_stored(stored, tmp_path, values=False)
    first, second = as_stored(stored, tmp_path), as_stored(stored, tmp_path)
    assert planned.at_load == first.at_load == second.at_load
    texts = [build(opened.source, BuildOptions()).program_text for opened in (first, second)]
    assert texts[0] == texts[1]
    whole, empty = sorted((tmp_path / "quantized").iterdir(), key=lambda file: len(file.name))
    assert whole.stat().st_size == empty.stat().st_size
    assert empty.stat().st_blocks < whole.stat().st_blocks
