"""Configurations of AutoRound name a scheme for each module, or are refused."""

from typing import Any

import pytest

from pagemill.quantization.base import Method
from pagemill.quantization.packed import PackedScheme
from pagemill.quantization.section import QuantizationError
from pagemill.quantization.table import method_of
from pagemill.quantization.unquantized import UNQUANTIZED

SECTION: dict[str, Any] = {
    "quant_method": "auto-round",
    "bits": 4,
    "group_size": 128,
    "sym": True,
    "data_type": "int",
    "iters": 200,
    "autoround_version": "0.9.4",
    "block_name_to_quantize": "model.layers",
    "packing_format": "auto_round:auto_gptq",
}
UP, DOWN = "model.layers.3.mlp.up_proj", "model.layers.3.mlp.down_proj"
HEAD = "lm_head"


def parse(**changes: object) -> Method:
    return method_of({"quantization_config": SECTION | changes})


def scheme(layout: str = "gptq", bits: int = 4, group: int | None = 128) -> PackedScheme:
    return PackedScheme("auto-round", layout, bits, group)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, scheme()),
        ({"quant_method": "intel/auto-round", "bits": 8, "sym": False}, scheme(bits=8)),
        ({"quant_method": "inc", "group_size": -1}, scheme(group=None)),
        ({"packing_format": "auto_gptq"}, scheme()),
        ({"packing_format": "auto_round:gptq"}, scheme()),
        ({"packing_format": "auto_round:auto_awq", "sym": False}, scheme("awq")),
        ({"packing_format": "auto_awq", "group_size": 32}, scheme("awq", group=32)),
        ({"act_bits": 16, "act_data_type": "float"}, scheme()),
    ],
)
def test_layouts(changes: dict[str, Any], expected: PackedScheme) -> None:
    assert parse(**changes).scheme(UP) == expected


@pytest.mark.parametrize(
    "blocks",
    [
        {"block_name_to_quantize": "model.visual.blocks,model.layers"},
        {"block_name_to_quantize": ["model.visual.blocks", ["model.layers.3", "model.layers.4"]]},
        {"block_name_to_quantize": None, "to_quant_block_names": "model.layers"},
    ],
)
def test_blocks(blocks: dict[str, Any]) -> None:
    method = parse(**blocks)
    assert method.scheme(UP) == scheme()
    assert method.scheme(HEAD) is UNQUANTIZED
    assert method.scheme("model.projector.layers") is UNQUANTIZED


def test_all_modules_without_blocks() -> None:
    method = parse(block_name_to_quantize=None, modules_to_not_convert=["mlp.gate", HEAD])
    assert method.scheme("vision.3.fc") == scheme()
    assert method.scheme(HEAD) is UNQUANTIZED
    assert method.scheme("model.layers.3.mlp.gate") is UNQUANTIZED


def test_modules_of_their_own() -> None:
    """Names before patterns, and both before blocks."""
    own = {
        HEAD: {"bits": 8, "data_type": "int", "group_size": 32, "sym": True, "act_bits": 16},
        DOWN: {"bits": 16, "data_type": "float"},
        r".*down_proj": {"bits": 8},
        r"layers\.(3|4)\.": {"group_size": 64, "sym": False},
        r"layers\.5\.": {},
        "up_proj$": {"bits": 16},
    }
    method = parse(extra_config=own)
    assert method.scheme(HEAD) == scheme(bits=8, group=32)
    assert method.scheme(DOWN) is UNQUANTIZED
    assert method.scheme(DOWN.replace("3", "2")) == scheme(bits=8)
    assert method.scheme(UP) == scheme(group=64)
    assert method.scheme(UP.replace("3", "2")) is UNQUANTIZED
    assert method.scheme("model.layers.5.mlp.gate_proj") == scheme()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 5}, r"\(auto-round\): bits 5 is not supported; supported: 2 and 3 and 4 and 8"),
        ({"bits": 16}, "bits 16"),
        ({"packing_format": "auto_round:auto_awq", "bits": 8}, "bits 8 .* supported: 4$"),
        ({"packing_format": "auto_round:exllamav2"}, "'auto_round:exllamav2' .*: auto_awq, auto_g"),
        ({"packing_format": ["auto_gptq"]}, "packing_format a list"),
        ({"data_type": "mx_fp"}, "data_type 'mx_fp' .* supported: int"),
        ({"group_size": 48}, "group_size 48"),
        ({"sym": "yes"}, "sym 'yes'"),
        ({"act_bits": 8}, "act_bits 8 .* they are not quantized"),
        ({"block_name_to_quantize": 3}, "block_name_to_quantize 3 .* names of blocks"),
        ({"block_name_to_quantize": [[3]]}, "names of blocks"),
        ({"block_name_to_quantize": "a,,b"}, "names of blocks"),
        ({"extra_config": {UP: {"bits": 1}}}, rf"extra_config\.{UP}\.bits 1"),
        ({"extra_config": {UP: {"data_type": "fp"}}}, "up_proj.data_type 'fp'"),
        ({"extra_config": {UP: {"clip": 1}}}, "up_proj.clip 1 .* supported: bits, data_type"),
        ({"extra_config": {UP: 4}}, "up_proj 4 .* an object"),
        ({"extra_config": {"(": {"bits": 8}}}, "supported: balanced parentheses"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        parse(**changes)
