"""Configurations of ModelOpt name a scheme for each module, or are refused."""

from typing import Any

import pytest

from pagemill.quantization.base import Method
from pagemill.quantization.fp4 import Factor, Fp4Scheme
from pagemill.quantization.scaled import ScaledScheme
from pagemill.quantization.section import QuantizationError
from pagemill.quantization.table import method_of
from pagemill.quantization.unquantized import UNQUANTIZED

METHOD = "modelopt"
UP, DOWN = "model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj"
FP8 = ScaledScheme(METHOD, "f8_e4m3", None, quantized_activations=True)
NVFP4 = Fp4Scheme(factor=Factor("weight_scale_2"))
BLOCKS = ScaledScheme(METHOD, "f8_e4m3", (128, 128))


def parse(**section: object) -> Method:
    return method_of({"quantization_config": {"quant_method": METHOD, **section}})


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("FP8", FP8),
        ("FP8_PER_CHANNEL_PER_TOKEN", FP8),
        ("FP8_PB_WO", BLOCKS),
        ("fp8_pb_wo", BLOCKS),
        ("MXFP8", ScaledScheme(METHOD, "f8_e4m3", (1, 32))),
        ("NVFP4", NVFP4),
        ("W4A16_NVFP4", NVFP4),
    ],
)
def test_algorithms(algorithm: str, expected: object) -> None:
    assert parse(quant_algo=algorithm).scheme(UP) == expected
    beside = parse(producer={"name": METHOD}, quantization={"quant_algo": algorithm})
    assert beside.scheme(UP) == expected


@pytest.mark.parametrize("beside", [False, True])
def test_modules_that_are_excluded(beside: bool) -> None:
    names = ["lm_head", "model.layers.3.self_attn*", "*.mlp.gate", "model.vision_tower?"]
    section = {"quant_algo": "FP8", "exclude_modules" if beside else "ignore": names}
    method = parse(quantization=section) if beside else parse(**section)
    excluded = ("lm_head", "model.layers.3.self_attn.q_proj", "model.layers.9.mlp.gate")
    assert {method.scheme(name) for name in excluded} == {UNQUANTIZED}
    others = ("model.layers.30.self_attn.q_proj", "model.layers.9.mlp.gate_proj", UP)
    assert {method.scheme(name) for name in others} == {FP8}
    assert method.scheme("model.vision_tower2") is UNQUANTIZED
    assert method.scheme("model.vision_tower") == FP8


def test_many_modules_are_excluded() -> None:
    parts = ("self_attn*", "mlp.gate", "mlp.shared_expert*", "*.norm")
    names = [f"model.layers.{layer}.{part}" for layer in range(400) for part in parts]
    method = parse(quant_algo="NVFP4", ignore=[*names, "*embed_tokens"])
    assert method.scheme("model.layers.399.self_attn.q_proj") is UNQUANTIZED
    assert method.scheme("model.embed_tokens") is UNQUANTIZED
    assert method.scheme("model.layers.400.self_attn.q_proj") == NVFP4


def test_modules_have_algorithms_of_their_own() -> None:
    layers = {
        UP: {"quant_algo": "FP8"},
        "lm_head": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.1.mlp.experts": {"quant_algo": "FP8_PB_WO", "group_size": 128},
    }
    method = parse(quant_algo="MIXED_PRECISION", quantized_layers=layers)
    assert method.scheme(UP) == FP8
    assert method.scheme("lm_head") == NVFP4
    assert method.scheme(DOWN) is UNQUANTIZED
    assert method.scheme("model.layers.1.mlp.experts.7.up_proj") == BLOCKS
    assert method.scheme("model.layers.1.mlp.experts_2") is UNQUANTIZED


def test_notes() -> None:
    (static,) = parse(quant_algo="FP8").notes
    assert "input_scale" in static
    assert not parse(quant_algo="FP8_PB_WO").notes
    (rounded,) = parse(quant_algo="NVFP4").notes
    assert "--activation-dtype" in rounded
    assert not parse(quant_algo="W4A16_NVFP4").notes
    groups = {"group_0": {"targets": ["Linear"], "input_activations": None}}
    assert not parse(quant_algo="NVFP4", config_groups=groups).notes
    assert not parse(quant_algo="FP8", config_groups=groups).notes
    as_they_are = ScaledScheme(METHOD, "f8_e4m3", None)
    assert parse(quant_algo="FP8", config_groups=groups).scheme(UP) == as_they_are
    scheme = {"num_bits": 8, "type": "float", "dynamic": False}
    (cache,) = parse(quant_algo="FP8_PB_WO", kv_cache_scheme=scheme).notes
    assert "--kv-cache-dtype" in cache
    for algorithm, notes in (("FP8", (cache,)), ("fp8", (cache,)), ("", ()), (None, ())):
        beside = {"quant_algo": "FP8_PB_WO", "kv_cache_quant_algo": algorithm}
        assert parse(quantization=beside).notes == notes


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, r"\(modelopt\): quant_algo None .*: FP8, FP8_PER_CHANNEL_.*, W4A16_NVFP4, MIXED_PREC"),
        ({"quant_algo": "NVFP4_AWQ"}, "quant_algo 'NVFP4_AWQ'"),
        ({"quant_algo": "NVFP4", "group_size": 32}, "group_size 32 .* supported: none, 16"),
        ({"quant_algo": ["FP8"]}, "quant_algo a list"),
        ({"quantization": "FP8"}, "quantization 'FP8' .* an object"),
        ({"quantization": {"quant_algo": "MXFP6"}}, "quantization.quant_algo 'MXFP6'"),
        ({"quant_algo": "MXFP8", "group_size": 16}, "group_size 16 .* supported: none, 32"),
        ({"quant_algo": "FP8_PB_WO", "group_size": 64}, "group_size 64 .* supported: none, 128"),
        ({"quant_algo": "FP8", "ignore": "lm_head"}, "ignore 'lm_head' .* a list of module names"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}, "kv_cache_quant_algo 'NVFP4'"),
        ({"quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 4}}, "kv_cache_scheme.num_bits 4"),
        (
            {"quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "int"}},
            "kv_cache_scheme.type 'int' .* supported: float",
        ),
        ({"quant_algo": "MIXED_PRECISION"}, "quantized_layers None .* modules"),
        (
            {"quant_algo": "MIXED_PRECISION", "quantized_layers": {UP: {"quant_algo": "MXFP6"}}},
            r"quantized_layers\.model.*up_proj\.quant_algo 'MXFP6' .*: FP8, .*, W4A16_NVFP4$",
        ),
    ],
)
def test_refusals(section: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        parse(**section)
