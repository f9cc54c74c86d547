"""Each family reads embeddings in place of token ids as `transformers` reads `inputs_embeds`, or
says that it does not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource

from tests.families.families import FAMILIES, make

TOLERANCE = 1e-4  # as in families_test.py
BLOCKS, BLOCK_SIZE = 64, 16
# Their layers read token ids, too.
REFUSED = {"deepseek_v4", "gemma3n", "gemma3n_nested", "gemma4", "gemma4_nested"}
# The key of the number that these multiply embeddings by, which those of requests have been
# multiplied by before.
MULTIPLIED: Mapping[str, str] = {
    "falcon_h1": "embedding_multiplier",
    "falcon_h1_norm": "embedding_multiplier",
    "grok1": "embedding_multiplier_scale",
    "grok2": "embedding_multiplier_scale",
    "minicpm": "scale_emb",
    "teleflm": "input_mult",
}


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - REFUSED))
def test_logits(name: str, tmp_path: Path) -> None:
    reference = make(name, tmp_path)
    source = ModelSource.open(tmp_path)
    built = build(source, BuildOptions(prompt_embeds=True, rewrite=False))
    ids = np.random.default_rng(1).integers(3, 257, 21).tolist()
    with torch.no_grad():
        rows = reference.get_input_embeddings()(torch.tensor([ids]))[0].numpy()
        expected = reference(torch.tensor([ids])).logits[0].numpy()
    if name in MULTIPLIED:
        rows = rows * source.config[MULTIPLIED[name]]

    options = TorchOptions(dtype="f32", num_blocks=BLOCKS, block_size=BLOCK_SIZE)
    run = TorchExecutor(built.program_text, options)
    # The first tokens are ids, the others embeddings.
    tokens = np.arange(5, len(ids), dtype=np.int32)
    batches = SimpleBatch(BLOCKS, run.table_block_sizes)
    batch = batches.step({0: ids[:5] + [0] * len(tokens)}, all_logits=True)
    logits = run(batch | {"media_rows": tokens, "inputs": {"embeddings": rows[5:]}})["logits"]
    scale = max(1.0, float(np.abs(expected).max()))
    assert float(np.abs(logits - expected).max()) <= TOLERANCE * scale


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_families_that_need_token_ids(name: str, tmp_path: Path) -> None:
    make(name, tmp_path)
    with pytest.raises(ModelConfigError, match="--enable-prompt-embeds: .* needs the token ids"):
        build(ModelSource.open(tmp_path), BuildOptions(prompt_embeds=True))
