"""Batches for the offline benchmarks: token ids in, times out."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pagemill.benchmark.dataset import read_dataset
from pagemill.benchmark.prompts import PromptConfig, Request
from pagemill.benchmark.step_profile import RunProfile
from pagemill.config import EngineConfig, ModelConfig
from pagemill.engine.fan_out import child_sampling
from pagemill.engine.loading import LoadedModel, load
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.offline_batch import OfflineBatch, OfflineQueue
from pagemill.engine.outputs import ChoiceOutput
from pagemill.engine.sampling import SamplingParams
from pagemill.inputs.rendered_prompt import RenderedPrompt

_MAX_TRACE_S = 3600  # longer than the most events of a profile take


@dataclass(slots=True)
class TimedOutput:
    """One request's tokens and when they came; times in seconds since the batch was submitted."""

    num_tokens: int = 0
    first_token_s: float = 0.0
    done_s: float = 0.0
    num_cached_tokens: int = 0


class OfflineModel:
    """Runs batches of requests and waits for them. Not thread-safe."""

    def __init__(self, loaded: LoadedModel, model: ModelConfig) -> None:
        """Takes over a model that was loaded as `model` says; `close` ends it."""
        self._loaded = loaded
        self._model = model
        self._ids = itertools.count(1)
        self._queue = OfflineQueue(loaded.core.bindings, loaded.core.max_choices)

    @classmethod
    def load(cls, config: EngineConfig) -> "OfflineModel":
        """Loads the configured model; raises what `pagemill.engine.loading.load` does."""
        return cls(load(config), config.model)

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""
        return self._loaded.core.built.vocab_size

    def requests_of(self, prompts: PromptConfig, count: int) -> list[Request]:
        """Returns the first `count` requests of a data set, as token ids.

        Raises:
          ConfigError: the data set cannot be used.
          RenderError: the model has no tokenizer that can be read.
        """
        from pagemill.engine.llm import open_renderer

        renderer = open_renderer(self._loaded, self._model)

        def count_tokens(text: str) -> int:
            return len(renderer.encode(text, add_special_tokens=False))

        try:
            return [
                Request(renderer.encode(each.prompt), each.output_len)
                for each in read_dataset(prompts, count, count_tokens)
                if isinstance(each.prompt, str)
            ]
        finally:
            renderer.close()

    def forget_prompts(self) -> None:
        """Empties the prefix cache; for use between two `run`s."""
        self._loaded.core.engine.reset_prefix_cache(preempt_running=False)

    def profile(self) -> RunProfile:
        """Measures steps from now on; for use between two `run`s."""
        profile = RunProfile(self._loaded.core.runner)
        profile.start()
        return profile

    def start_trace(self, path: str) -> None:
        """Records steps from now on, for `stop_trace`; for use between two `run`s."""
        self._loaded.core.engine.start_profile(path, max_seconds=_MAX_TRACE_S)

    def stop_trace(self) -> None:
        """Writes what was recorded to the file, in Chrome's trace format."""
        self._loaded.core.engine.stop_profile()

    def temperature(self, requested: float | None) -> float | None:
        """Returns the sampling temperature of a request; None is one that has none."""
        return self._loaded.defaults.temperature if requested is None else requested

    def run(self, requests: Sequence[Request], temperature: float | None) -> list[TimedOutput]:
        """Submits all requests, of token ids, at once; returns what came of them, in this order.

        Each gets all tokens of its `output_len`, whatever they are, sampled as the server would
        sample a request that has this temperature and nothing else.

        Raises:
          EngineError: the engine refuses or fails a request; the others are aborted.
        """
        submitted = [
            EngineRequest(
                RenderedPrompt.of(_token_ids(request)),
                (self._choice(request.output_len, temperature, seed),),
            )
            for seed, request in enumerate(requests)
        ]
        outputs = [TimedOutput() for _ in requests]
        begin = time.monotonic()

        def take(news: ChoiceOutput) -> None:
            timed = outputs[news.index]
            now = news.created - begin
            if news.token_ids and not timed.num_tokens:
                timed.first_token_s = now
                timed.num_cached_tokens = news.num_cached_tokens
            timed.num_tokens += len(news.token_ids)
            timed.done_s = now

        OfflineBatch(self._queue, submitted, take).run()
        return outputs

    def _choice(self, output_len: int, temperature: float | None, seed: int) -> ChoiceRequest:
        stated = SamplingParams(temperature=temperature, seed=seed, ignore_eos=True)
        (child,) = child_sampling(
            self._loaded.defaults.fill(stated), max_tokens=output_len, eos_token_ids=()
        )
        return ChoiceRequest(next(self._ids), child)

    def close(self) -> None:
        """Ends the engine's thread."""
        self._loaded.core.bindings.engine.shutdown()
        self._loaded.core.close_ranks()


def _token_ids(request: Request) -> Sequence[int]:
    if isinstance(request.prompt, str):
        raise TypeError("an offline request has token ids")
    return request.prompt
