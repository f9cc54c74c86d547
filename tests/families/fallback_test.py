"""Architectures that run by the fallback equal `transformers`: tokens and vectors through the
engine. What does not fit Pagemill's KV cache is refused."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill import _native
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.core import EngineCore
from pagemill.engine.loading import build_options, build_ranks
from pagemill.engine.model_source import open_model
from pagemill.inputs.task import Task
from pagemill.models.base import ModelConfigError
from pagemill.models.table import ARCHITECTURES
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from tests.families.fallback import DECODERS, ENCODERS, make
from tests.families.families import make as make_native
from tests.families.heads import dense
from tests.parity.executors import require_native
from tests.parity.greedy import wrong_tokens
from tests.parity.small_engine import Answer, engine, generate, pool, random_prompt

require_native()
MODEL_LEN, TOKENS = 160, 32
_NEAR_TIE = 1e-3  # as in tests/parity/engine_model.py


@dataclass(frozen=True)
class Case:
    path: Path
    reference: PreTrainedModel

    def prompts(self, *lengths: int) -> list[list[int]]:
        return [_prompt(seed, length) for seed, length in enumerate(lengths)]

    def run(self, core: EngineCore, *prompts: list[int]) -> list[Answer]:
        """The answers to prompts that are submitted together, which must be the right ones."""
        answers = generate(core, prompts, TOKENS)
        for prompt, answer in zip(prompts, answers, strict=True):
            wrong = wrong_tokens(self.reference, prompt, answer.tokens, _NEAR_TIE)
            assert not wrong, "\n".join(wrong)
        return answers


@pytest.fixture(name="case", scope="module", params=sorted(DECODERS))
def _case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path: Path = tmp_path_factory.mktemp(request.param)
    return Case(path, make(request.param, path))


def test_greedy_tokens(case: Case) -> None:
    """Prompts of several lengths together, in chunks of 32; then one again, its prefix cached."""
    prompts = case.prompts(75, 33, 5)
    with engine(case.path, max_model_len=MODEL_LEN) as core:
        answers = case.run(core, *prompts)
        turn = [*prompts[0], *answers[0].tokens, 5]
        (again,) = case.run(core, turn)
        module = core.built.module
        assert module is not None
        block = 16 * max(module.layout.times)
        assert again.cached >= (len(turn) - 2) // block * block
    # A model that always generates the same token would prove little.
    assert len({token for answer in answers for token in answer.tokens}) > 1


def test_requests_that_are_preempted(case: Case) -> None:
    module = _built(case.path).module
    assert module is not None
    groups = [
        _native.KvGroupOptions(
            kind="sliding_window" if window else "full",
            block_size=16 * times,
            window_tokens=window,
        )
        for window, times in zip(module.layout.windows, module.layout.times, strict=True)
    ]
    pages = _native.max_kv_pages(
        groups=groups, block_size=16, max_step_tokens=32, num_tokens=MODEL_LEN
    )
    page_bytes = module.memory("f32", "f32", 16, 32, 1, MODEL_LEN).kv_page_bytes
    memory = str((pages + 1) * page_bytes)
    with engine(case.path, max_model_len=MODEL_LEN, kv_cache_memory_bytes=memory) as core:
        assert core.budget.kv_bytes == (pages + 1) * page_bytes
        case.run(core, *case.prompts(60, 67, 54, 48))
        assert core.bindings.engine.stats().num_preemptions > 0


def test_the_plan(case: Case) -> None:
    module = _built(case.path).module
    assert module is not None
    assert module.num_parameters == sum(each.numel() for each in case.reference.parameters())
    # What the library's own cache would take: all layers, and tables have little room to spare.
    stored = sum(layer.row_elements for layer in module.layers)
    taken = sum(module.layout.row_elements // times for times in module.layout.times)
    assert stored <= taken <= 1.25 * stored


def test_no_row_is_supported_natively(case: Case) -> None:
    assert not set(case.reference.config.architectures) & ARCHITECTURES.keys()
    with pytest.raises(ModelConfigError, match="unknown architecture"):
        build(ModelSource.open(case.path), BuildOptions())


@pytest.mark.parametrize("model_type", sorted(ENCODERS))
def test_vectors(model_type: str, tmp_path: Path) -> None:
    reference = make(model_type, tmp_path, encoder=True)
    prompts = [_prompt(seed, length) for seed, length in enumerate((40, 7, 21))]
    with engine(tmp_path, max_model_len=MODEL_LEN) as core, torch.no_grad():
        assert core.built.module is not None
        rows = pool(core, prompts, {}).reshape(len(prompts), -1)
        for row, prompt in zip(rows, prompts, strict=True):
            vectors = reference(torch.tensor([prompt]))[0][0]
            # Sums of up to 136 products in f32, in another order.
            np.testing.assert_allclose(row, vectors.mean(0).numpy(), atol=1e-4)


def test_it_says_that_it_is_slow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make("moshi", tmp_path)
    with caplog.at_level(logging.WARNING, "pagemill.engine"), engine(tmp_path):
        pass
    (warning,) = [record for record in caplog.records if "fallback" in record.message]
    assert "several times slower than native support" in warning.message


def test_random_weights(tmp_path: Path) -> None:
    """The library makes the same ones each time, from the configuration alone."""
    make("moshi", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    config = build_config(EngineConfig, {"model": str(tmp_path), "load_format": "dummy"})
    source = open_model(config.model, build_options(config.model)).source
    tokens = []
    for _ in range(2):
        core = EngineCore.create(build_ranks(source, config)[0], config, "float32", source=source)
        tokens.append(generate(core, [_prompt(0, 20)], 9)[0].tokens)
        core.bindings.engine.shutdown()
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("model_type", ["aria", "llama"])
def test_a_supported_model_by_the_library(model_type: str, tmp_path: Path) -> None:
    case = Case(tmp_path, make_native(model_type, tmp_path))
    assert _built(tmp_path).module is None
    with engine(tmp_path, max_model_len=MODEL_LEN, model_impl="transformers") as core:
        assert core.built.module is not None
        case.run(core, *case.prompts(40, 9))


def _prompt(seed: int, length: int) -> list[int]:
    # Without special tokens: `transformers` takes the token of padding for padding.
    return [token + 6 for token in random_prompt(seed, length, 250)]


def _built(path: Path, **options: Any) -> BuiltModel:
    return build(ModelSource.open(path), BuildOptions(**{"implementation": "auto", **options}))


def _saved(model_type: str, directory: Path, **fields: Any) -> Path:
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    sizes |= {"eos_token_id": 2}
    config = CONFIG_MAPPING[model_type](**{**sizes, **fields})
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    return directory


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("diffllama", "attends more than once in a step"),
        ("doge", "dry run failed"),
        ("xlm", "its attention is its own"),
    ],
)
def test_what_does_not_fit_is_refused(model_type: str, reason: str, tmp_path: Path) -> None:
    path = _saved(model_type, tmp_path)
    with pytest.raises(ModelConfigError, match=f"unknown architecture.*({reason})"):
        _built(path, max_model_len=64)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"shard": Shard(0, 2)}, "--tensor-parallel-size must be 1"),
        ({"adapters": True}, "it has no adapters"),
        ({"hidden_states": (0,)}, "no hidden states"),
        ({"task": Task.CLASSIFY}, "--task classify is not supported by the fallback"),
        ({"max_model_len": 9999}, "outside the model's range, 1 to 512"),
        ({"pooling": "median"}, "no pooling 'median'"),
        ({"pooling": "splade"}, "no pooling 'splade'"),
    ],
)
def test_options_that_need_native_support(
    options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = _saved("moshi", tmp_path, max_position_embeddings=512)
    with pytest.raises(ModelConfigError, match=reason):
        _built(path, **options)


def test_dense_modules_need_native_support(tmp_path: Path) -> None:
    dense(tmp_path)
    with pytest.raises(ModelConfigError, match="Dense modules need native support"):
        _built(tmp_path, implementation="transformers")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "unheard_of", "architectures": ["NewForCausalLM"]}, "does not run code"),
        ({"quantization_config": {"quant_method": "gptq"}}, "not quantized"),
        ({"num_hidden_layers": 9999}, "num_hidden_layers is 9999"),
    ],
)
def test_configurations_that_are_refused(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = _saved("moshi", tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises((ModelConfigError, WeightsError), match=reason):
        _built(tmp_path, implementation="transformers")


def test_a_weight_that_is_missing(tmp_path: Path) -> None:
    path = _saved("moshi", tmp_path) / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.norm.weight"]
    save_file(tensors, path, {"format": "pt"})
    with (
        pytest.raises(WeightsError, match=r"1 weights are missing, such as model\.norm\.weight"),
        engine(tmp_path),
    ):
        pass


def test_a_mask_of_chunks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match="Llama4ForCausalLM cannot run by the fallback"):
        path = _saved("llama4_text", tmp_path, attention_chunk_size=8, num_local_experts=2)
        _built(path, implementation="transformers")
