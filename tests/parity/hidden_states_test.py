"""Hidden states and chosen experts equal those of `transformers`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill import _native
from pagemill.config import ConfigError, EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.core import EngineCore
from pagemill.engine.llm import LLM
from pagemill.engine.loading import load
from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import SamplingParams
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from transformers import Mamba2Model, PreTrainedModel

from tests.parity.executors import make_executor, new_batches
from tests.parity.tiny_decoders import DECODERS
from tests.parity.tiny_models import make

# As for logits in tests/families/families_test.py: the sums are the same.
TOLERANCE = 1e-4
KINDS = ("torch", "native")  # the native program is rewritten: results come from fused ops

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    source: ModelSource
    reference: PreTrainedModel

    @property
    def layers(self) -> int:
        return self.reference.config.num_hidden_layers

    def tokens(self, length: int, seed: int) -> list[int]:
        vocab = self.reference.config.vocab_size
        return np.random.default_rng(seed).integers(0, vocab, length).tolist()

    @torch.no_grad()
    def hidden_states(self, token_ids: list[int]) -> list[Array]:
        """The embeddings and the result of each layer; of a decoder's last, normalized."""
        outputs = self.reference(torch.tensor([token_ids]), output_hidden_states=True)
        states = [state[0].numpy() for state in outputs.hidden_states]
        if isinstance(self.reference.base_model, Mamba2Model):
            # Hooks: no embeddings, and the last layer's result twice, unmodified and normalized.
            states = [np.zeros_like(states[0]), *states[:-2], states[-1]]
        return states

    @torch.no_grad()
    def final(self, last: Array) -> Array:
        """What `transformers` has for the result of the last layer."""
        if not hasattr(self.reference, "lm_head"):
            return last
        model = self.reference.base_model
        norm = model.norm_f if isinstance(model, Mamba2Model) else model.norm
        return norm(torch.tensor(last)).numpy()


@pytest.fixture(scope="module", params=[*DECODERS, "bert"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    directory: Path = tmp_path_factory.mktemp(request.param)
    reference = make(request.param, directory)
    return Case(ModelSource.open(directory), reference)


def _error(actual: Array, expected: Array) -> float:
    assert actual.shape == expected.shape and np.isfinite(actual).all()
    return float(np.abs(actual - expected).max()) / max(1.0, float(np.abs(expected).max()))


def _compare(case: Case, outputs: dict[str, Array], expected: list[Array]) -> None:
    states = [outputs[f"hidden.{layer}"] for layer in range(case.layers)]
    states[-1] = case.final(states[-1])
    errors = [_error(*pair) for pair in zip(states, expected[1:], strict=True)]
    assert {layer: error for layer, error in enumerate(errors) if error > TOLERANCE} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_whole_prompts(case: Case, kind: str) -> None:
    run = make_executor(kind, case.source, hidden_states=tuple(range(case.layers)))
    prompts = {index: case.tokens(length, index) for index, length in enumerate((1, 23, 9))}
    outputs = run(new_batches(run).step(prompts))
    names = {f"hidden.{layer}" for layer in range(case.layers)}
    assert set(outputs) - names in ({"logits"}, {"pooled"})
    states = [case.hidden_states(prompt) for prompt in prompts.values()]
    _compare(case, outputs, [np.concatenate(parts) for parts in zip(*states, strict=True)])


@pytest.mark.parametrize("case", DECODERS, indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_and_decode(case: Case, kind: str) -> None:
    run = make_executor(kind, case.source, hidden_states=tuple(range(case.layers)))
    batches, text = new_batches(run), case.tokens(30, 5)
    steps = [run(batches.step({0: chunk})) for chunk in (text[:17], text[17:29], text[29:])]
    joined = {name: np.concatenate([step[name] for step in steps]) for name in steps[0]}
    _compare(case, joined, case.hidden_states(text))


@pytest.mark.parametrize("case", ["qwen3_moe"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_chosen_experts(case: Case, kind: str) -> None:
    run = make_executor(kind, case.source, experts=(1, 3))
    prompt = case.tokens(23, 1)
    outputs = run(new_batches(run).step({0: prompt}))
    reference = case.reference(torch.tensor([prompt]), output_router_logits=True)
    choices = case.reference.config.num_experts_per_tok
    for layer, logits in zip((1, 3), reference.router_logits, strict=True):
        expected = torch.topk(logits, choices, dim=-1).indices.numpy()
        chosen = outputs[f"experts.{layer}"].astype(int)
        assert (np.sort(chosen) == np.sort(expected)).all()


def _greedy(path: Path, hidden_states: tuple[int, ...], prompt: list[int]) -> list[int]:
    options = {"model": str(path), "max_model_len": 64, "kv_cache_memory_bytes": "1MiB"}
    config = build_config(EngineConfig, {**options, "pack_cache": False})
    built = build(
        ModelSource.open(path), BuildOptions(max_model_len=64, hidden_states=hidden_states)
    )
    core = EngineCore.create(built, config, "float32")
    try:
        sampling = _native.SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
        core.bindings.engine.submit(1, np.array(prompt, np.int32), sampling)
        tokens: list[int] = []
        while True:
            for output in core.bindings.engine.wait(30):
                tokens += output.new_token_ids
                if output.finish_reason is not None:
                    assert output.finish_reason == "length", output.error_message
                    return tokens
    finally:
        core.bindings.engine.shutdown()


def test_an_engine_runs_a_program_that_returns_hidden_states(tmp_path: Path) -> None:
    make("llama", tmp_path)
    prompt = np.random.default_rng(3).integers(0, 257, 20).tolist()
    tokens = _greedy(tmp_path, (0, 2), prompt)
    assert len(tokens) == 12 and tokens == _greedy(tmp_path, (), prompt)


@torch.no_grad()
def _chosen(reference: PreTrainedModel, token_ids: list[int]) -> Array:
    """The experts of each token in ascending order, [tokens, layers, choices]."""
    outputs = reference(torch.tensor([token_ids]), output_router_logits=True)
    choices = reference.config.num_experts_per_tok
    layers = [torch.topk(logits, choices, dim=-1).indices for logits in outputs.router_logits]
    return np.sort(torch.stack(layers, dim=1).numpy())


@pytest.mark.parametrize("speculation", [{}, {"method": "ngram", "num_speculative_tokens": 3}])
def test_an_engine_returns_the_experts_of_a_request(
    tmp_path: Path, speculation: dict[str, Any]
) -> None:
    reference = make("qwen3_moe", tmp_path)
    prompt = np.random.default_rng(3).integers(0, 257, 20).tolist()
    greedy = SamplingParams(
        temperature=0.0, max_tokens=12, ignore_eos=True, return_routed_experts=True
    )
    options = {"max_model_len": 64, "max_num_batched_tokens": 16, "pack_cache": False}
    with LLM(
        str(tmp_path),
        skip_tokenizer_init=True,
        enable_return_routed_experts=True,
        speculative_config=speculation,
        **options,
    ) as llm:
        for _ in range(2):  # a prefix that is cached is computed again
            (choice,) = llm.generate(prompt, greedy)[0].choices
            assert choice.routed_experts is not None
            expected = _chosen(reference, prompt + choice.token_ids[:-1])
            assert (np.sort(choice.routed_experts) == expected).all()
        assert llm.generate(prompt, max_tokens=2)[0].choices[0].routed_experts is None
        with pytest.raises(EngineError, match="stop_token_ids"):
            llm.generate(prompt, return_routed_experts=True, stop=("x",))
    llm = LLM(str(tmp_path), skip_tokenizer_init=True, **options)
    with llm, pytest.raises(EngineError, match="--enable-return-routed-experts"):
        llm.generate(prompt, greedy)


def test_experts_that_cannot_be_returned_are_refused(tmp_path: Path) -> None:
    make("qwen3_moe", tmp_path / "moe")
    make("llama", tmp_path / "dense")
    options = {"max_model_len": 64, "enable_return_routed_experts": True}
    for model, more, reason in (
        ("dense", {}, "the model has no experts"),
        ("moe", {"executor": "torch"}, "needs --executor native"),
        ("moe", {"pipeline_parallel_size": 2}, "--pipeline-parallel-size 1"),
        ("moe", {"enable_expert_parallel": True}, "--enable-expert-parallel"),
    ):
        with pytest.raises((ConfigError, ModelConfigError), match=reason):
            load(build_config(EngineConfig, {"model": str(tmp_path / model), **options, **more}))
