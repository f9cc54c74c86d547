"""Every setting of a Quark configuration is applied or refused."""

from typing import Any

import pytest

from pagemill.quantization.base import Method
from pagemill.quantization.fp4 import Fp4Scheme
from pagemill.quantization.packed import PackedScheme
from pagemill.quantization.scaled import ScaledScheme
from pagemill.quantization.section import QuantizationError
from pagemill.quantization.table import method_of
from pagemill.quantization.unquantized import UNQUANTIZED

METHOD = "quark"
UP, KEYS = "model.layers.0.mlp.up_proj", "model.layers.0.self_attn.k_proj"
FP8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}
INT8 = {"dtype": "int8", "qscheme": "per_channel", "ch_axis": 0, "symmetric": True}
UINT4 = {"dtype": "uint4", "qscheme": "per_group", "group_size": 128, "ch_axis": -1}
FP4 = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}

PACKED = ("weight", "weight_scale", "weight_zero_point", "weight_g_idx")


def group(weight: object, x: object = None, **others: object) -> dict[str, Any]:
    return {"weight": weight, "input_tensors": x, "output_tensors": None, "bias": None, **others}


def parse(scheme: object, **section: object) -> Method:
    entries = {"quant_method": METHOD, "exclude": ["lm_head"], "global_quant_config": scheme}
    return method_of({"quantization_config": {**entries, **section}})


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (group(FP8), ScaledScheme(METHOD, "f8_e4m3", None)),
        (group([FP8], [FP8]), ScaledScheme(METHOD, "f8_e4m3", None, quantized_activations=True)),
        (
            group(FP8 | {"qscheme": "per_block", "block_size": [128, 128]}, FP8),
            ScaledScheme(METHOD, "f8_e4m3", (128, 128), quantized_activations=True),
        ),
        (group(INT8, INT8), ScaledScheme(METHOD, "i8", None, quantized_activations=True)),
        (group(FP4, FP4), Fp4Scheme()),
        (group(UINT4), PackedScheme(METHOD, "awq", 4, 128, names=PACKED)),
        (group(None), UNQUANTIZED),
    ],
)
def test_schemes(scheme: object, expected: object) -> None:
    method = parse(scheme)
    assert method.scheme(UP) == expected
    assert method.scheme("lm_head") is UNQUANTIZED


def test_wildcards_have_schemes_of_their_own() -> None:
    layers = {"*k_proj": group(INT8), "*_proj": group(None), "model.layers.1.*": group(FP4)}
    method = parse(group(FP8), layer_quant_config=layers, exclude=["*.7.*"])
    assert method.scheme(KEYS) == ScaledScheme(METHOD, "i8", None)
    assert method.scheme(UP) is UNQUANTIZED
    assert method.scheme("model.layers.1.mlp.gate") == Fp4Scheme()
    assert method.scheme("lm_head") == ScaledScheme(METHOD, "f8_e4m3", None)
    assert method.scheme(KEYS.replace("0", "7")) is UNQUANTIZED


def test_notes() -> None:
    assert not parse(group(FP8)).notes
    assert not parse(group(FP8, FP8 | {"is_dynamic": True})).notes
    (static,) = parse(group(FP8, FP8), layer_quant_config={"*k_proj": group(FP8, FP8)}).notes
    assert "input_scale" in static
    assert not parse(group(FP4)).notes
    (rounded,) = parse(group(FP4, FP4)).notes
    assert "--activation-dtype" in rounded
    export = {"kv_cache_group": ["*k_proj", "*v_proj"], "weight_format": "real_quantized"}
    keys = {"*k_proj": group(FP8, output_tensors=FP8)}
    (cache,) = parse(group(FP8), layer_quant_config=keys, export=export).notes
    assert "--kv-cache-dtype" in cache


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"scheme": None}, "global_quant_config None .* an object"),
        ({"scheme": "fp8"}, r"\(quark\): global_quant_config 'fp8' .* an object"),
        ({"scheme": group("fp8")}, "global_quant_config.weight 'fp8' .* an object"),
        ({"scheme": group([FP8, FP8])}, "weight a list .* one object"),
        ({"scheme": group([3])}, "weight 3 .* an object"),
        (
            {"scheme": group(FP8 | {"dtype": "int2"})},
            "dtype 'int2' .*: fp8_e4m3, int8, fp4, int4, uint4",
        ),
        ({"scheme": group(UINT4 | {"qscheme": "per_channel"})}, "qscheme 'per_channel'"),
        ({"scheme": group(UINT4 | {"group_size": 16})}, "group_size 16 .* multiples of 32"),
        ({"scheme": group(UINT4 | {"ch_axis": 0})}, "ch_axis 0"),
        ({"scheme": group(UINT4 | {"zero_point_type": "float32"})}, "zero_point_type 'float32'"),
        ({"scheme": group(UINT4), "export": {"pack_method": "order"}}, "pack_method 'order'"),
        ({"scheme": group(FP8 | {"is_dynamic": True})}, "weight.is_dynamic True"),
        ({"scheme": group(FP8 | {"qscheme": "per_group"})}, "per_tensor, per_channel, per_block"),
        ({"scheme": group(FP8 | {"qscheme": "per_block"})}, "block_size None .* two sizes"),
        ({"scheme": group(INT8 | {"qscheme": "per_block"})}, ": per_tensor, per_channel$"),
        ({"scheme": group(INT8 | {"ch_axis": 1})}, "weight.ch_axis 1"),
        ({"scheme": group(INT8 | {"symmetric": False})}, "weight.symmetric False"),
        ({"scheme": group(INT8, FP8)}, "input_tensors.dtype 'fp8_e4m3' .* supported: int8"),
        ({"scheme": group(FP4 | {"group_size": 16})}, "group_size 16 .* supported: 32"),
        ({"scheme": group(FP4 | {"qscheme": "per_tensor"})}, "qscheme 'per_tensor'"),
        ({"scheme": group(FP4 | {"scale_format": "e4m3"})}, "scale_format 'e4m3'"),
        ({"scheme": group(FP8, output_tensors=FP8)}, "output_tensors 'present'"),
        (
            {"scheme": group(FP8, output_tensors=FP8), "export": {"kv_cache_group": ["*k_proj"]}},
            "global_quant_config.output_tensors 'present'",
        ),
        ({"scheme": group(FP8, bias=FP8)}, "bias 'present' .* supported: none"),
        ({"scheme": group(FP8), "algo_config": [{"name": "rotation"}]}, "algo_config 'rotation'"),
        ({"scheme": group(FP8), "algo_config": 3}, "algo_config 3"),
        ({"scheme": group(FP8), "layer_type_quant_config": {"a": {}}}, "layer_type_quant_config"),
        ({"scheme": group(FP8), "layer_quant_config": {"a": 3}}, r"layer_quant_config\.a 3"),
        (
            {"scheme": group(FP8), "layer_quant_config": {str(i): {} for i in range(1025)}},
            "layer_quant_config .* up to 1024 names",
        ),
        ({"scheme": group(FP8), "export": {"weight_format": "fake_quantized"}}, "weight_format"),
    ],
)
def test_refusals(method: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        parse(**method)


def test_algorithms_whose_changes_are_in_the_weights() -> None:
    method = parse(group(FP8), algo_config=[{"name": "AutoSmoothQuant"}, {"name": "gptq"}])
    assert method.scheme(UP) == ScaledScheme(METHOD, "f8_e4m3", None)
