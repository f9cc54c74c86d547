"""DeepSeek-V4 as its checkpoints are published: their names, e4m3 matrices with scales that are
powers of two, experts of two floats a byte, and layers that predict further tokens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from pagemill.runner.build import BuildOptions
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.families.divided import check_ranks
from tests.families.families import make
from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.one_request import OneRequest, difference

# Both sides compute in f32 with the same weights: bf16 holds e4m3 times a power of two.
TOLERANCE = 1e-4
_FP8 = re.compile(r".*\.(attn|indexer|shared_experts)\.(w[qo]_[ab]|wkv|w\d)\.weight")
_FP4 = re.compile(r".*\.experts\.\d+\.w\d\.weight")
_F32 = re.compile(r".*(hc_\w+|ape|attn_sink|bias|tid2eid)")
_NAMES = (
    (r"^model\.embed_tokens", "embed"),
    (r"^model\.hc_head\.hc", "hc_head"),
    (r"^model\.", ""),
    (r"\.attn\.norm", ".attn.kv_norm"),
)
_FLOATS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
Tensors = dict[str, torch.Tensor]


def _published(directory: Path, block: tuple[int, int]) -> PreTrainedModel:
    """A checkpoint in `directory / "published"`; returns the model of its values."""
    make("deepseek_v4", directory, changes={"moe_intermediate_size": 64})
    values, stored = load_file(directory / "model.safetensors"), Tensors()
    generator = torch.Generator().manual_seed(1)
    for name, value in values.items():
        published = name
        for pattern, replacement in _NAMES:
            published = re.sub(pattern, replacement, published)
        scale = published.removesuffix("weight") + "scale"
        if _FP8.fullmatch(name):
            stored[published], stored[scale], values[name] = _in_fp8(value, block)
        elif _FP4.fullmatch(name):
            stored[published], stored[scale], values[name] = _in_fp4(value, generator)
        elif _F32.fullmatch(name):
            stored[published] = value
        else:
            stored[published] = value.bfloat16()
            values[name] = value.bfloat16().float()
    for module in ("attn.wq_a", "e_proj"):  # of a layer that predicts a further token
        wq_a = "layers.0.attn.wq_a"
        for kind in ("weight", "scale"):
            stored[f"mtp.0.{module}.{kind}"] = stored[f"{wq_a}.{kind}"].clone()
    stored["mtp.0.norm.weight"] = stored["norm.weight"].clone()
    save_file(values, directory / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    config["expert_dtype"] = "fp4"
    config["quantization_config"] = {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "scale_fmt": "ue8m0",
        "weight_block_size": list(block),
    }
    (directory / "published").mkdir()
    (directory / "published" / "config.json").write_text(json.dumps(config))
    save_file(stored, directory / "published" / "model.safetensors")
    return AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()


def _in_fp8(
    value: torch.Tensor, block: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes, scales and what they stand for."""
    (m, k), (rows, columns) = value.shape, block
    grid = (-(-m // rows), -(-k // columns))
    padded = torch.zeros(grid[0] * rows, grid[1] * columns)
    padded[:m, :k] = value.abs()
    largest = padded.reshape(grid[0], rows, grid[1], columns).amax((1, 3))
    scales = torch.exp2((largest / 448).log2().ceil())
    spread = scales.repeat_interleave(rows, 0).repeat_interleave(columns, 1)[:m, :k]
    codes = (value / spread).to(torch.float8_e4m3fn)
    return codes, scales.to(torch.float8_e8m0fnu), codes.float() * spread


def _in_fp4(
    value: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `_in_fp8`, of random values."""
    m, k = value.shape
    codes = torch.randint(0, 16, (m, k), generator=generator, dtype=torch.uint8)
    exponents = torch.randint(121, 124, (m, k // 32), generator=generator, dtype=torch.uint8)
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).view(torch.int8)
    scales = torch.exp2(exponents.float() - 127).repeat_interleave(32, 1)
    return packed, exponents.view(torch.float8_e8m0fnu), _FLOATS[codes.long()] * scales


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("block", [(128, 128), (32, 32)])
def test_a_published_checkpoint(block: tuple[int, int], kind: str, tmp_path: Path) -> None:
    """Groups of heads end within blocks of 32 rows."""
    reference = _published(tmp_path, block)
    run = make_executor(kind, ModelSource.open(tmp_path / "published"))
    assert difference(run, reference) <= TOLERANCE


def test_two_ranks(tmp_path: Path) -> None:
    request = OneRequest(_published(tmp_path, (32, 32)))
    source = ModelSource.open(tmp_path / "published")
    check_ranks(
        source,
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / TOLERANCE,
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("layers.2.ffn.experts.0.w1.scale", r"w1.scale is u8 \[64, 2\], .* u8 \[64, 3\]"),
        ("layers.0.attn.wq_a.scale", r"wq_a.scale is u8 \[2, 2\]; it must be .* u8 \[2, 3\]"),
    ],
)
def test_scales_of_another_shape_are_refused(name: str, message: str, tmp_path: Path) -> None:
    _published(tmp_path, (32, 32))
    file = tmp_path / "published" / "model.safetensors"
    tensors = load_file(file)
    tensors[name] = tensors[name].view(torch.uint8)[:, :2].contiguous()
    save_file(tensors, file)
    with pytest.raises(WeightsError, match=message):
        make_executor("torch", ModelSource.open(tmp_path / "published"))
