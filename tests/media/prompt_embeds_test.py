"""Prompts as embeddings through the engine: rows of the table give the tokens of their ids,
regardless of chunks, caching, preemption and what else runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.encoder import MediaSizes
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.engine.llm import LLM
from pagemill.engine.offline_beams import BeamSearchParams
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prompt_embeds import ROWS_PER_ITEM
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.media.media_model import MediaTestModel, encoded, text
from tests.parity.tiny_models import make

Rows = dict[str, np.ndarray]


class EmbedsModel(MediaTestModel):
    """A model of text, and its table of embeddings."""

    def __init__(self, family: str, path: Path, seed: int = 0) -> None:
        reference = make(family, path, seed=seed)

        def logits(ids: list[int], images: object) -> torch.Tensor:
            del images
            with torch.inference_mode():
                return reference(torch.tensor([ids]), use_cache=False).logits[0]

        super().__init__(path, logits)
        self._table = reference.get_input_embeddings()

    def rows(self, ids: list[int]) -> Rows:
        """The prompt of these tokens' embeddings."""
        with torch.inference_mode():
            return {"prompt_embeds": self._table(torch.tensor(ids)).numpy()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> EmbedsModel:
    return EmbedsModel("llama", tmp_path_factory.mktemp("llama"))


def tokens(model: EmbedsModel, llm: LLM, prompts: Sequence[list[int] | Rows]) -> list[list[int]]:
    outputs = model.generate(llm, prompts, [[]] * len(prompts))
    return [output.choices[0].token_ids for output in outputs]


@pytest.mark.parametrize("executor", ["native", "torch"])
@pytest.mark.parametrize("step", [7, 24, 200])
def test_tokens_are_those_of_ids(model: EmbedsModel, executor: str, step: int) -> None:
    """Beside prompts of ids, in chunks that end within items, and smaller than one."""
    ids = [text(1, 5), text(2, 40), text(3, 100), text(4, 33)]
    options = {"executor": executor, "max_num_batched_tokens": step, "enable_prompt_embeds": True}
    with model.llm(**options) as llm:
        outputs = model.generate(llm, ids, [[]] * 4)
        for output in outputs:
            model.check(output, [])
        expected = [output.choices[0].token_ids for output in outputs]
        assert tokens(model, llm, [model.rows(each) for each in ids]) == expected
        mixed = [ids[0], model.rows(ids[1]), ids[2], model.rows(ids[3])]
        assert tokens(model, llm, mixed) == expected
        assert encoded(llm) > 0


@pytest.mark.parametrize("family", ["gemma3", "granite_hybrid", "mamba2"])
def test_families(family: str, tmp_path: Path) -> None:
    """Windows, states, and embeddings that are multiplied by the table or by the model."""
    model = EmbedsModel(family, tmp_path)
    ids = [token % 100 for token in text(1, 60)]
    with model.llm(enable_prompt_embeds=True, max_num_batched_tokens=24) as llm:
        (output,) = model.generate(llm, [model.rows(ids)], [[]])
        output.prompt_token_ids = ids
        model.check(output, [])


def test_prefixes_are_found_by_their_rows(model: EmbedsModel) -> None:
    ids = text(1, 64)
    other = ids[:40] + text(2, 24)
    with model.llm(enable_prompt_embeds=True) as llm:
        first, again, part = (
            model.generate(llm, [model.rows(each)], [[]])[0] for each in (ids, ids, other)
        )
        assert (first.num_cached_tokens, again.num_cached_tokens) == (0, 48)
        assert again.choices[0].token_ids == first.choices[0].token_ids
        assert part.num_cached_tokens == 40 // ROWS_PER_ITEM * ROWS_PER_ITEM
        placeholders, known = ([0] * 64, other)
        for prompt in (placeholders, known):
            (output,) = model.generate(llm, [prompt], [[]])
            assert output.num_cached_tokens == 0
            model.check(output, [])
        assert part.choices[0].token_ids == output.choices[0].token_ids


def test_rows_may_lie_in_any_order(model: EmbedsModel) -> None:
    ids = text(1, 20)
    rows = model.rows(ids)["prompt_embeds"]
    columns = np.asfortranarray(rows)
    with model.llm(enable_prompt_embeds=True) as llm:
        one, other = tokens(model, llm, [{"prompt_embeds": each} for each in (rows, columns)])
        assert one == other


def test_requests_that_are_preempted(model: EmbedsModel) -> None:
    ids = [text(seed, 79) for seed in range(4)]
    page = 2 * 2 * 16 * 16 * 4 * 3  # bytes: keys and values of three layers
    options = {"max_model_len": 90, "kv_cache_memory_bytes": f"{page * 11}B", "max_step_ms": 0}
    with model.llm(enable_prompt_embeds=True, **options) as llm:
        outputs = model.generate_together(llm, [model.rows(each) for each in ids], [[]] * 4)
        for output, own in zip(outputs, ids, strict=True):
            output.prompt_token_ids = own
            model.check(output, [])
        assert llm._engine.stats().num_preemptions > 0


def test_beams(model: EmbedsModel) -> None:
    ids, params = text(1, 20), BeamSearchParams(beam_width=2, max_tokens=4)
    with model.llm(enable_prompt_embeds=True) as llm:
        by_ids, by_rows = llm.beam_search([ids, model.rows(ids)], params)
        assert [c.token_ids for c in by_ids.choices] == [c.token_ids for c in by_rows.choices]


def test_other_weights(model: EmbedsModel, tmp_path: Path) -> None:
    other, ids = EmbedsModel("llama", tmp_path, seed=1), text(1, 40)
    with model.llm(enable_prompt_embeds=True) as llm:
        before = tokens(model, llm, [model.rows(ids)])
        llm.update_weights(other.path)
        (output,) = other.generate(llm, [other.rows(ids)], [[]])
        output.prompt_token_ids = ids
        other.check(output, [])
        assert [output.choices[0].token_ids] != before


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ({"prompt_embeds": np.zeros((3, 5), np.float32)}, r"this model takes \[tokens, \d+\]"),
        ({"prompt_embeds": np.zeros((0, 96), np.float32)}, "prompt_embeds "),
        ({"prompt_embeds": "abc"}, "prompt_embeds could not convert"),
        ({"prompt_embeds": torch.zeros(3, 96, requires_grad=True)}, "requires grad"),
        ({"embeds": np.zeros((3, 96), np.float32)}, "a prompt is a text, token ids, or"),
    ],
)
def test_prompts_that_do_not_fit(model: EmbedsModel, prompt: Rows, words: str) -> None:
    with (
        model.llm(enable_prompt_embeds=True) as llm,
        pytest.raises(EngineError, match=words),
    ):
        llm.generate(prompt)


def test_models_without_the_option(model: EmbedsModel) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match="enable_prompt_embeds=True"):
        llm.generate(model.rows(text(1, 3)))


def test_models_that_take_images_or_pool(tmp_path: Path) -> None:
    for family, words in (("llava", "needs --language-model-only"), ("bert", "not generate")):
        make(family, tmp_path / family)
        source = ModelSource.open(tmp_path / family)
        with pytest.raises(ModelConfigError, match=words):
            build(source, BuildOptions(prompt_embeds=True))
    source = ModelSource.open(tmp_path / "llava")
    built = build(source, BuildOptions(prompt_embeds=True, language_only=True))
    assert built.embeds_width and not built.takes_media


def test_an_item_may_be_larger_than_a_step(model: EmbedsModel) -> None:
    built = build(ModelSource.open(model.path), BuildOptions(prompt_embeds=True))
    config = build_config(EngineConfig, {"max_num_batched_tokens": 4, "max_num_seqs": 4})
    sizes = MediaSizes.of(built, ExecutorSizes.of(built, config, "f32", None), config)
    assert sizes.max_item_tokens == ROWS_PER_ITEM
