"""Logits of AWQ, GPTQ and pack-quantized checkpoints equal those of `transformers` on the values
that they hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.one_request import difference
from tests.parity.packed_checkpoints import (
    Overrides,
    Scheme,
    pack,
    pack_quantized,
    section,
    write_packed,
)
from tests.parity.scaled_checkpoints import SCHEMES as SCALED
from tests.parity.scaled_checkpoints import write_scaled
from tests.parity.tiny_models import make, tiny_llama

# Tolerances, relative to the largest logit. Exact: both sides compute in f32 with the same
# weights. Rounded, by the native executor's fast kernels alone: minima of q4_1 to f16, by 1/128 of
# a step of 4 bits or less; weights that are expanded to bf16, by 2^-9 of themselves at most, of
# which some 20 products in a row add up like the root of their number (see scaled_parity_test).
EXACT, ROUNDED, EXPANDED = 1e-4, 5e-3, 0.02

SCHEMES = {
    "awq": (Scheme("awq"), ROUNDED),
    "awq-rows": (Scheme("awq", group=-1), ROUNDED),
    "awq-middle": (Scheme("awq", group=64, zeros=False), EXACT),
    "gptq": (Scheme("gptq"), ROUNDED),
    "gptq-sym": (Scheme("gptq", group=64, zeros=False), EXACT),
    "gptq-v2": (Scheme("gptq_v2"), ROUNDED),
    "gptq-v2-sym": (Scheme("gptq_v2", zeros=False), EXACT),
    "gptq-8": (Scheme("gptq", bits=8, group=-1, zeros=False), EXACT),
    "gptq-8-zeros": (Scheme("gptq", bits=8), EXPANDED),
    "gptq-act-order": (Scheme("gptq", zeros=False, act_order=True), EXPANDED),
    "packed": (Scheme("pack_quantized", zeros=False, scale_dtype=torch.bfloat16), EXACT),
    "packed-zeros": (Scheme("pack_quantized", scale_dtype=torch.bfloat16), ROUNDED),
    "packed-8": (
        Scheme("pack_quantized", 8, -1, zeros=False, scale_dtype=torch.bfloat16),
        EXACT,
    ),
    "packed-act-order": (Scheme("pack_quantized", act_order=True), EXPANDED),
}


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", SCHEMES)
def test_prompt_and_decode(name: str, kind: str, tmp_path: Path) -> None:
    scheme, of_native = SCHEMES[name]
    reference = write_packed(tmp_path, scheme)
    tolerance = of_native if kind == "native" else EXACT
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= tolerance


# The experts of a layer; and a matrix that latent attention uses head by head.
MATRICES = [
    ("qwen3_moe", ".experts.", Scheme("awq")),
    ("qwen3_moe", ".experts.", Scheme("gptq", zeros=False)),
    ("deepseek_v2_lite", ".kv_b_proj.", Scheme("awq", zeros=False)),
]


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize(("family", "matrices", "scheme"), MATRICES, ids=str)
def test_stacks_of_packed_integers(
    family: str, matrices: str, scheme: Scheme, kind: str, tmp_path: Path
) -> None:
    """All experts of a layer are one stack of packed integers."""
    directory = tmp_path / "packed"
    make(family, tmp_path)
    directory.mkdir()
    packed: dict[str, torch.Tensor] = {}
    values = load_file(tmp_path / "model.safetensors")
    for name, value in values.items():
        if matrices not in name:
            packed[name] = value
            continue
        held = pack(name.removesuffix(".weight"), value.numpy(), scheme, packed)
        values[name] = torch.from_numpy(held)
    save_file(values, tmp_path / "model.safetensors", metadata={"format": "pt"})
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    save_file(
        {name: value.contiguous() for name, value in packed.items()},
        directory / "model.safetensors",
    )
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = section(scheme, {})
    (directory / "config.json").write_text(json.dumps(config))
    tolerance = ROUNDED if scheme.zeros and kind == "native" else EXACT
    assert difference(make_executor(kind, ModelSource.open(directory)), reference) <= tolerance


MIXED: dict[str, tuple[Scheme, Overrides]] = {
    "awq": (Scheme("awq", zeros=False), {"k_proj": None, "down_proj": None}),
    "gptq": (
        Scheme("gptq", zeros=False),
        {"down_proj": Scheme("gptq", 8, zeros=False), "o_proj": None},
    ),
    "packed": (
        Scheme("pack_quantized", group=64, zeros=False),
        {"down_proj": Scheme("pack_quantized", 8, -1, zeros=False), "q_proj": None},
    ),
}


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", MIXED)
def test_layers_of_different_schemes(name: str, kind: str, tmp_path: Path) -> None:
    reference = write_packed(tmp_path, *MIXED[name])
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= EXACT


@pytest.mark.parametrize("kind", EXECUTORS)
def test_quark_packs_as_awq_under_other_names(kind: str, tmp_path: Path) -> None:
    reference = write_packed(tmp_path, Scheme("awq", group=64))
    names = {"qweight": "weight", "qzeros": "weight_zero_point", "scales": "weight_scale"}
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        module, _, part = name.rpartition(".")
        renamed[f"{module}.{names.get(part, part)}"] = tensor
    save_file(renamed, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    weight = {"dtype": "uint4", "qscheme": "per_group", "group_size": 64, "symmetric": False}
    config["quantization_config"] = {
        "quant_method": "quark",
        "global_quant_config": {"weight": weight},
        "exclude": ["lm_head"],
        "export": {"pack_method": "reorder"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    tolerance = ROUNDED if kind == "native" else EXACT
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= tolerance


@pytest.mark.parametrize("kind", EXECUTORS)
def test_int8_beside_packed_integers(kind: str, tmp_path: Path) -> None:
    """Both multiply one x in the gated MLP, by different kernels."""
    sizes = {"hidden_size": 128, "intermediate_size": 160, "num_attention_heads": 4}
    reference = write_scaled(tiny_llama(**sizes), tmp_path, SCALED["w8a8"])
    tensors = load_file(tmp_path / "model.safetensors")
    scheme = Scheme("pack_quantized", zeros=False)
    for layer, block in enumerate(reference.model.layers):
        name, up = f"model.layers.{layer}.mlp.up_proj", block.mlp.up_proj
        for suffix in ("weight", "weight_scale"):
            del tensors[f"{name}.{suffix}"]
        up.weight.data = torch.from_numpy(pack(name, up.weight.detach().numpy(), scheme, tensors))
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["config_groups"]["group_1"] = {
        "targets": ["re:.*up_proj"],
        "format": "pack-quantized",
        "weights": pack_quantized(scheme),
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    run = make_executor(kind, ModelSource.open(tmp_path))
    assert difference(run, reference) <= EXACT
