"""The reference of a large checkpoint, by the torch executor on this machine's GPU.

    python -m tools.gpu.large_reference FOLDER TORCH_DEVICE TOKENS

In f32, and in bf16 to know what rounding costs; the engine's bf16 is then compared with f32.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource

from tools.gpu.records import say
from tools.gpu.reference import Reference, difference
from tools.gpu.started import Answer

_BLOCK = 16


def _logprobs(built: BuiltModel, prompt: list[int], device: str, dtype: str) -> list[float]:
    """Of the prompt's tokens, from the second on."""
    blocks = len(prompt) // _BLOCK + 2
    options = TorchOptions(device, dtype, dtype, num_blocks=blocks, block_size=_BLOCK)
    executor = TorchExecutor(built.program_text, options)
    batch = SimpleBatch(blocks, executor.table_block_sizes)
    logits = torch.from_numpy(executor(batch.step({0: prompt}, all_logits=True))["logits"])
    of_tokens = logits[:-1].double().log_softmax(-1)
    return of_tokens[torch.arange(len(prompt) - 1), torch.tensor(prompt[1:])].tolist()


def make(folder: Path, device: str, tokens: int) -> Reference:
    """The reference of the checkpoint in `folder` for one prompt of `tokens`."""
    torch.backends.cuda.matmul.allow_tf32 = False
    built = build(ModelSource.open(folder), BuildOptions())
    prompt = np.random.default_rng(1).integers(0, built.vocab_size, tokens).tolist()
    exact = _logprobs(built, prompt, device, "f32")
    rounded = Answer(logprobs=_logprobs(built, prompt, device, "bf16"))
    found = Reference("torch executor", [prompt], [[]], [exact], [[]])
    return replace(found, bf16_error=difference([rounded], found, "bf16").error)


def main(arguments: list[str]) -> int:
    """Make it; the exit status."""
    folder = Path(arguments[0])
    reference = make(folder, arguments[1], int(arguments[2]))
    if math.isnan(reference.bf16_error):
        print("torch's own logits are not finite")
        return 1
    reference.save(folder)
    say(what="reference", bf16_error=reference.bf16_error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
