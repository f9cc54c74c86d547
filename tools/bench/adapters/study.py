"""What adapters cost: the time of a batch without, with one, and with eight of them, in turns.

    PYTHONPATH=python:. taskset -c 0,1 python3.11 -m tools.bench.adapters.study MODEL --rank=8

Loads: `stream` is one request, `batch` 32 of them that decode together, `prompts` 8 prompts of 512
tokens. The adapters are random bf16 matrices for all linear layers of the model's layers. Prints
medians over the rounds, and how much longer each takes than without adapters.
"""

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from absl import app, flags
from pagemill import _native
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.adapters import Adapters
from pagemill.engine.core import EngineCore
from pagemill.engine.executor_sizes import weights_dtype
from pagemill.engine.loading import build_ranks
from pagemill.ops.program_text import from_text
from pagemill.runner.build import BuiltModel
from pagemill.weights.source import ModelSource
from safetensors.numpy import save_file

_RANK = flags.DEFINE_integer("rank", 8, "Rank of the adapters.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Rounds, of which medians are taken.", lower_bound=1)
_LOADS = flags.DEFINE_list("loads", ["stream", "batch", "prompts"], "Loads to measure.")

_ADAPTERS = 8
_KINDS = {"none": 0, "one": 1, "eight": _ADAPTERS}
_WAIT_S = 60.0
_VOCABULARY = 40_000


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that are submitted together."""

    requests: int
    prompt_tokens: int
    tokens: int


_ALL_LOADS = {"stream": Load(1, 16, 128), "batch": Load(32, 32, 32), "prompts": Load(8, 512, 1)}


def write_adapter(folder: Path, built: BuiltModel, rank: int, seed: int) -> None:
    """A random adapter of the model's linear layers, without head and embedding."""
    random = np.random.default_rng(seed)
    shapes = {entry.name: entry.shape for entry in from_text(built.program_text).adapters}
    tensors: dict[str, np.ndarray] = {}
    for target in built.adapter_targets:
        if target.embedding or target.experts or target.rows or ".layers." not in target.module:
            continue
        out, size = shapes[target.name]
        for letter, shape in (("A", (rank, size)), ("B", (out, rank))):
            matrix = (0.01 * random.standard_normal(shape)).astype(ml_dtypes.bfloat16)
            tensors[f"base_model.model.{target.module}.lora_{letter}.weight"] = matrix
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))


class Bench:
    """An engine with eight adapters."""

    def __init__(self, path: str, rank: int, folder: Path) -> None:
        options = {
            "model": path,
            "enable_lora": True,
            "max_num_seqs": 64,
            "max_model_len": 2048,
            "enable_prefix_caching": False,
            "kv_cache_memory_bytes": "1GiB",
        }
        config = build_config(EngineConfig, options)
        source = ModelSource.open(path)
        (built,) = build_ranks(source, config)
        self.core = EngineCore.create(built, config, weights_dtype(source.config), source=source)
        adapters = self.core.bindings.adapters
        assert isinstance(adapters, Adapters)
        self._ids: list[int] = []
        for i in range(_ADAPTERS):
            write_adapter(folder / str(i), built, rank, i)
            adapters.load_adapter(str(i), str(folder / str(i)))
            self._ids.append(adapters.id_of(str(i)))
        self._random = np.random.default_rng(0)
        self._requests = itertools.count(1)

    def seconds(self, load: Load, num_adapters: int) -> float:
        """The time of a load whose requests take `num_adapters` adapters in turn."""
        engine = self.core.engine
        sampling = _native.SamplingParams(temperature=0.0, max_tokens=load.tokens, ignore_eos=True)
        engine.pause("keep")
        live: set[int] = set()
        for i in range(load.requests):
            number = next(self._requests)
            live.add(number)
            ids = self._random.integers(0, _VOCABULARY, load.prompt_tokens).astype(np.int32)
            adapter = self._ids[i % num_adapters] if num_adapters else 0
            engine.submit(number, ids, sampling, adapter=adapter)
        start = time.perf_counter()
        engine.resume()
        while live:
            for output in engine.wait(_WAIT_S):
                if output.finish_reason is not None:
                    live.discard(output.request_id)
        return time.perf_counter() - start


def main(argv: Sequence[str]) -> None:
    if len(argv) != 2:
        raise app.UsageError("the model is missing")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(argv[1], _RANK.value, Path(folder))
        for name in _LOADS.value:
            load = _ALL_LOADS[name]
            kinds = {kind: n for kind, n in _KINDS.items() if n <= load.requests}
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            for number in kinds.values():
                bench.seconds(load, number)
            for _ in range(_ROUNDS.value):
                for kind, number in kinds.items():
                    times[kind].append(bench.seconds(load, number))
            medians = {kind: statistics.median(values) for kind, values in times.items()}
            cells = [f"{name}: {medians['none']:.3f} s"]
            cells += [f"{k} +{100 * (medians[k] / medians['none'] - 1):.1f} %" for k in times][1:]
            print(", ".join(cells), flush=True)
        bench.core.engine.shutdown()


if __name__ == "__main__":
    app.run(main)
