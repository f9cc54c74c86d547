"""A model in the engine on a device, as `pagemill serve --device` has it, for checks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pagemill import _native
from pagemill.config import ConfigError, EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.core import EngineCore
from pagemill.engine.executor_sizes import weights_dtype
from pagemill.inputs.task import Task
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.weights.source import ModelSource

from tools.gpu.records import REFUSED

# Other codes are of failures: memory that is not there, kernels that fail.
_REFUSALS = ("FAILED_PRECONDITION", "INVALID_ARGUMENT", "UNIMPLEMENTED")
_WAIT_S = 120.0
"""Without news of any request, after which a step counts as stuck."""


@dataclass(slots=True)
class Answer:
    """The tokens after a prompt; `logprobs` of the prompt's tokens from the second on, then of
    the generated ones, if they were requested; `times_s` when each generated token was read."""

    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    times_s: list[float] = field(default_factory=list[float])
    finished: bool = False


@dataclass(slots=True)
class Started:
    """`built_s` and `started_s`: when the program was there, and the engine with its weights."""

    core: EngineCore
    built: BuiltModel
    config: EngineConfig
    built_s: float
    started_s: float
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def pool(self, prompts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        """The rows of prompts that start together, prompt after prompt.

        Raises:
            RuntimeError: as `run`.
        """
        engine = self.core.engine
        requests = [next(self.ids) for _ in prompts]
        engine.pause("keep")
        for request, prompt in zip(requests, prompts, strict=True):
            engine.submit(request, np.array(prompt, np.int32), None)
        engine.resume()
        rows: dict[int, npt.NDArray[np.float32]] = {}
        while len(rows) < len(requests):
            for output in self._next_outputs():
                if output.pooled is None:
                    raise RuntimeError(f"a request failed: {output.error_message}")
                rows[output.request_id] = output.pooled
        found = np.concatenate([rows[request].ravel() for request in requests])
        return found.reshape(-1, self.built.output_size)

    def run(
        self,
        prompts: Sequence[Sequence[int]],
        num_tokens: int,
        *,
        logprobs: bool = False,
        late: Sequence[Sequence[int]] = (),
        drawn: Mapping[str, float] | None = None,
    ) -> list[Answer]:
        """The answers to prompts that start together, and to `late`, which start when all of those
        decode. Tokens are the likeliest, or drawn with these sampling parameters.

        Raises:
            RuntimeError: a request failed, or the engine says nothing for two minutes.
        """
        sampling = _sampling(num_tokens, logprobs, drawn or {"temperature": 0.0})
        answers: dict[int, Answer] = {}

        def submit(group: Sequence[Sequence[int]]) -> None:
            self.core.engine.pause("keep")
            for prompt in group:
                request = next(self.ids)
                answers[request] = Answer()
                self.core.engine.submit(request, np.array(prompt, np.int32), sampling)
            self.core.engine.resume()

        submit(prompts)
        while not all(answer.finished for answer in answers.values()):
            outputs = self._next_outputs()
            now = time.monotonic()
            for output in outputs:
                _take(answers[output.request_id], output, now)
            if late and all(answer.tokens for answer in answers.values()):
                submit(late)
                late = ()
        return list(answers.values())

    def _next_outputs(self) -> list[_native.RequestOutput]:
        outputs = self.core.engine.wait(_WAIT_S)
        if not outputs:
            raise RuntimeError(f"no output in {_WAIT_S:.0f} s")
        return outputs


def _sampling(
    num_tokens: int, logprobs: bool, drawn: Mapping[str, float]
) -> _native.SamplingParams:
    """Of requests that do not end before they have `num_tokens` tokens."""
    kept = 0 if logprobs else -1
    parameters: dict[str, Any] = {"logprobs": kept, "prompt_logprobs": kept, **drawn}
    return _native.SamplingParams(max_tokens=num_tokens, ignore_eos=True, **parameters)


def _take(answer: Answer, output: _native.RequestOutput, now: float) -> None:
    if output.finish_reason not in (None, "length"):
        raise RuntimeError(f"a request ended with {output.finish_reason}: {output.error_message}")
    answer.logprobs += [each.logprob for each in output.prompt_logprobs or ()]
    answer.logprobs += [each.logprob for each in output.logprobs or ()]
    answer.tokens += output.new_token_ids
    answer.times_s += [now] * len(output.new_token_ids)
    answer.finished = output.finish_reason is not None


def exit_status(run: Callable[[], bool]) -> int:
    """0 if `run` returns true, REFUSED if the device does not run the model, else 1."""
    try:
        return 0 if run() else 1
    except ConfigError as error:
        print(f"refused: {error}", flush=True)
        return REFUSED
    except _native.StatusError as error:
        print(f"{error.code}: {error.message}", flush=True)
        return REFUSED if error.code in _REFUSALS else 1


@contextmanager
def start(
    path: Path, device: str, dtype: str, flags: Mapping[str, Any], task: Task | None = None
) -> Generator[Started]:
    """The engine with the model at `path`, with activations and KV cache in `dtype`; `flags` are
    those of `pagemill serve`. Vectors for `task` keep their length.

    Raises:
        ConfigError, StatusError: the device does not run this model.
    """
    config = build_config(
        EngineConfig,
        {
            "model": str(path),
            "device": device,
            "dtype": dtype,
            "kv_cache_dtype": dtype,
            # The CPU's kernels round none to int8, and nothing rounds in f32. Kernels of devices
            # whose activations are bf16 are those that are served.
            "activation_dtype": "auto" if dtype == "bf16" and device != "cpu" else "f32",
            "pack_cache": False,
            "enable_prefix_caching": False,
            **flags,
        },
    )
    source = ModelSource.open(path)
    wanted = BuildOptions(max_model_len=config.model.max_model_len, task=task, normalize=False)
    built = build(source, wanted)
    built_s = time.monotonic()
    core = EngineCore.create(built, config, weights_dtype(source.config), source=source)
    try:
        yield Started(core, built, config, built_s, time.monotonic())
    finally:
        core.engine.shutdown()
