"""Configurations of AWQ, GPTQ, fp8, FBGEMM, PTPC name a scheme for each module, or are refused."""

from typing import Any

import pytest

from pagemill.quantization.packed import PackedScheme
from pagemill.quantization.scaled import ScaledScheme
from pagemill.quantization.section import QuantizationError
from pagemill.quantization.table import method_of
from pagemill.quantization.unquantized import UNQUANTIZED

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
FP8 = {"quant_method": "fp8"}
MXFP8 = {"quant_method": "mxfp8", "activation_scheme": "dynamic", "scale_fmt": "ue8m0"}
PTPC = {"quant_method": "ptpc_fp8", "activation_scheme": "dynamic"}
FBGEMM = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
UP = "model.layers.3.mlp.up_proj"


def scheme(section: object, module: str = UP) -> object:
    return method_of({"quantization_config": section}).scheme(module)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (AWQ, PackedScheme("awq", "awq", 4, 32)),
        (AWQ | {"group_size": -1, "version": "GEMM"}, PackedScheme("awq", "awq", 4, None)),
        (
            {"quant_method": "awq", "w_bit": 4, "q_group_size": 128},
            PackedScheme("awq", "awq", 4, 128),
        ),
        (GPTQ, PackedScheme("gptq", "gptq", 4, 32)),
        (
            GPTQ | {"bits": 8, "checkpoint_format": "gptq_v2"},
            PackedScheme("gptq", "gptq_v2", 8, 32),
        ),
        (FP8, ScaledScheme("fp8", "f8_e4m3", None, quantized_activations=True)),
        (
            FP8 | {"weight_block_size": [128, 64], "activation_scheme": "static"},
            ScaledScheme("fp8", "f8_e4m3", (128, 64), quantized_activations=True),
        ),
        (
            FP8 | {"weight_block_size": [128, 128], "scale_fmt": "ue8m0"},
            ScaledScheme("fp8", "f8_e4m3", (128, 128), quantized_activations=True),
        ),
        (MXFP8, ScaledScheme("mxfp8", "f8_e4m3", (1, 32))),
        (MXFP8 | {"weight_block_size": [1, 32]}, ScaledScheme("mxfp8", "f8_e4m3", (1, 32))),
        (FBGEMM, ScaledScheme("fbgemm_fp8", "f8_e4m3", None, quantized_activations=True)),
        (PTPC, ScaledScheme("ptpc_fp8", "f8_e4m3", None, quantized_activations=True)),
        (None, UNQUANTIZED),
    ],
)
def test_configurations(section: object, expected: object) -> None:
    assert scheme(section) == expected


@pytest.mark.parametrize(
    "section",
    [
        AWQ | {"modules_to_not_convert": ["lm_head", "mlp.gate"]},
        FP8 | {"modules_to_not_convert": ["lm_head"], "ignored_layers": ["mlp.gate"]},
        FBGEMM | {"modules_to_not_convert": ["lm_head", "model.layers.3.mlp.gate"]},
        PTPC | {"ignored_layers": ["lm_head", "mlp.gate"]},
        MXFP8 | {"modules_to_not_convert": ["lm_head", "mlp.gate"]},
        GPTQ | {"dynamic": {"-:lm_head$": {}, r"-:.*\.mlp\.gate$": {}}},
    ],
)
def test_modules_that_are_not_quantized(section: dict[str, Any]) -> None:
    assert scheme(section, "lm_head") is UNQUANTIZED
    assert scheme(section, "model.layers.3.mlp.gate") is UNQUANTIZED
    assert scheme(section, "model.layers.3.mlp.gates") is not UNQUANTIZED


def test_gptq_overrides() -> None:
    dynamic = {
        r"+:.*\.3\.mlp\.up.*": {"bits": 8, "sym": False},
        r"-:.*\.mlp\.": {},
        r".*\.self_attn": {"group_size": 64, "desc_act": True},
        r"+:.*\.self_attn": {"group_size": -1},
    }
    section = GPTQ | {"dynamic": dynamic}
    assert scheme(section) == PackedScheme("gptq", "gptq", 8, 32)
    assert scheme(section, "model.layers.2.mlp.up_proj") is UNQUANTIZED
    # The first match counts.
    assert scheme(section, "model.layers.2.self_attn.q") == PackedScheme("gptq", "gptq", 4, 64)
    assert scheme(section, "lm_head") == PackedScheme("gptq", "gptq", 4, 32)


def test_static_activations_and_scales_of_the_cache_are_noted() -> None:
    section = FP8 | {"activation_scheme": "static", "kv_cache_scheme": {"num_bits": 8}}
    cache, activations = method_of({"quantization_config": section}).notes
    assert "--kv-cache-dtype" in cache and "input_scale" in activations
    assert not method_of({"quantization_config": FP8}).notes


def test_a_bound_of_activations_is_noted() -> None:
    (note,) = method_of({"quantization_config": FBGEMM}).notes
    assert "activation_scale_ub" in note
    assert not method_of({"quantization_config": {"quant_method": "fbgemm_fp8"}}).notes


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (AWQ | {"bits": 3}, r"\(awq\): bits 3 is not supported; supported: 4"),
        (AWQ | {"version": "gemv"}, "version 'gemv' is not supported; supported: gemm"),
        (AWQ | {"group_size": 48}, "group_size 48 .* multiples of 32, and -1 for whole rows"),
        (AWQ | {"group_size": "32"}, "group_size '32'"),
        (AWQ | {"modules_to_not_convert": "x"}, "a list of module names"),
        (GPTQ | {"bits": 5}, "bits 5 is not supported; supported: 2 and 3 and 4 and 8"),
        (GPTQ | {"bits": True}, "bits True is not supported"),
        (GPTQ | {"group_size": 0}, "group_size 0"),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin' .*: gptq, gptq_v2"),
        (GPTQ | {"is_marlin_format": True}, "checkpoint_format 'marlin'"),
        (GPTQ | {"dynamic": [1]}, "dynamic a list .* an object"),
        (GPTQ | {"dynamic": {"+:x": {"bits": 5}}}, r"dynamic\.\+:x\.bits 5 .*: 2 and 3 and"),
        (GPTQ | {"dynamic": {"x": 8}}, r"dynamic\.x 8 .* an object"),
        (GPTQ | {"dynamic": {"x": {"pack_dtype": "int8"}}}, r"x\.pack_dtype 'int8' .* bits"),
        (GPTQ | {"dynamic": {"+:(": {}}}, r"pattern '\(' is not supported; supported: balanced"),
        (MXFP8 | {"weight_block_size": [1, 64]}, r"weight_block_size .* supported: \[1, 32\]"),
        (FP8 | {"fmt": "e5m2"}, r"\(fp8\): fmt 'e5m2' is not .* supported: e4m3"),
        (FP8 | {"fmt": ["e4m3"]}, "fmt .* supported: e4m3"),
        (FP8 | {"activation_scheme": "x"}, "activation_scheme 'x'"),
        (PTPC | {"activation_scheme": "static"}, r"\(ptpc_fp8\): activation_scheme 'static'"),
        (FP8 | {"weight_block_size": [128]}, "weight_block_size .* two sizes"),
        (FP8 | {"weight_block_size": [0, 8]}, "columns a multiple of 4"),
        (FP8 | {"weight_block_size": [1e300, 128]}, "columns a multiple of 4"),
        (FP8 | {"weight_block_size": [128, 1e999]}, "two sizes"),
        (FP8 | {"ignored_layers": [""]}, "ignored_layers a list .* a list of module names"),
    ],
)
def test_refusals(section: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        scheme(section)
