"""Through the engine: drafters that give all drafts in one pass, from masks (DFlash, PARD,
P-EAGLE). Greedy tokens are those without, for random drafters and for drafters that are always
right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.loading import load
from pagemill.engine.model_plan import plan_model
from pagemill.models.base import ModelConfigError
from pagemill.observe.snapshot import EngineSnapshot
from safetensors.torch import load_file

from tests.draft_heads.cycles import (
    CYCLE,
    OPTIONS,
    check_all_accepted,
    count_up,
    drafts_of,
    make_llama,
    next_in_cycle,
    rewrite,
)
from tests.draft_heads.dflash_checkpoints import THETA, make_dflash
from tests.draft_heads.eagle_checkpoints import make_eagle3
from tests.parity.small_engine import tokens_of

METHODS = ("dflash", "draft_model", "eagle3")
MASK = 50
DRAFTS = 5
# A query looks back as far as the last mask is behind the last known token.
DISTANCE = DRAFTS
PROMPTS = [
    [*range(3, 13)],
    [*range(17, 25)],
    [36, 37, 38, 39, 0, 1, 2, 3],
    [*range(CYCLE), *range(20)],
]


def _change(path: Path, fields: Mapping[str, Any]) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **fields}))


def _drafts(method: str, drafter: Path, tokens: int = DRAFTS) -> dict[str, Any]:
    drafts = drafts_of(method, drafter, tokens)
    return drafts if method == "dflash" else {**drafts, "parallel_drafting": True}


def _make(method: str, path: Path, target: Any) -> Path:
    """A drafter of this method of random weights."""
    if method == "dflash":
        return make_dflash(path, target, windows=(6, 0), mask=MASK).path
    if method == "eagle3":
        return make_eagle3(path, target, mask=MASK).path
    make_llama(path, seed=3, vocab_size=target.vocab_size, num_hidden_layers=2)
    _change(path, {"pard_token": MASK})
    return path


@pytest.mark.parametrize("method", METHODS)
def test_greedy_tokens_are_those_without(method: str, tmp_path: Path) -> None:
    """Prompts in chunks, with cached prefixes, of requests that preempt each other. Sampled
    requests get drafts, too."""
    target = tmp_path / "target"
    drafter = _make(method, tmp_path / "drafter", make_llama(target))
    expected, _ = tokens_of(target, **OPTIONS)
    options = {**OPTIONS, "temperatures": (0.0, 1.0)}
    tokens, stats = tokens_of(target, speculative_config=_drafts(method, drafter), **options)
    assert tokens[: len(expected)] == expected
    assert stats.draft_tokens > 0


def _look_back(
    tensors: dict[str, torch.Tensor],
    name: str,
    theta: float,
    *,
    steps: int = 0,
    scale: float = 1.0,
    sharpness: float = 12.0,
) -> None:
    """The attention `name` gives a query the token that is DISTANCE in front of it, as the row of
    an identity that is `steps` further, times `scale`; it reads normalized rows of an identity.
    The first of two KV heads has the first half of the cycle, and there are two query heads each.
    """
    hidden, dim = tensors[f"{name}.o_proj.weight"].shape[0], CYCLE // 2
    angles = DISTANCE / theta ** (torch.arange(0, dim, 2) / dim)
    query = torch.cat([angles.cos(), -angles.sin()])  # rotated back by the distance
    key = torch.cat([torch.ones(dim // 2), torch.zeros(dim // 2)])
    q, k, v, o = (tensors[f"{name}.{part}_proj.weight"].zero_() for part in "qkvo")
    q[:, :hidden] = query.repeat(4)[:, None] * sharpness / hidden**0.5
    k[:, :hidden] = key.repeat(2)[:, None] * sharpness / hidden**0.5
    for token in range(CYCLE):
        head, element = divmod(token, dim)
        v[token, token] = hidden**-0.5
        o[(token + steps) % CYCLE, 2 * head * dim + element] = scale
    for part in ("q_norm", "k_norm"):
        if f"{name}.{part}.weight" in tensors:
            tensors[f"{name}.{part}.weight"].fill_(sharpness)


def _neutralize(tensors: dict[str, torch.Tensor]) -> None:
    """No feed-forward layer adds anything, and norms have no weights."""
    for name in tensors:
        if name.endswith(("down_proj.weight", "fc.weight")):
            tensors[name].zero_()
        elif name.endswith("norm.weight"):
            tensors[name].fill_(1)


def test_dflash_that_is_right(tmp_path: Path) -> None:
    """Each mask reads another token of the context, by its state, or the last known one. A wrong
    position, state or row, and KV of masks that stays, would make drafts wrong."""
    target = tmp_path / "target"
    config = make_llama(target, vocab_size=64)
    rewrite(target, count_up)
    drafter = make_dflash(tmp_path / "drafter", config, windows=(0,), mask=MASK)

    def change(tensors: dict[str, torch.Tensor]) -> None:
        _neutralize(tensors)
        hidden = config.hidden_size
        tensors["fc.weight"][:, :hidden] = torch.eye(hidden)  # all three are the embedding
        _look_back(tensors, "layers.0.self_attn", THETA, steps=DISTANCE - 1)

    rewrite(drafter.path, change)
    check_all_accepted(target, _drafts("dflash", drafter.path), PROMPTS)


def test_pard_that_is_right(tmp_path: Path) -> None:
    target, drafter = tmp_path / "target", tmp_path / "drafter"
    make_llama(target, vocab_size=64)
    rewrite(target, count_up)
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": CYCLE // 2}
    config = make_llama(drafter, vocab_size=64, num_hidden_layers=1, **sizes)
    _change(drafter, {"pard_token": MASK})

    def change(tensors: dict[str, torch.Tensor]) -> None:
        count_up(tensors)
        theta = config.rope_parameters["rope_theta"]
        # More than the embedding of the query itself.
        _look_back(tensors, "model.layers.0.self_attn", theta, scale=10.0)
        tensors["lm_head.weight"].copy_(next_in_cycle(tensors, steps=DISTANCE + 1))

    rewrite(drafter, change)
    check_all_accepted(target, _drafts("draft_model", drafter), PROMPTS)


def test_p_eagle_that_is_right(tmp_path: Path) -> None:
    target = tmp_path / "target"
    config = make_llama(target, vocab_size=64)
    rewrite(target, count_up)
    head = make_eagle3(tmp_path / "head", config, mask=MASK)
    model = load_file(target / "model.safetensors")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        _neutralize(tensors)
        _look_back(tensors, "midlayer.self_attn", head.config.rope_parameters["rope_theta"])
        order = torch.arange(CYCLE).flip(0)
        tensors["lm_head.weight"] = next_in_cycle(model, steps=DISTANCE + 1)[order]
        tensors["d2t"] = order - torch.arange(CYCLE)

    rewrite(head.path, change)
    _change(head.path, {"draft_vocab_size": CYCLE})
    check_all_accepted(target, _drafts("eagle3", head.path), PROMPTS)


class _NotDivisibleBy:
    """Tokens that are multiples of `number` may not come."""

    def __init__(self, number: int, size: int) -> None:
        self._allowed = np.arange(size) % number != 0

    def fill_mask(self, mask: npt.NDArray[np.uint32]) -> None:
        bits = np.packbits(self._allowed, bitorder="little")
        mask.view(np.uint8)[: bits.size] = bits
        mask.view(np.uint8)[bits.size :] = 0

    def accept(self, token_id: int) -> bool:
        return bool(self._allowed[token_id])

    def rollback(self, num_tokens: int) -> None: ...

    def forced(self, most: int) -> list[int]:
        return []


def _outputs(
    target: Path, drafts: dict[str, Any], requests: Sequence[Mapping[str, Any]], memory: str
) -> tuple[list[list[int]], EngineSnapshot]:
    """Of `PROMPTS`, each with the fields of each of `requests`, which are submitted together; and
    what the engine counted."""
    options = {"max_model_len": 128, "max_num_seqs": 4, "kv_cache_memory_bytes": memory, **OPTIONS}
    options.pop("temperatures")
    config = build(EngineConfig, {"model": str(target), "speculative_config": drafts, **options})
    engine = load(config).core.bindings.engine
    tokens: list[list[int]] = []
    try:
        engine.pause("keep")  # the steps do not depend on how fast requests are submitted
        for prompt in PROMPTS:
            for fields in requests:
                engine.submit(len(tokens), np.array(prompt, np.int32), **fields)
                tokens.append([])
        engine.resume()
        unfinished = set(range(len(tokens)))
        while unfinished:
            outputs = engine.wait(60.0)
            assert outputs
            for output in outputs:
                assert output.error_message is None, output.error_message
                tokens[output.request_id] += output.new_token_ids
                if output.finish_reason is not None:
                    unfinished.discard(output.request_id)
        return tokens, engine.stats()
    finally:
        engine.shutdown()


def _sampling(**fields: Any) -> dict[str, Any]:
    return {"sampling": _native.SamplingParams(temperature=0.0, **fields)}


@pytest.mark.parametrize("method", METHODS)
def test_preempted_requests_continue_with_drafts(method: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    drafter = _make(method, tmp_path / "drafter", make_llama(target))
    requests = [_sampling(max_tokens=60, ignore_eos=True)]
    expected, _ = _outputs(target, {}, requests, "1MiB")
    tokens, stats = _outputs(target, _drafts(method, drafter), requests, "500KiB")
    assert tokens == expected
    assert stats.draft_tokens > 0 and stats.num_preemptions > 0


@pytest.mark.parametrize("method", METHODS)
def test_stops_and_token_masks(method: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    drafter = _make(method, tmp_path / "drafter", make_llama(target, vocab_size=64))
    free = _sampling(max_tokens=40, eos_token_ids=[30], stop_token_ids=[39])
    requests = [free, {**free, "new_token_matcher": lambda: _NotDivisibleBy(4, 64)}]
    expected, _ = _outputs(target, {}, requests, "1MiB")
    assert any(len(tokens) < 40 for tokens in expected)
    tokens, stats = _outputs(target, _drafts(method, drafter), requests, "1MiB")
    assert tokens == expected
    assert stats.draft_tokens > 0


def test_a_plan_counts_rows_of_logits_for_all_drafts(tmp_path: Path) -> None:
    target, drafter = tmp_path / "target", tmp_path / "drafter"
    _make("draft_model", drafter, make_llama(target))
    options = {"model": str(target), "kv_cache_dtype": "f32", "max_num_batched_tokens": 16}
    drafts = drafts_of("draft_model", drafter, 8)
    alone = plan_model(build(EngineConfig, {**options, "speculative_config": drafts}))
    parallel = {**drafts, "parallel_drafting": True}
    plan = plan_model(build(EngineConfig, {**options, "speculative_config": parallel}))
    assert plan.weights == alone.weights and plan.kv_per_token == alone.kv_per_token
    assert plan.activations > alone.activations


def test_drafters_that_do_not_draft_in_parallel_are_refused(tmp_path: Path) -> None:
    target, draft = tmp_path / "target", tmp_path / "draft"
    make_llama(target)
    make_llama(draft, num_hidden_layers=1)
    with pytest.raises(ModelConfigError, match="was not trained to draft in parallel"):
        tokens_of(target, speculative_config=_drafts("draft_model", draft), **OPTIONS)
    _change(draft, {"pard_token": 1000})
    with pytest.raises(ModelConfigError, match="pard_token is 1000, which is not one of"):
        tokens_of(target, speculative_config=_drafts("draft_model", draft), **OPTIONS)


def test_dflash_needs_the_native_executor(tmp_path: Path) -> None:
    target = tmp_path / "target"
    drafter = _make("dflash", tmp_path / "drafter", make_llama(target))
    with pytest.raises(ConfigError, match="the method dflash needs .* --executor native"):
        tokens_of(target, speculative_config=_drafts("dflash", drafter), executor="torch")
