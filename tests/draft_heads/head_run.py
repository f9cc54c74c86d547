"""Runs programs of heads and of their targets, as traced by torch or natively."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pagemill import _native
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.runner.draft_head import build_head, head_states
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource

KINDS = ("torch", "native")
# As for logits in tests/families/families_test.py: the sums are the same.
TOLERANCE = 1e-4
MODEL_LEN = 128
BLOCKS = 64
_BLOCK_SIZE, _TOKENS = 16, 256

Array = npt.NDArray[np.float32]


def target_program(target: Path, method: str, head: Path | None, *, rewrite: bool) -> str:
    """That of the model, with the states that the head reads."""
    states = head_states(method, None if head is None else str(head))
    options = BuildOptions(rewrite=rewrite, draft_states=states)
    return build(ModelSource.open(target), options).program_text


def head_of(
    target: Path,
    method: str,
    head: Path | None,
    *,
    parallel: bool = False,
    num_drafts: int = 1,
    rewrite: bool = True,
) -> BuiltModel:
    path = None if head is None else str(head)
    source = ModelSource.open(target)
    built = build(source, BuildOptions(max_model_len=MODEL_LEN))
    return build_head(
        method, path, source, built, parallel=parallel, num_drafts=num_drafts, rewrite=rewrite
    )


def executor(kind: str, text: str) -> Any:
    if kind == "torch":
        return TorchExecutor(text, TorchOptions(num_blocks=BLOCKS, block_size=_BLOCK_SIZE))
    return _native.NativeExecutor(
        text,
        _native.ExecutorOptions(
            num_threads=2,
            max_num_tokens=_TOKENS,
            max_num_seqs=8,
            max_num_logits_rows=_TOKENS,
            num_blocks=BLOCKS,
            block_size=_BLOCK_SIZE,
            kv_cache_dtype="f32",
            activation_dtype="f32",
        ),
    )


def run(
    kind: str,
    text: str,
    prompts: Sequence[Sequence[int]],
    states: Sequence[Array] | None = None,
) -> dict[str, list[Array]]:
    """The rows of each prompt, by the name of the output. The first tokens of all prompts are one
    step, then some of each, then the last of each."""
    call = executor(kind, text)
    batches = SimpleBatch(BLOCKS, call.table_block_sizes)
    found: dict[str, list[list[Array]]] = {}
    for step in range(3):
        spans = {i: _spans(len(prompt))[step] for i, prompt in enumerate(prompts)}
        tokens = {i: list(prompts[i][span]) for i, span in spans.items() if prompts[i][span]}
        batch = batches.step(tokens, all_logits=True)
        if states is not None:
            rows = [states[i][spans[i]] for i in tokens]
            batch["inputs"] = {"draft_states": np.concatenate(rows)}
        outputs, at = call(batch), 0
        for i, part in tokens.items():
            for name, rows_of_all in outputs.items():
                parts = found.setdefault(name, [[] for _ in prompts])
                parts[i].append(np.array(rows_of_all[at : at + len(part)]))
            at += len(part)
    return {name: [np.concatenate(p) for p in parts] for name, parts in found.items()}


def _spans(length: int) -> tuple[slice, slice, slice]:
    """The tokens of a prompt in each step; there may be none."""
    first = 2 * length // 3
    return slice(0, first), slice(first, length - 1), slice(max(first, length - 1), length)


def states_before(states: Array) -> Array:
    """Those of the token before each, zeros for the first: what the runner gives a head."""
    return np.concatenate([np.zeros_like(states[:1]), states[:-1]])


def error(actual: Array, expected: Array) -> float:
    """The largest difference, relative to the largest value above 1."""
    assert actual.shape == expected.shape and np.isfinite(actual).all()
    return float(np.abs(actual - expected).max()) / max(1.0, float(np.abs(expected).max()))


def prompts_for(vocab_size: int) -> list[list[int]]:
    rng = np.random.default_rng(4)
    return [rng.integers(0, vocab_size, length).tolist() for length in (37, 2, 19)]
