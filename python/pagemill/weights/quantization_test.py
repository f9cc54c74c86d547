"""quantization_config is understood or refused, never ignored."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pagemill.weights import WeightsError
from pagemill.weights.module_names import ModuleNames
from pagemill.weights.quantization import (
    QuantizationError,
    ScaledQuantization,
    parse_quantization,
)
from pagemill.weights.source import ModelSource


def compressed(kind: str = "int", **weights: object) -> dict[str, Any]:
    """A compressed-tensors section of 8 bits, a scale a row, activations of their own rows."""
    numbers = {"num_bits": 8, "type": kind, "symmetric": True}
    return {
        "quant_method": "compressed-tensors",
        "format": f"{kind}-quantized",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {**numbers, "strategy": "channel", "dynamic": False, **weights},
                "input_activations": {**numbers, "strategy": "token", "dynamic": True},
            }
        },
    }


def parse(section: object) -> ScaledQuantization:
    found = parse_quantization({"quantization_config": section})
    assert isinstance(found, ScaledQuantization)
    return found


def test_no_quantization() -> None:
    assert parse_quantization({"quantization_config": None}) is None
    assert parse_quantization({}) is None


def test_compressed_int8() -> None:
    found = parse(compressed())
    assert found == ScaledQuantization(
        "compressed-tensors", "i8", None, True, ModuleNames(("lm_head",))
    )
    assert parse_quantization({"compression_config": compressed()}) == found
    assert not found.covers("lm_head") and found.covers("model.layers.0.mlp.up_proj")


def test_compressed_weights_alone() -> None:
    section = compressed()
    section["config_groups"]["group_0"]["input_activations"] = None
    assert not parse(section).int8_activations


def test_compressed_static_activations_and_cache_scales_are_noted() -> None:
    section = compressed()
    section["config_groups"]["group_0"]["input_activations"]["dynamic"] = False
    section["kv_cache_scheme"] = {"num_bits": 8}
    found = parse(section)
    assert found.int8_activations
    assert [note.split(" are not used")[0] for note in found.notes] == [
        "the checkpoint's scales of the KV cache",
        "the checkpoint's scales of activations (input_scale)",
    ]


@pytest.mark.parametrize("structure", ["128x64", [128, 64]])
def test_compressed_fp8_blocks(structure: object) -> None:
    found = parse(compressed("float", strategy="block", block_structure=structure))
    assert (found.dtype, found.block, found.int8_activations) == ("f8_e4m3", (128, 64), False)


def test_fp8() -> None:
    found = parse(
        {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", "mlp.gate"],
        }
    )
    assert (found.dtype, found.block, found.notes) == ("f8_e4m3", (128, 128), ())
    assert not found.covers("model.layers.3.mlp.gate") and found.covers("model.layers.3.mlp.gates")
    assert parse({"quant_method": "fp8"}).block is None
    assert parse({"quant_method": "fp8", "activation_scheme": "static"}).notes


@pytest.mark.parametrize(
    "section", [{"quant_method": "fp8"}, compressed(), compressed("float", strategy="channel")]
)
def test_scales_of_the_cache_are_noted(section: dict[str, Any]) -> None:
    (note,) = parse({**section, "kv_cache_scheme": {"num_bits": 8, "type": "float"}}).notes
    assert "--kv-cache-dtype" in note


def test_module_patterns() -> None:
    names = ModuleNames(("re:.*lm_head", "re:model\\.layers\\.[01]\\..*", "vision"))
    assert "lm_head" in names and "model.layers.1.mlp.up_proj" in names and "a.vision.b" in names
    assert "model.layers.2.mlp.up_proj" not in names and "visions" not in names


def _changed(path: str, value: object) -> dict[str, Any]:
    section = copy.deepcopy(compressed())
    at: dict[str, Any] = section
    *parents, last = path.replace("group.", "config_groups.group_0.").split(".")
    for parent in parents:
        at = at[parent]
    at[last] = value
    return section


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"quant_method": "bitsandbytes"}, "quant_method 'bitsandbytes' is not supported"),
        ({}, "quant_method None is not supported; supported: .*compressed-tensors"),
        ([], "quantization_config is no object"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, r"\(fp8\): fmt 'e5m2' is not .* supported: e4m3"),
        ({"quant_method": "fp8", "fmt": ["e4m3"]}, "fmt .* supported: e4m3"),
        (_changed("group.weights", "int8"), "group_0.weights 'int8' .* supported: an object"),
        (_changed("group.input_activations", 8), "input_activations 8 .* an object"),
        (_changed("sparsity_config", [1]), "sparsity_config .* an object"),
        ({"quant_method": "fp8", "activation_scheme": "x"}, "activation_scheme 'x'"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size .* two sizes"),
        ({"quant_method": "fp8", "weight_block_size": [0, 8]}, "columns a multiple of 4"),
        ({"quant_method": "fp8", "modules_to_not_convert": "x"}, "a list of module names"),
        (_changed("ignore", ["re:("]), r"ignore 're:\(' is not .* valid patterns"),
        (_changed("ignore", [r"re:([a-z.]+)+\d"]), "4 repetitions, none of them of a group"),
        (_changed("ignore", [r"re:(.*|\\)*"]), "4 repetitions, none of them of a group"),
        (_changed("ignore", ["re:.*.*.*.*.*x"]), "4 repetitions, none of them of a group"),
        (_changed("ignore", ["re:x"] * 33), "ignore '33 patterns' .* at most 32 patterns"),
        ({"quant_method": "fp8", "weight_block_size": [1e300, 128]}, "columns a multiple of 4"),
        ({"quant_method": "fp8", "weight_block_size": [128, 1e999]}, "two sizes"),
        (_changed("format", "nvfp4-pack-quantized"), "format 'nvfp4-pack-quantized'"),
        (_changed("config_groups", {}), "at least one group"),
        (_changed("config_groups", {"a": 3}), "config_groups.a 3 .* an object"),
        (_changed("group.weights.num_bits", 4), "group_0.weights.num_bits 4 .* supported: 8"),
        (_changed("group.weights.type", "hex"), "weights.type 'hex' .* supported: int, float"),
        (_changed("group.weights.symmetric", False), "weights.symmetric False .* supported: true"),
        (_changed("group.weights.strategy", "group"), "strategy 'group' .*: tensor, channel"),
        (_changed("group.input_activations.num_bits", 4), "input_activations.num_bits 4"),
        (_changed("group.input_activations.type", "float"), "input_activations.type 'float'"),
        (_changed("group.output_activations", {"num_bits": 8}), "output_activations"),
        (_changed("sparsity_config", {"format": "sparse-24-bitmask"}), "sparsity_config"),
        (_changed("transform_config", {"config_groups": {}}), "transform_config"),
        (compressed("float", strategy="block"), "block_structure None"),
    ],
)
def test_refusals(section: object, message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        parse_quantization({"quantization_config": section})


def test_groups_of_different_schemes_are_refused() -> None:
    section = compressed()
    other = compressed("float")["config_groups"]["group_0"]
    section["config_groups"]["group_1"] = other | {"format": "float-quantized"}
    with pytest.raises(QuantizationError, match="one scheme in all groups"):
        parse(section)


def test_a_model_whose_quantization_is_not_supported_does_not_open(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors")
    config: dict[str, Any] = {"quantization_config": {"quant_method": "hqq"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=r"config\.json: .*'hqq' is not supported"):
        ModelSource.open(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps({"quantization_config": {"quant_method": "fp8"}})
    )
    quantization = ModelSource.open(tmp_path).quantization
    assert isinstance(quantization, ScaledQuantization) and quantization.dtype == "f8_e4m3"
