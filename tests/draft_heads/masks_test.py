"""Drafters that give all drafts in one pass, from masks (DFlash, P-EAGLE), equal what their papers'
networks compute, in torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.weights.errors import WeightsError
from safetensors.torch import load_file, save_file

from tests.draft_heads.dflash_checkpoints import LAYER_IDS, MASK, WINDOW, Drafter, make_dflash
from tests.draft_heads.eagle_checkpoints import make_eagle3
from tests.draft_heads.head_run import (
    BLOCKS,
    KINDS,
    TOLERANCE,
    error,
    executor,
    head_of,
    run,
    states_before,
    target_program,
)
from tests.draft_heads.targets import Target

Array = npt.NDArray[np.float32]


class Passes:
    """Passes of a drafter's program, as the runner makes them."""

    def __init__(self, kind: str, text: str, *, block: bool) -> None:
        self._call = executor(kind, text)
        self._batches = SimpleBatch(BLOCKS, self._call.table_block_sizes)
        self._block = block

    def run(
        self,
        tokens: Mapping[int, Sequence[int]],
        states: Mapping[int, Array],
        masks: Mapping[int, int],
        at: Mapping[int, int],
    ) -> dict[int, Array]:
        """The logits of each request's `tokens` from the position `at` on, of which the last
        `masks` are masks. A request with masks has a block, which the last known token belongs to,
        if the program has blocks; `states` are those of the other tokens, otherwise of all but
        masks."""
        marked, queries, ends, rows = list[int](), list[int](), list[int](), list[Array]()
        first = 0
        for request, new in tokens.items():
            self._batches.rewind(request, at[request])
            count = masks.get(request, 0)
            in_block = count + 1 if self._block and count else count
            border, end = first + len(new) - in_block, first + len(new)
            if self._block:
                marked += range(first, border)
                queries += range(border, end)
                ends += [0] * (border - first) + [at[request] + len(new)] * in_block
                rows.append(states[request])
            else:
                marked += range(border, end)
                rows += [states[request], np.zeros((count, states[request].shape[1]), np.float32)]
            first = end
        batch = self._batches.step({r: list(new) for r, new in tokens.items()}, all_logits=True)
        batch["media_rows"] = np.array(marked, np.int32)
        if self._block:
            batch["text_rows"] = np.array(queries, np.int32)
            batch["item_ends"] = np.array(ends, np.int32)
        batch["inputs"] = {"draft_states": np.concatenate(rows)}
        logits, of, first = self._call(batch)["logits"], dict[int, Array](), 0
        for request, new in tokens.items():
            of[request] = np.array(logits[first : first + len(new)])
            first += len(new)
        return of


def _dflash_passes(target: Target, drafter: Drafter, kind: str) -> None:
    """Prompts in two passes, the second with blocks of different sizes; then two drafts of each
    request are accepted, of which the pass behind reads the states."""
    built = head_of(target.path, "dflash", drafter.path, num_drafts=7, rewrite=kind == "native")
    assert built.draft_masks is not None
    assert built.draft_masks.token_id == MASK and built.draft_masks.block
    passes = Passes(kind, built.program_text, block=True)
    rng = np.random.default_rng(2)
    texts = [[*prompt, *rng.integers(0, 250, 3).tolist()] for prompt in target.prompts]
    joined = [drafter.joined([target.states(t)[i + 1] for i in LAYER_IDS]) for t in texts]

    def compare(known: Mapping[int, int], begun: Mapping[int, int], masks: Sequence[int]) -> None:
        tokens = {i: texts[i][begun[i] : known[i]] + [MASK] * masks[i] for i in known}
        states = {i: joined[i][begun[i] : known[i] - 1] for i in known}
        logits = passes.run(tokens, states, dict(enumerate(masks)), begun)
        for i, end in known.items():
            block = [texts[i][end - 1], *[MASK] * masks[i]]
            rows = drafter.block(joined[i][: end - 1], block, target.embeddings)
            with torch.no_grad():
                expected = target.reference.lm_head(rows[1:]).numpy()
            assert error(logits[i][-masks[i] :], expected) <= TOLERANCE

    ends = {i: len(text) - 3 for i, text in enumerate(texts)}
    begun = {i: end // 2 for i, end in ends.items()}
    first = {i: texts[i][: begun[i]] for i in ends}
    passes.run(first, {i: joined[i][: begun[i]] for i in ends}, {}, dict.fromkeys(ends, 0))
    compare(ends, begun, [4, 7, 1])
    compare({i: end + 3 for i, end in ends.items()}, {i: e - 1 for i, e in ends.items()}, [2, 5, 3])


@pytest.mark.parametrize(
    ("windows", "causal"),
    [((0, 0), None), ((WINDOW, 0), None), ((0,), True)],
    ids=["both_ways", "windows", "causal"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_dflash(kind: str, windows: tuple[int, ...], causal: bool | None, tmp_path: Path) -> None:
    target = Target(tmp_path)
    drafter = make_dflash(tmp_path / "head", target.config, windows=windows, causal=causal)
    _dflash_passes(target, drafter, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_states_that_dflash_reads(kind: str, tmp_path: Path) -> None:
    target = Target(tmp_path)
    drafter = make_dflash(tmp_path / "head", target.config)
    text = target_program(target.path, "dflash", drafter.path, rewrite=kind == "native")
    outputs = run(kind, text, target.prompts)
    for prompt, actual in zip(target.prompts, outputs["draft_states"], strict=True):
        expected = drafter.joined([target.states(prompt)[layer + 1] for layer in LAYER_IDS])
        assert error(actual, expected) <= TOLERANCE


def test_embeddings_of_dflash_are_those_of_the_table(tmp_path: Path) -> None:
    """What the model multiplies them by is none of the drafter's."""
    target = Target(tmp_path, "granite")
    assert target.config.embedding_multiplier != 1
    drafter = make_dflash(tmp_path / "head", target.config, input_embedding_scale=1.0)
    built = head_of(target.path, "dflash", drafter.path)
    states = np.random.default_rng(1).normal(size=(5, target.config.hidden_size))
    states = states.astype(np.float32)
    passes = Passes("native", built.program_text, block=True)
    logits = passes.run({0: [1, 2, 3, 4, 5, 6, MASK]}, {0: states}, {0: 1}, {0: 0})[0][-1]
    rows = drafter.block(states, [6, MASK], target.embeddings)
    with torch.no_grad():
        expected = target.reference.lm_head(rows[1]) / target.config.logits_scaling
    assert error(logits, expected.numpy()) <= TOLERANCE


@pytest.mark.parametrize("norms", [None, {"input_norm": 3}], ids=["plain", "normalized"])
@pytest.mark.parametrize("kind", KINDS)
def test_p_eagle(kind: str, norms: dict[str, int] | None, tmp_path: Path) -> None:
    """Masks have a state of their own, whatever the runner has in their rows."""
    target = Target(tmp_path)
    head = make_eagle3(tmp_path / "head", target.config, norms=norms, mask=MASK)
    built = head_of(target.path, "eagle3", head.path, parallel=True, rewrite=kind == "native")
    assert built.draft_masks is not None
    assert built.draft_masks.token_id == MASK and not built.draft_masks.block
    passes = Passes(kind, built.program_text, block=False)
    of_mask = head.joined(list(head.tensors["mask_hidden"].reshape(3, 1, -1).numpy()))
    known, states, masks = dict[int, list[int]](), dict[int, Array](), {0: 3, 1: 1, 2: 0}
    for index, prompt in enumerate(target.prompts):
        entering = target.states(prompt)
        states[index] = states_before(head.joined([entering[layer] for layer in (2, 3, 4)]))
        known[index] = prompt
    tokens = {i: [*known[i], *[MASK] * masks[i]] for i in known}
    logits = passes.run(tokens, states, masks, dict.fromkeys(known, 0))
    for index, all_tokens in tokens.items():
        before = np.concatenate([states[index], *[of_mask] * masks[index]])
        expected, _ = head.eagle3(all_tokens, before, target.embeddings)
        assert error(logits[index], expected) <= TOLERANCE


def _change(path: Path, fields: dict[str, Any]) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **fields}))


def _of_dflash(**fields: Any) -> dict[str, Any]:
    """`dflash_config` with these fields."""
    return {"dflash_config": {"mask_token_id": MASK, "target_layer_ids": LAYER_IDS, **fields}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"architectures": ["DFlash2DraftModel"]}, "its architecture is 'DFlash2DraftModel', not"),
        ({"dflash_config": {"mask_token_id": 1}}, "target_layer_ids of dflash_config must list"),
        (_of_dflash(target_layer_ids=[]), "must list 1 to 8 layers"),
        (_of_dflash(target_layer_ids=[6]), "the model has 7 layers"),
        (_of_dflash(mask_token_id=257), "mask_token_id is 257, which is not one of 257 tokens"),
        (_of_dflash(mask_token_id=None), "has no mask_token_id"),
        (_of_dflash(use_swa=True), "use_swa = True is not supported"),
        (_of_dflash(use_aux_hidden_state=False), "use_aux_hidden_state = False"),
        ({**_of_dflash(causal=True), "is_causal": False}, "is_causal is False and causal is True"),
        ({"is_causal": 1}, "is_causal is 1 and causal is None; they must be true or false"),
        (_of_dflash(causal=[]), "is_causal is None and causal is a list"),
        ({"layer_types": ["sliding_attention"], "sliding_window": 4, "is_causal": False}, "not c"),
        ({"block_size": 1}, "has blocks of 1 token, without a place for drafts"),
        ({"block_size": 4}, "set num_speculative_tokens of --speculative-config to 3 or less"),
        ({"vocab_size": 250}, "has a vocabulary of 250 tokens, the model of 257"),
        ({"hidden_size": 64}, r"fc\.weight is f32"),
    ],
)
def test_dflash_drafters_that_do_not_fit_are_refused(
    fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    target = Target(tmp_path)
    drafter = make_dflash(tmp_path / "head", target.config)
    _change(drafter.path, fields)
    with pytest.raises((ModelConfigError, WeightsError), match=words):
        target_program(target.path, "dflash", drafter.path, rewrite=False)
        head_of(target.path, "dflash", drafter.path, num_drafts=4)


def test_other_weights_of_dflash_are_refused(tmp_path: Path) -> None:
    target = Target(tmp_path)
    drafter = make_dflash(tmp_path / "head", target.config)
    weights = drafter.path / "model.safetensors"
    more = {**load_file(weights), "lm_head.weight": torch.zeros(257, target.config.hidden_size)}
    save_file(more, weights)
    with pytest.raises(WeightsError, match=r"lm_head\.weight"):
        head_of(target.path, "dflash", drafter.path)


def test_heads_that_do_not_draft_in_parallel_are_refused(tmp_path: Path) -> None:
    target = Target(tmp_path)
    head = make_eagle3(tmp_path / "head", target.config)
    with pytest.raises(ModelConfigError, match="has no pard_token or ptd_token_id"):
        head_of(target.path, "eagle3", head.path, parallel=True)
    _change(head.path, {"ptd_token_id": MASK})
    with pytest.raises(ModelConfigError, match="has no mask_hidden"):
        head_of(target.path, "eagle3", head.path, parallel=True)
    head = make_eagle3(tmp_path / "parallel", target.config, mask=MASK)
    with pytest.raises(ModelConfigError, match='add "parallel_drafting": true'):
        head_of(target.path, "eagle3", head.path)


@pytest.mark.parametrize(
    "names", [("mask_hidden", "mask_hidden.weight"), ("mask_hidden.weight", "model.mask_hidden")]
)
def test_two_states_of_masks_are_refused(names: tuple[str, str], tmp_path: Path) -> None:
    """In the order of the file, which is that of the names, either may be renamed."""
    target = Target(tmp_path)
    head = make_eagle3(tmp_path / "head", target.config, mask=MASK)
    weights = head.path / "model.safetensors"
    tensors = load_file(weights)
    state = tensors.pop("mask_hidden")
    save_file({**tensors, **{name: state.clone() for name in names}}, weights)
    with pytest.raises(WeightsError, match=r"another tensor are both mask_hidden\.weight"):
        head_of(target.path, "eagle3", head.path, parallel=True)
