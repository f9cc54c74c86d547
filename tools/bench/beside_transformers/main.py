"""Compares models with random weights side by side with `transformers`, in one process.

    python -m tools.bench.beside_transformers.main --folder models --model qwen3-next
    python -m tools.bench.beside_transformers.main --folder models      # all of them

Prints one line for each model: of a decoder the prefill's ratio (1,024 tokens), and how much of the
limit that reading the active weights sets a single stream reaches; of `minilm` the ratio for 5,000
short texts. The engines take turns, and medians over the rounds are compared. The machine has to be
quiet. Needs torch and transformers, and 8 GB of memory for `moe`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pagemill.benchmark.machine_limits import measure_limits
from pagemill.benchmark.offline import OfflineModel
from pagemill.config import EngineConfig, build
from pagemill.engine.llm import LLM
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from tools.bench.beside_transformers.models import DECODERS, WORDS, checkpoint

_PROMPT, _DECODED = 1024, 64
_TEXTS, _BATCH = 5_000, 64


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _in_turns(rounds: int, *runs: Callable[[], object]) -> list[float]:
    """The median time of each run, which take turns after one warm-up each."""
    for run in runs:
        run()
    times = [[_seconds(run) for run in runs] for _ in range(rounds)]
    return [statistics.median(each) for each in zip(*times, strict=True)]


def compare_decoder(name: str, path: Path, threads: int, rounds: int) -> str:
    """One line of results for a model that generates."""
    config = build(EngineConfig, {"model": str(path), "threads": threads})
    limit = measure_limits(config).decode_seconds(1)
    ours = OfflineModel.load(config)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
    numbers = random.Random(1)

    def tokens(count: int) -> list[int]:  # new ones, so that no prefix is cached
        return [numbers.randrange(ours.vocab_size) for _ in range(count)]

    def prefill() -> None:
        ours.run([tokens(_PROMPT)], 1, 0.0)

    def their_prefill() -> None:
        with torch.no_grad():
            theirs(torch.tensor([tokens(_PROMPT)]), logits_to_keep=1)

    def decode() -> float:
        (output,) = ours.run([tokens(16)], _DECODED, 0.0)
        return (output.done_s - output.first_token_s) / (_DECODED - 1)

    mine, other = _in_turns(rounds, prefill, their_prefill)
    step = statistics.median(decode() for _ in range(rounds))
    ours.close()
    return (
        f"{name}: prefill {_PROMPT / mine:.0f} tok/s, {other / mine:.2f} times transformers"
        f" ({_PROMPT / other:.0f}); decode {1 / step:.1f} tok/s, {limit / step:.0%} of the read"
        " limit"
    )


def compare_minilm(path: Path, threads: int, rounds: int) -> str:
    """One line of results for embeddings of short texts."""
    numbers = random.Random(1)
    texts = [" ".join(numbers.choices(WORDS, k=numbers.randint(4, 24))) for _ in range(_TEXTS)]
    llm = LLM(str(path), threads=threads)
    tokenizer = AutoTokenizer.from_pretrained(path)
    theirs = AutoModel.from_pretrained(path, dtype=torch.float32).eval()

    def their_embeddings() -> None:
        # As sentence-transformers does: batches of texts of about one length, means of tokens.
        by_length = sorted(texts, key=len, reverse=True)
        with torch.no_grad():
            for first in range(0, _TEXTS, _BATCH):
                batch = tokenizer(
                    by_length[first : first + _BATCH], padding=True, return_tensors="pt"
                )
                mask = batch["attention_mask"][..., None]
                rows = theirs(**batch).last_hidden_state * mask
                torch.nn.functional.normalize(rows.sum(1) / mask.sum(1))

    mine, other = _in_turns(rounds, lambda: llm.embed(texts), their_embeddings)
    rates = _TEXTS / mine, _TEXTS / other
    return f"minilm: {rates[0]:.0f} texts/s, {other / mine:.2f} times torch ({rates[1]:.0f})"


def main() -> None:
    """Parses flags, compares and prints."""
    names = (*DECODERS, "minilm")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=names, help="one of them; all by default")
    parser.add_argument("--threads", type=int, default=2, help="of both engines")
    parser.add_argument("--rounds", type=int, default=5, help="of which medians are compared")
    parser.add_argument("--folder", type=Path, required=True, help="of checkpoints, which are kept")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name in [args.model] if args.model else names:
        path = checkpoint(name, args.folder)
        if name == "minilm":
            print(compare_minilm(path, args.threads, args.rounds), flush=True)
        else:
            print(compare_decoder(name, path, args.threads, args.rounds), flush=True)


if __name__ == "__main__":
    main()
