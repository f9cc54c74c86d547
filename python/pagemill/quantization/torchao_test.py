"""Configurations of torchao name a scheme for each module, or are refused."""

from typing import Any

import pytest

from pagemill.quantization.base import Method
from pagemill.quantization.notes import STATIC_ACTIVATIONS
from pagemill.quantization.scaled import ScaledScheme
from pagemill.quantization.section import QuantizationError
from pagemill.quantization.table import method_of
from pagemill.quantization.unquantized import UNQUANTIZED

UP, DOWN = "model.layers.3.mlp.up_proj", "model.layers.3.mlp.down_proj"
PER_ROW = {"_type": "PerRow", "_version": 1, "_data": {"dim": -1}}
PER_TENSOR = {"_type": "PerTensor", "_version": 1, "_data": {}}
E4M3 = {"_type": "torch.dtype", "_data": "float8_e4m3fn"}


def config(kind: str, **fields: object) -> dict[str, Any]:
    return {"_type": kind, "_version": 2, "_data": {"set_inductor_config": True, **fields}}


INT8 = config("Int8WeightOnlyConfig", group_size=None, granularity=PER_ROW)
FP8 = config("Float8WeightOnlyConfig", weight_dtype=E4M3, granularity=PER_ROW)


def parse(stated: object, **section: object) -> Method:
    entries = {"quant_method": "torchao", "quant_type": {"default": stated}, **section}
    return method_of({"quantization_config": entries})


def by_name(entries: dict[str, object]) -> dict[str, Any]:
    return {"_type": "FqnToConfig", "_version": 1, "_data": {"fqn_to_config": entries}}


def scaled(dtype: str, block: tuple[int, int] | None = None, *, rounded: bool) -> ScaledScheme:
    names = {"suffixes": ("_weight_scale",), "values": "_weight_qdata"}
    return ScaledScheme("torchao", dtype, block, rounded, **names)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (INT8, scaled("i8", rounded=False)),
        (FP8, scaled("f8_e4m3", rounded=False)),
        (
            config("Int8WeightOnlyConfig", granularity=config("PerGroup", group_size=64)),
            scaled("i8", (1, 64), rounded=False),
        ),
        (
            config("Int8DynamicActivationInt8WeightConfig", granularity=[PER_ROW, PER_TENSOR]),
            scaled("i8", rounded=True),
        ),
        (
            config(
                "Float8DynamicActivationFloat8WeightConfig",
                weight_dtype=E4M3,
                packing_format={"_type": "Float8PackingFormat", "_data": "PLAIN"},
                granularity=[
                    config("PerBlock", block_size=[1, 128]),
                    config("PerBlock", block_size=[128, 128]),
                ],
            ),
            scaled("f8_e4m3", (128, 128), rounded=True),
        ),
    ],
)
def test_configurations(stated: object, expected: object) -> None:
    method = parse(stated, modules_to_not_convert=["lm_head"])
    assert (method.scheme(UP), method.notes) == (expected, ())


def test_static_scales_of_activations_are_noted() -> None:
    stated = config("Int8StaticActivationInt8WeightConfig", granularity=PER_ROW)
    method = parse(stated)
    assert method.notes == (STATIC_ACTIVATIONS,)
    assert method.scheme(UP) == scaled("i8", rounded=True)


def test_the_first_pattern_that_matches_as_a_whole_counts() -> None:
    entries = {
        r"re:model\.layers\.3\..*": FP8,
        r"re:.*\.up_proj\.weight": INT8,
        "model.layers.4.mlp.up_proj.weight": None,
        DOWN: INT8,
        "re:lm": INT8,
        "_default": FP8,
    }
    method = parse(by_name(entries))
    int8, fp8 = scaled("i8", rounded=False), scaled("f8_e4m3", rounded=False)
    expected = {
        UP: fp8,
        DOWN: int8,
        "model.layers.4.mlp.up_proj": UNQUANTIZED,
        "model.layers.5.mlp.up_proj": int8,
        "lm_head": fp8,
    }
    assert {name: method.scheme(name) for name in expected} == expected
    older = {"_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config": {DOWN: INT8}}}
    assert [parse(older).scheme(name) for name in (DOWN, UP)] == [int8, UNQUANTIZED]


@pytest.mark.parametrize(
    ("stated", "section", "message"),
    [
        (
            config("Int4WeightOnlyConfig"),
            {},
            "_type 'Int4WeightOnlyConfig' is not .*`pagemill export`",
        ),
        (INT8, {"include_input_output_embeddings": True}, "embeddings True is not .*: false"),
        (INT8, {"quant_type": "int4_weight_only"}, "quant_type 'int4_weight_only' .* torchao 0.15"),
        (None, {}, "_type None is not supported"),
        (
            config("Float8WeightOnlyConfig", weight_dtype=E4M3 | {"_data": "float8_e5m2"}),
            {},
            "weight_dtype 'float8_e5m2' is not supported; supported: float8_e4m3fn",
        ),
        (
            config(
                "Float8DynamicActivationFloat8WeightConfig",
                weight_dtype=E4M3,
                packing_format={"_data": "SPARSE_2D_DATA_2D_METADATA"},
            ),
            {},
            "packing_format 'SPARSE_2D_DATA_2D_METADATA' is not supported; supported: PLAIN",
        ),
        (config("Int8WeightOnlyConfig", granularity=config("PerAxis", axis=0)), {}, "'PerAxis'"),
        (
            config("Int8WeightOnlyConfig", granularity=config("PerGroup", group_size=3)),
            {},
            "columns a multiple of 4",
        ),
        (by_name({"re:(?=a)": FP8}), {}, "without look-around"),
    ],
)
def test_what_is_not_supported(stated: object, section: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        parse(stated, **section)
