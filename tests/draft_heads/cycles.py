"""Models whose next token is the last one plus 1, in a cycle, for drafters that are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from tests.families.families import make
from tests.parity.small_engine import DRAFTED_TOKENS, tokens_of

CYCLE = 40  # tokens of the models whose next token is the last one plus 1
OPTIONS: Mapping[str, Any] = {
    "temperatures": (0.0,),
    "max_num_batched_tokens": 32,
    "kv_cache_dtype": "f32",
    "activation_dtype": "f32",
}


def drafts_of(method: str, head: Path | None, tokens: int) -> dict[str, Any]:
    config = {"method": method, "num_speculative_tokens": tokens}
    return config if head is None else {**config, "model": str(head)}


def make_llama(path: Path, *, seed: int = 0, **changes: Any) -> LlamaConfig:
    changes = {"num_hidden_layers": 7, "tie_word_embeddings": False, **changes}
    return make("llama", path, seed=seed, changes=changes).config


def next_in_cycle(tensors: dict[str, torch.Tensor], steps: int = 1) -> torch.Tensor:
    """A head of the vocabulary for states that are embeddings: the token `steps` after, in the
    cycle that all tokens are in."""
    embed = tensors["model.embed_tokens.weight"]
    return torch.stack([embed[(token - steps) % CYCLE] for token in range(len(embed))])


def count_up(tensors: dict[str, torch.Tensor]) -> None:
    """The model's next token is the last one plus 1: no layer adds anything to embeddings, which
    are orthogonal."""
    for name in tensors:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name].zero_()
        elif name.endswith("norm.weight"):
            tensors[name].fill_(1)
    tensors["model.embed_tokens.weight"].copy_(
        torch.eye(*tensors["model.embed_tokens.weight"].shape)
    )
    tensors["lm_head.weight"].copy_(next_in_cycle(tensors))


def rewrite(path: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file({k: v.contiguous() for k, v in tensors.items()}, path / "model.safetensors")


PROMPTS = [[3, 4, 5, 6], [17, 18], [38, 39, 0, 1, 2], [*range(CYCLE), *range(20)]]


def check_all_accepted(
    target: Path, drafts: dict[str, Any], prompts: Sequence[list[int]] = PROMPTS
) -> None:
    """The tokens after `prompts`, which count, do so, and no draft is wrong."""
    options = {**OPTIONS, "kv_cache_memory_bytes": "8MiB"}  # no request is preempted
    tokens, stats = tokens_of(target, prompts=prompts, speculative_config=drafts, **options)
    assert tokens == [
        [(prompt[-1] + 1 + i) % CYCLE for i in range(DRAFTED_TOKENS)] for prompt in prompts
    ]
    assert stats.draft_tokens > 0
    # A request that ends by length drops the tokens accepted after that.
    assert stats.accepted_draft_tokens == stats.draft_tokens
