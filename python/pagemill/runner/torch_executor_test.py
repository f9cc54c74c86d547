"""Options of the torch executor that the parity tests do not cover."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pagemill import ops
from pagemill.ops.program_text import to_text
from pagemill.ops.trace import Trace
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.safetensors import read_file


def _program(directory: Path, table: torch.Tensor) -> str:
    save_file({"table": table}, directory / "t.safetensors")
    at = read_file(directory / "t.safetensors")["table"]
    trace = Trace()
    shape = (table.shape[0], table.shape[1])
    weight = trace.weight("t", at.dtype, shape, file=trace.file(at.file), offset=at.offset)
    x = ops.embedding(trace.input("token_ids", "i32", ("tokens",)), weight)
    rows = ops.select_rows(x, trace.input("logits_rows", "i32", ("logits_rows",)))
    trace.output("logits", ops.linear(rows, weight, dtype="f32"))
    return to_text(trace.program)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_activations(tmp_path: Path, stored: torch.dtype, dtype: str):
    """Activations and matrices are rounded; logits, which the program declares f32, are not."""
    table = torch.randn(9, 40, generator=torch.Generator().manual_seed(1)).to(stored)
    text = _program(tmp_path, table)
    batch = SimpleBatch(4, 16).step({0: [3, 8], 1: [5]})
    logits = TorchExecutor(text, TorchOptions(dtype=dtype))(batch)["logits"]
    assert logits.dtype == np.float32
    rounded = table.to({"bf16": torch.bfloat16, "f16": torch.float16}[dtype]).double()
    exact = (rounded[[8, 5]] @ rounded.T).numpy()
    # 40 products of about 1, added in f32; bf16 would be off by up to 2^-9 of a logit.
    np.testing.assert_allclose(logits, exact, atol=40 * 2**-24 * 8, rtol=0)


def test_no_logits_rows(tmp_path: Path):
    """A chunk in the middle of a prompt needs no logits."""
    text = _program(tmp_path, torch.randn(9, 40))
    batch = SimpleBatch(4, 16).step({0: [3, 8]}) | {"logits_rows": np.zeros(0, np.int32)}
    outputs = TorchExecutor(text, TorchOptions())(batch)
    assert set(outputs) == {"logits"} and outputs["logits"].shape == (0, 9)


def test_unknown_dtype():
    with pytest.raises(ValueError, match="dtype 'fp8'; known: f32, bf16, f16"):
        TorchExecutor("", TorchOptions(dtype="fp8"))
    with pytest.raises(ValueError, match="dtype 'int8'; known: f32, bf16, f16"):
        TorchExecutor("", TorchOptions(kv_cache_dtype="int8"))


def test_only_latents_are_stored_in_fp8(tmp_path: Path):
    text = _program(tmp_path, torch.randn(9, 40))
    with pytest.raises(ValueError, match="'fp8' is for programs with latent caches alone"):
        TorchExecutor(text, TorchOptions(kv_cache_dtype="fp8"))
