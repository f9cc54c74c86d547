"""Through the engine: greedy tokens with drafts of a head are those without, for random heads and
for heads that are always right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.loading import load
from pagemill.engine.model_plan import plan_model
from pagemill.engine.model_weights import ModelWeights
from pagemill.models.base import ModelConfigError
from safetensors.torch import load_file
from transformers import LlamaConfig

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
from tests.draft_heads.dflash_checkpoints import make_dflash
from tests.draft_heads.eagle_checkpoints import make_eagle, make_eagle3
from tests.draft_heads.joint_checkpoints import make_medusa, make_mlp_speculator
from tests.draft_heads.mtp_checkpoints import make_mtp
from tests.draft_heads.mtp_layouts import LAYOUTS
from tests.parity.small_engine import tokens_of


@pytest.mark.parametrize("family", sorted(LAYOUTS))
def test_greedy_tokens_with_an_mtp_layer_are_those_without(family: str, tmp_path: Path) -> None:
    make_mtp(family, tmp_path)
    expected, _ = tokens_of(tmp_path, **OPTIONS)
    tokens, stats = tokens_of(tmp_path, speculative_config=drafts_of("mtp", None, 3), **OPTIONS)
    assert tokens == expected
    assert stats.draft_tokens > 0


@pytest.mark.parametrize(
    ("method", "family"),
    [("eagle", "llama"), ("eagle3", "llama"), ("eagle3", "qwen3"), ("eagle3", "deepseek_v3")],
)
def test_greedy_tokens_with_an_eagle_head_are_those_without(
    method: str, family: str, tmp_path: Path
) -> None:
    config = make_llama(tmp_path / "target")
    make_head = make_eagle if method == "eagle" else make_eagle3
    head = make_head(tmp_path / "head", config, family=family)
    expected, _ = tokens_of(tmp_path / "target", **OPTIONS)
    drafts = drafts_of(method, head.path, 3)
    tokens, stats = tokens_of(tmp_path / "target", speculative_config=drafts, **OPTIONS)
    assert tokens == expected
    assert stats.draft_tokens > 0


def _joint_heads(method: str, target: Path, config: LlamaConfig) -> Path:
    """Beside the target."""
    path = target.parent / "heads"
    if method == "mlp_speculator":
        return make_mlp_speculator(path, config).path
    projection = load_file(target / "model.safetensors")["lm_head.weight"]
    return make_medusa(path, config, layout="vllm", projection=projection).path


@pytest.mark.parametrize("method", ["medusa", "mlp_speculator"])
def test_greedy_tokens_with_heads_for_all_drafts_are_those_without(
    method: str, tmp_path: Path
) -> None:
    """Sampled requests get drafts, too."""
    target = tmp_path / "target"
    heads = _joint_heads(method, target, make_llama(target))
    expected, _ = tokens_of(target, **OPTIONS)
    drafts = drafts_of(method, heads, 3)
    options = {**OPTIONS, "temperatures": (0.0, 1.0)}
    tokens, stats = tokens_of(target, speculative_config=drafts, **options)
    assert tokens[: len(expected)] == expected
    assert stats.draft_tokens > 0


@pytest.mark.parametrize("method", ["dflash", "eagle3", "medusa"])
def test_ranks_verify_the_drafts_of_a_head(method: str, tmp_path: Path) -> None:
    config = make_llama(tmp_path / "target")
    if method == "eagle3":
        path = make_eagle3(tmp_path / "head", config).path
    elif method == "dflash":
        path = make_dflash(tmp_path / "head", config).path
    else:
        path = _joint_heads(method, tmp_path / "target", config)
    expected, _ = tokens_of(tmp_path / "target", **OPTIONS)
    drafts = drafts_of(method, path, 3)
    tokens, stats = tokens_of(
        tmp_path / "target", speculative_config=drafts, tensor_parallel_size=2, **OPTIONS
    )
    assert tokens == expected
    assert stats.draft_tokens > 0


def test_an_mtp_layer_that_is_right(tmp_path: Path) -> None:
    """It passes the embedding on, as the model does."""

    def change(tensors: dict[str, torch.Tensor]) -> None:
        count_up(tensors)
        hidden = tensors["model.norm.weight"].shape[0]
        projection = torch.zeros(hidden, 2 * hidden)
        projection[:, hidden:] = torch.eye(hidden)  # the embedding is behind the state
        tensors["model.mtp_layers.0.input_proj.weight"] = projection

    make_mtp("mimo", tmp_path, vocab_size=64)
    rewrite(tmp_path, change)
    check_all_accepted(tmp_path, drafts_of("mtp", None, 3))


def test_an_eagle_head_that_is_right(tmp_path: Path) -> None:
    target = tmp_path / "target"
    config = make_llama(target, vocab_size=64)
    rewrite(target, count_up)
    head = make_eagle(tmp_path / "head", config)

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in tensors:
            if name.endswith(("o_proj.weight", "down_proj.weight", "fc.bias", "fc.weight")):
                tensors[name].zero_()
        hidden = config.hidden_size
        tensors["fc.weight"][:, :hidden] = torch.eye(hidden)  # the embedding is in front

    rewrite(head.path, change)
    check_all_accepted(target, drafts_of("eagle", head.path, 3))


def test_an_eagle3_head_that_is_right_about_the_next_token(tmp_path: Path) -> None:
    """Its state is the embedding of the token before, which is two tokens before the draft; its own
    vocabulary is in another order. A wrong order, a state of another token or of another request
    would make drafts wrong."""
    target = tmp_path / "target"
    config = make_llama(target, vocab_size=64)
    rewrite(target, count_up)
    head = make_eagle3(tmp_path / "head", config)
    model = load_file(target / "model.safetensors")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in tensors:
            if name.endswith(("o_proj.weight", "down_proj.weight", "fc.weight")):
                tensors[name].zero_()
            elif name.endswith("norm.weight"):
                tensors[name].fill_(1)
        hidden = config.hidden_size
        tensors["fc.weight"][:, :hidden] = torch.eye(hidden)  # all three are the embedding
        order = torch.arange(CYCLE).flip(0)
        tensors["lm_head.weight"] = next_in_cycle(model, steps=2)[order]
        tensors["d2t"] = order - torch.arange(CYCLE)

    rewrite(head.path, change)
    fields = json.loads((head.path / "config.json").read_text())
    (head.path / "config.json").write_text(json.dumps({**fields, "draft_vocab_size": CYCLE}))
    # Its own next state says nothing of further tokens.
    check_all_accepted(target, drafts_of("eagle3", head.path, 1))


def test_medusa_heads_that_are_right(tmp_path: Path) -> None:
    """The state of a token is its embedding, from which each head counts further."""
    target = tmp_path / "target"
    config = make_llama(target, vocab_size=64)
    rewrite(target, count_up)
    heads = _joint_heads("medusa", target, config)
    model = load_file(target / "model.safetensors")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in tensors:
            if name.startswith("blocks."):
                tensors[name].zero_()
            else:
                tensors[name] = next_in_cycle(model, steps=2 + int(name.split(".")[1]))

    rewrite(heads, change)
    check_all_accepted(target, drafts_of("medusa", heads, 3))


def test_an_mlp_speculator_that_is_right(tmp_path: Path) -> None:
    """Its heads read nothing but the token that they follow."""
    target = tmp_path / "target"
    config = make_llama(target, vocab_size=64)
    rewrite(target, count_up)
    heads = _joint_heads("mlp_speculator", target, config)
    model = load_file(target / "model.safetensors")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in tensors:
            kind = name.split(".")[-3]
            if kind == "proj" or name.endswith(".bias"):
                tensors[name].zero_()
            elif kind == "emb":
                tensors[name] = model["model.embed_tokens.weight"].clone()
            elif kind == "head":
                tensors[name] = next_in_cycle(model)

    rewrite(heads, change)
    check_all_accepted(target, drafts_of("mlp_speculator", heads, 3))


def test_more_drafts_than_heads_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    heads = _joint_heads("medusa", target, make_llama(target))
    with pytest.raises(ModelConfigError, match="set num_speculative_tokens"):
        tokens_of(target, speculative_config=drafts_of("medusa", heads, 4))


def test_a_plan_counts_the_head(tmp_path: Path) -> None:
    """Its weights besides the model's, and KV of one more layer."""
    config = make_llama(tmp_path / "target")
    head = make_eagle(tmp_path / "head", config)
    options = {"model": str(tmp_path / "target"), "kv_cache_dtype": "f32", **OPTIONS}
    options.pop("temperatures")
    drafts = drafts_of("eagle", head.path, 3)
    alone = plan_model(build(EngineConfig, options))
    plan = plan_model(build(EngineConfig, {**options, "speculative_config": drafts}))
    own = sum(4 * tensor.numel() for tensor in head.tensors.values())
    table = 4 * 2 * config.vocab_size * config.hidden_size  # embeddings and the target's head
    assert own <= plan.weights - alone.weights <= own + 2 * table
    assert plan.kv_per_token > alone.kv_per_token


def test_a_plan_counts_medusa_heads_without_kv(tmp_path: Path) -> None:
    """Only the heads that are used."""
    target = tmp_path / "target"
    config = make_llama(target)
    heads = _joint_heads("medusa", target, config)
    options = {"model": str(target), "kv_cache_dtype": "f32", "activation_dtype": "f32"}
    alone = plan_model(build(EngineConfig, options))
    drafts = drafts_of("medusa", heads, 2)
    plan = plan_model(build(EngineConfig, {**options, "speculative_config": drafts}))
    hidden = config.hidden_size
    assert plan.weights - alone.weights == 4 * 2 * (2 * hidden + config.vocab_size) * hidden
    assert plan.kv_per_token == alone.kv_per_token


def test_a_head_needs_the_native_executor(tmp_path: Path) -> None:
    make_mtp("mimo", tmp_path)
    with pytest.raises(ConfigError, match="the method mtp needs .* --executor native"):
        tokens_of(tmp_path, speculative_config=drafts_of("mtp", None, 1), executor="torch")


def test_a_model_without_an_mtp_layer_is_refused(tmp_path: Path) -> None:
    make_llama(tmp_path)
    with pytest.raises(ModelConfigError, match="use another method"):
        tokens_of(tmp_path, speculative_config=drafts_of("mtp", None, 1))


def test_new_weights_keep_the_head(tmp_path: Path) -> None:
    """The program of new weights returns the states of the head, too."""
    old, new = tmp_path / "old", tmp_path / "new"
    config = make_llama(old)
    make_llama(new, seed=5)
    head = make_eagle3(tmp_path / "head", config)
    options = {"max_model_len": 128, "kv_cache_memory_bytes": "1MiB"}
    drafts = drafts_of("eagle3", head.path, 3)
    loaded = load(build(EngineConfig, {"model": str(old), "speculative_config": drafts, **options}))
    try:
        loaded.weights.update_weights(str(new))
        core, source = loaded.core, loaded.source
        without_head = ModelWeights(core.engine, core.built, source, source)
        with pytest.raises(_native.StatusError):
            without_head.update_weights(str(new))
    finally:
        loaded.core.bindings.engine.shutdown()
