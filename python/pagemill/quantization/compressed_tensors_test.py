"""Every setting of a compressed-tensors configuration is applied or rejected, never ignored."""

from typing import Any

import pytest

from pagemill.quantization.base import Method
from pagemill.quantization.fp4 import Factor, Fp4Scheme
from pagemill.quantization.packed import PackedScheme
from pagemill.quantization.scaled import ScaledScheme
from pagemill.quantization.section import QuantizationError
from pagemill.quantization.table import method_of
from pagemill.quantization.unquantized import UNQUANTIZED

METHOD = "compressed-tensors"
UP, DOWN = "model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj"


def compressed(kind: str = "int", **weights: object) -> dict[str, Any]:
    """A section of 8 bits, with a scale per row and per-row activations."""
    numbers = {"num_bits": 8, "type": kind, "symmetric": True}
    return {
        "quant_method": METHOD,
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


def packed(**weights: object) -> dict[str, Any]:
    """A section of integers of 4 bits in groups of 32."""
    group = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, **weights}
    return {
        "quant_method": METHOD,
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": group}},
    }


def mxfp4(**weights: object) -> dict[str, Any]:
    """A section of floats of 4 bits, for activations in 16 bits."""
    numbers = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
    return {
        "quant_method": METHOD,
        "format": "mxfp4-pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {**numbers, **weights}}},
    }


def parse(section: object) -> Method:
    return method_of({"quantization_config": section})


@pytest.mark.parametrize(("kind", "dtype"), [("int", "i8"), ("float", "f8_e4m3")])
def test_8_bits(kind: str, dtype: str) -> None:
    section = compressed(kind)
    scheme = ScaledScheme(METHOD, dtype, None, quantized_activations=True)
    assert parse(section).scheme(UP) == scheme
    assert parse(section).scheme("lm_head") is UNQUANTIZED
    assert method_of({"compression_config": section}).scheme(UP) == scheme
    section["config_groups"]["group_0"]["input_activations"] = None
    assert parse(section).scheme(UP) == ScaledScheme(METHOD, dtype, None)


def test_static_activations_and_scales_of_the_cache_are_noted() -> None:
    section = compressed()
    assert not parse(section).notes
    section["config_groups"]["group_0"]["input_activations"]["dynamic"] = False
    section["kv_cache_scheme"] = {"num_bits": 8}
    cache, activations = parse(section).notes
    assert "--kv-cache-dtype" in cache and "input_scale" in activations


@pytest.mark.parametrize("structure", ["128x64", [128, 64]])
def test_fp8_blocks(structure: object) -> None:
    method = parse(compressed("float", strategy="block", block_structure=structure))
    assert method.scheme(UP) == ScaledScheme(
        METHOD, "f8_e4m3", (128, 64), quantized_activations=True
    )


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (packed(), PackedScheme(METHOD, "pack_quantized", 4, 32, zeros=False)),
        (packed(symmetric=False), PackedScheme(METHOD, "pack_quantized", 4, 32)),
        (
            packed(num_bits=8, strategy="channel", group_size=None),
            PackedScheme(METHOD, "pack_quantized", 8, None, zeros=False),
        ),
    ],
)
def test_packed_integers(section: dict[str, Any], expected: PackedScheme) -> None:
    assert parse(section).scheme(UP) == expected


def test_mxfp4() -> None:
    section = mxfp4()
    assert parse(section).scheme(UP) == Fp4Scheme("weight_packed")
    assert not parse(section).notes
    section["config_groups"]["group_0"]["input_activations"] = {"num_bits": 4, "type": "float"}
    (rounded,) = parse(section).notes
    assert "--activation-dtype" in rounded


def test_nvfp4() -> None:
    section = mxfp4(strategy="tensor_group", group_size=16) | {"format": "nvfp4-pack-quantized"}
    factor = Factor("weight_global_scale", divides=True)
    assert parse(section).scheme(UP) == Fp4Scheme("weight_packed", factor=factor)
    assert not parse(section).notes
    section["config_groups"]["group_0"]["weights"]["group_size"] = 32
    with pytest.raises(QuantizationError, match="group_size 32 is not supported; supported: 16"):
        parse(section)


def _groups(*targets: list[str]) -> dict[str, Any]:
    """The first group is int8, the second packed, the third fp8."""
    sections = (compressed(), packed(), compressed("float"))
    groups = {
        f"group_{i}": section["config_groups"]["group_0"]
        | {"format": section["format"], "targets": names}
        for i, (section, names) in enumerate(zip(sections, targets, strict=False))
    }
    return {"quant_method": METHOD, "ignore": ["re:.*k_proj"], "config_groups": groups}


def test_groups_have_schemes_of_their_own() -> None:
    method = parse(_groups(["Linear"], ["re:.*down_proj", "lm_head"], [UP]))
    schemes = {name: method.scheme(name).name for name in (UP, DOWN, "lm_head", "a.q_proj")}
    assert schemes == {
        UP: "compressed-tensors (f8_e4m3 with scales)",
        DOWN: "compressed-tensors (4 bits, groups of 32)",
        "lm_head": "compressed-tensors (4 bits, groups of 32)",
        "a.q_proj": "compressed-tensors (i8 with scales)",
    }
    assert method.scheme("model.layers.0.self_attn.k_proj") is UNQUANTIZED


def test_the_first_target_that_names_a_module_counts() -> None:
    method = parse(_groups([DOWN], ["re:.*down_proj"]))
    assert isinstance(method.scheme(DOWN), ScaledScheme)
    assert isinstance(method.scheme(DOWN.replace("0", "1")), PackedScheme)
    # No group targets all linear layers.
    assert method.scheme(UP) is UNQUANTIZED
    method = parse(_groups(["re:.*"], [DOWN]))
    assert isinstance(method.scheme(DOWN), ScaledScheme)


def _changed(path: str, value: object) -> dict[str, Any]:
    section = compressed()
    at: dict[str, Any] = section
    *parents, last = path.replace("group.", "config_groups.group_0.").split(".")
    for parent in parents:
        at = at[parent]
    at[last] = value
    return section


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (_changed("group.weights", "int8"), "group_0.weights 'int8' .* supported: an object"),
        (_changed("group.input_activations", 8), "input_activations 8 .* an object"),
        (_changed("sparsity_config", [1]), "sparsity_config .* an object"),
        (_changed("ignore", ["re:("]), r"the pattern '\(' is not supported; .* parentheses"),
        (_changed("ignore", "lm_head"), "ignore 'lm_head' .* a list of module names"),
        (_changed("group.targets", ["Linear", 3]), "group_0.targets a list .* module names"),
        (_changed("group.targets", ["re:(?!a)"]), "groups without look-around"),
        (_changed("config_groups", {str(i): {} for i in range(65)}), "1 to 64 groups"),
        (_changed("format", "mxfp6-quantized"), "format 'mxfp6-quantized'"),
        (_changed("format", "mxfp8-quantized"), "weights.type 'int' .* supported: float"),
        (_changed("config_groups", {}), "1 to 64 groups"),
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
        (packed(num_bits=3), "weights.num_bits 3 is not supported; supported: 4 and 8"),
        (packed(type="float"), "weights.type 'float' is not supported; supported: int"),
        (packed(strategy="tensor"), "weights.strategy 'tensor' .*: channel, group"),
        (packed(group_size=16), "weights.group_size 16"),
        (mxfp4(group_size=16), "weights.group_size 16 is not supported; supported: 32"),
        (mxfp4(num_bits=8), "weights.num_bits 8 is not supported; supported: 4"),
        (mxfp4(type="int"), "weights.type 'int' .* supported: float"),
        (mxfp4(strategy="channel"), "weights.strategy 'channel' .* supported: group"),
        (packed(symmetric="no"), "weights.symmetric 'no' .*: true, false"),
        (packed(type=["int"]), r"weights.type a list is not supported"),
    ],
)
def test_refusals(section: object, message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        parse(section)
