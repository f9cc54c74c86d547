"""Each family equals `transformers`: logits, and tokens through the engine; and what it reads of
checkpoints and configurations matters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.models.table import ARCHITECTURES, model_class
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.families.families import FAMILIES, make
from tests.families.family import NEUTRAL
from tests.parity.engine_model import MODEL_LEN, Model
from tests.parity.executors import make_executor, new_batches

# As in tests/parity/decoder_parity_test.py: both sides compute in f32, and add up rows of up to 136
# products in different orders.
TOLERANCE = 1e-4
TOKENS = 64  # generated
_LAYER = re.compile(r"\.(?:layers|h)\.(\d+)\.")

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    name: str
    model: Model
    prompt: list[int]
    logits: Array

    def executed(self, path: Path, kind: str = "native") -> Array:
        """Logits of the prompt by the checkpoint at `path`."""
        run = make_executor(kind, ModelSource.open(path))
        return run(new_batches(run).step({0: self.prompt}, all_logits=True))["logits"]

    def distance(self, logits: Array) -> float:
        """The largest difference from the reference, in units of the tolerance."""
        assert np.isfinite(logits).all()
        scale = max(1.0, float(np.abs(self.logits).max()))
        return float(np.abs(logits - self.logits).max()) / (TOLERANCE * scale)


@pytest.fixture(name="case", scope="module", params=sorted(FAMILIES))
def _case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path: Path = tmp_path_factory.mktemp(request.param)
    model = Model(path, make(request.param, path))
    prompt = model.prompt(3, 61)
    with torch.no_grad():
        logits = model.reference(torch.tensor([prompt])).logits[0].numpy()
    return Case(request.param, model, prompt, logits)


@pytest.mark.parametrize("kind", ["native", "native-reference", "torch", "torch-rewritten"])
def test_logits(case: Case, kind: str) -> None:
    assert case.distance(case.executed(case.model.path, kind)) <= 1


def test_greedy_tokens(case: Case) -> None:
    """Prompts of several lengths together, in chunks; then again, with their prefixes cached."""
    model = case.model
    prompts = [model.prompt(seed, n) for seed, n in enumerate((150, 33, 5, 71, 17, 98, 2, 41))]
    with model.engine(max_num_seqs=8) as core:
        answers = model.run(core, *prompts, num_tokens=TOKENS)
        turn = [*prompts[0], *answers[0].tokens, 5]
        # The last token of an answer is not computed.
        assert model.run(core, turn)[0].cached >= (len(turn) - 2) // model.block * model.block
    # A model that always generates the same token would prove little.
    assert len({token for answer in answers for token in answer.tokens}) > 1


def test_requests_that_are_preempted(case: Case) -> None:
    model = case.model
    pool = (1 + model.pages(MODEL_LEN)) * model.page_bytes
    with model.engine(kv_cache_memory_bytes=str(pool), max_num_seqs=8) as core:
        model.run(
            core, *[model.prompt(seed, 40 + 7 * seed) for seed in range(8)], num_tokens=TOKENS
        )
        # Requests whose layers all have windows or states do not grow.
        assert core.bindings.engine.stats().num_preemptions > 0 or not model.grows


def test_each_tensor_matters(case: Case, tmp_path: Path) -> None:
    """Logits move if a tensor is zero: those around the layers, and all of layer 1."""
    config = (case.model.path / "config.json").read_text()
    tensors = load_file(case.model.path / "model.safetensors")
    (tmp_path / "config.json").write_text(config)
    unmoved: list[str] = []
    unused = tuple(FAMILIES[case.name].unused)
    for name in tensors:
        layer = _LAYER.search(name)
        if (layer and layer[1] != "1") or name.endswith(unused):
            continue
        changed = tensors | {name: torch.zeros_like(tensors[name])}
        save_file(changed, tmp_path / "model.safetensors")
        if case.distance(case.executed(tmp_path)) < 10:
            unmoved.append(name)
    assert not unmoved


class _Reads(Mapping[str, Any]):
    """A configuration that notes which of its keys are read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return self._config[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)


def _other(value: Any) -> Any:
    """A value of the same type that should change logits, or be refused."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 1.7 + 0.1
        case str():
            return "relu" if value != "relu" else "silu"
        case list():
            if all(isinstance(entry, int | list) for entry in value):
                return [_other(entry) for entry in value]
            return [*value[1:], value[0]]
        case dict():
            return {
                key: _other(entry) if key != "rope_type" else entry for key, entry in value.items()
            }
        case _:
            return 3


def test_each_field_of_the_configuration_matters(case: Case, tmp_path: Path) -> None:
    """Logits move, or the model is refused, if a field that the family reads has another value."""
    path = case.model.path
    config = json.loads((path / "config.json").read_text())
    reads = _Reads(config)
    model_class(config["architectures"][0]).from_config(reads)
    (tmp_path / "model.safetensors").symlink_to(path / "model.safetensors")
    unmoved: list[str] = []
    neutral = NEUTRAL | FAMILIES[case.name].unused
    for key in sorted((reads.read & config.keys()) - neutral):
        changed = config | {key: _other(config[key])}
        (tmp_path / "config.json").write_text(json.dumps(changed))
        try:
            moved = case.distance(case.executed(tmp_path)) >= 10
        except (ModelConfigError, WeightsError):
            continue
        if not moved:
            unmoved.append(f"{key}={config[key]!r:.40} as {changed[key]!r:.40}")
    assert not unmoved


def test_families_without_a_row_are_named() -> None:
    """Rows that wait to move here, from tests/parity."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    covered = {
        family.elsewhere.architecture
        if family.elsewhere
        else MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[family.model_type]].__name__
        for family in FAMILIES.values()
    }
    assert sorted(ARCHITECTURES.keys() - covered) == [
        "BertModel",
        "LlavaForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    ]
