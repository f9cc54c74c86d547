"""LoRA adapters on a device, or divided among two: rows with and without them in one batch have the
tokens of the CPU, and a replaced adapter has those of its new weights."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pagemill.config import ConfigError
from pagemill.engine.outputs import EngineError
from transformers import PreTrainedModel

from tests.adapters.engine_adapters import adapters_of
from tests.adapters.random_adapter import Kind, save_adapter, write_adapter
from tests.parity.small_engine import engine, generate
from tests.parity.tiny_models import make

PLUGIN = os.environ.get("PAGEMILL_TEST_EMULATED_GPU", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_EMULATED_GPU names no plugin")

# One prompt for all: what differs is the adapters'.
PROMPT = [3, 5, 7, 3, 5, 7, 3]
TOKENS = 5
KINDS = {
    "all": Kind(rank=4),
    "dora": Kind(rank=3, use_dora=True, dtype=torch.bfloat16),
    "bias": Kind(rank=5, lora_bias=True),
}


class Saved:
    """A tiny model and its adapters, in folders of `path`."""

    def __init__(self, path: Path) -> None:
        self.path, self.model = path, path / "model"
        self.model.mkdir()
        reference: PreTrainedModel = make("llama", self.model)
        for seed, (name, kind) in enumerate(KINDS.items()):
            save_adapter(path / name, reference, kind, seed)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))


def answers(saved: Saved, **options: Any) -> list[list[int]]:
    """Tokens of requests with and without adapters in the same steps, of which two share one of two
    slots and the last waits for one; then the same after an adapter was replaced, and without."""
    tokens: list[list[int]] = []
    options |= {"dtype": "f32", "max_model_len": 64, "enable_lora": True, "max_loras": 2}
    with engine(saved.model, **options) as core:
        adapters = adapters_of(core)
        for name in KINDS:
            adapters.load_adapter(name, str(saved.path / name))

        def ask(*names: str) -> None:
            ids = [adapters.id_of(name) if name else 0 for name in names]
            got = generate(core, [PROMPT] * len(names), TOKENS, ids)
            tokens.extend(answer.tokens for answer in got)

        ask("all", "", "dora", "all", "bias")
        adapters.load_adapter("all", str(saved.path / "bias"), load_inplace=True)
        ask("all", "dora", "")
        adapters.unload_adapter("all")
        ask("", "dora")
    return tokens


def test_tokens_are_those_of_the_cpu(saved: Saved) -> None:
    on_cpu = answers(saved, device="cpu")
    assert answers(saved, device="emulated:0") == on_cpu
    assert answers(saved, device="emulated:0", tensor_parallel_size=2) == on_cpu
    every, base, dora, again, bias, replaced, *rest = on_cpu
    assert len({tuple(each) for each in (every, base, dora, bias)}) == 4
    assert (again, replaced) == (every, bias)
    assert rest == [dora, base, base, dora]


def random_adapter(path: Path, shapes: Mapping[str, tuple[int, int]], rank: int) -> None:
    """Writes an adapter of matrices [out, in] by the names of their layers."""
    random = torch.Generator().manual_seed(1)
    tensors: dict[str, torch.Tensor] = {}
    for name, (out, size) in shapes.items():
        embeds = name.endswith("embed_tokens")
        a = torch.randn(rank, size, generator=random) / (1 if embeds else math.sqrt(size))
        b = torch.randn(out, rank, generator=random) / 4
        ends = ("_embedding_A", "_embedding_B") if embeds else ("_A.weight", "_B.weight")
        for end, matrix in zip(ends, (a, b), strict=True):
            tensors[f"base_model.model.{name}.lora{end}"] = matrix
    path.mkdir()
    write_adapter(path, tensors, r=rank, lora_alpha=8)


@pytest.mark.parametrize(
    "ranks",
    [
        {},
        {"tensor_parallel_size": 2},
        {"tensor_parallel_size": 2, "enable_expert_parallel": True},
    ],
    ids=["one", "two", "whole-experts"],
)
def test_embeddings_heads_and_experts(ranks: dict[str, Any], tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    reference = make("qwen3_moe", model)
    vocab, hidden = reference.get_input_embeddings().weight.shape
    inner = reference.config.moe_intermediate_size
    shapes = {"model.embed_tokens": (hidden, vocab), "lm_head": (vocab, hidden)}
    for expert in (0, 2):
        prefix = f"model.layers.1.mlp.experts.{expert}"
        shapes |= {
            f"{prefix}.gate_proj": (inner, hidden),
            f"{prefix}.up_proj": (inner, hidden),
            f"{prefix}.down_proj": (hidden, inner),
        }
    random_adapter(tmp_path / "adapter", shapes, rank=3)
    tokens: dict[str, list[list[int]]] = {}
    for device, changes in (("cpu", {}), ("emulated", ranks)):
        options = {"device": device, "dtype": "f32", "max_model_len": 64, "max_loras": 1}
        options |= changes
        modules = [f"own={tmp_path / 'adapter'}"]
        with engine(model, lora_modules=modules, **options) as core:
            own = adapters_of(core).id_of("own")
            got = generate(core, [PROMPT, PROMPT], TOKENS, [own, 0])
            tokens[device] = [answer.tokens for answer in got]
    assert tokens["emulated"] == tokens["cpu"]
    assert tokens["cpu"][0] != tokens["cpu"][1]


def test_adapters_that_do_not_fit_are_refused(saved: Saved) -> None:
    options = {"device": "emulated", "max_model_len": 64, "enable_lora": True}
    with engine(saved.model, max_lora_rank=1, max_loras=1, **options) as core:
        adapters = adapters_of(core)
        with pytest.raises(EngineError, match="bytes on the device.*raise --max-lora-rank to"):
            adapters.load_adapter("bias", str(saved.path / "bias"))
    with (
        pytest.raises(ConfigError, match="may be used"),
        engine(saved.model, max_lora_rank=512, max_loras=1024, **options),
    ):
        pass
